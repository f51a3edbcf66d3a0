package comm_test

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"strings"
	"testing"

	"github.com/mscclpp-go/mscclpp/framework"
	"github.com/mscclpp-go/mscclpp/framework/kernel/actor"
	"github.com/mscclpp-go/mscclpp/framework/transporttest/loopback"
)

// adapter stands for a transport of a network whose adapter reaches memory of GPUs: it
// takes dma-bufs and nothing else. On emulated GPUs the descriptor is one that a process
// can map, which is what moves the data here.
type adapter struct {
	side
	refuse error
}

type side interface {
	framework.Transport
	framework.Proxier
}

func (a *adapter) Describe(ctx context.Context) (framework.Description, error) {
	d, err := a.side.Describe(ctx)
	d.Channels = []framework.Kind{framework.KindPort}
	d.Needs = []framework.Need{framework.NeedMemFD, framework.NeedDMABuf}
	return d, err
}

func (a *adapter) Register(ctx context.Context, seg framework.Segment) (framework.Registration, error) {
	i := slices.IndexFunc(seg.Shares, func(s framework.Share) bool { return s.Kind == framework.ShareDMABuf })
	if i < 0 || a.refuse != nil {
		return framework.Registration{}, errors.Join(fmt.Errorf("%w: memory of %s without a dma-buf, or not wanted", framework.ErrUnsupported, seg.Device), a.refuse)
	}
	seg.Device = framework.Host
	seg.Shares = []framework.Share{{Kind: framework.ShareMemFD, FD: seg.Shares[i].FD}}
	return a.side.Register(ctx, seg)
}

// adapters are two: one raises semaphores where they are, the other leaves counts for
// the rank to forward.
func adapters() map[string]func() framework.Transport {
	return map[string]func() framework.Transport{
		"raised":    func() framework.Transport { return &adapter{side: loopback.New()} },
		"forwarded": func() framework.Transport { return &adapter{side: newPosting()} },
	}
}

func needsEmulated(t *testing.T) {
	t.Helper()
	if _, err := gpus(); err == nil && !isEmulated() {
		t.Skip("needs emulated GPUs: no adapter of a network stands beside these")
	}
}

// Kernels put from memory of a GPU into that of another one by the proxy of a transport,
// and the signals that follow are there no sooner than the data.
func TestAdapterReachesGPUs(t *testing.T) {
	needsEmulated(t)
	for name, transport := range adapters() {
		t.Run(name, func(t *testing.T) { kernelsPut(t, transport) })
	}
}

func kernelsPut(t *testing.T, transport func() framework.Transport) {
	const size = 1 << 16
	cudaJobOver(t, 2, transport, func(ctx context.Context, p *player) error {
		out, in, ports, err := portsOf(ctx, p.Communicator)
		if err != nil {
			return err
		}
		ch := ports[1-p.Rank()]
		return p.rounds(ctx, out, in, size, func(int) error { // without a barrier: the signals alone tell
			return p.plays(ctx, ch.Handle(), repeat(20,
				actor.Step{Op: actor.PortPut, Bytes: size / 2},
				actor.Step{Op: actor.PortPutWithSignal, Dst: size / 2, Src: size / 2, Bytes: size / 2},
				actor.Step{Op: actor.PortSignal}, actor.Step{Op: actor.PortFlush},
				actor.Step{Op: actor.PortWait}, actor.Step{Op: actor.PortWait})...)
		})
	})
}

// A transport that does not get what it wants says so, and so does the memory.
func TestAdapterThatCannotReachGPUs(t *testing.T) {
	needsEmulated(t)
	refused := errors.New("the adapter is out of regions")
	cudaJobOver(t, 2, func() framework.Transport { return &adapter{side: loopback.New(), refuse: refused} }, func(ctx context.Context, p *player) error {
		m, err := p.Alloc(4096)
		if err != nil {
			return err
		}
		_, err = p.PortChannel(ctx, 1-p.Rank(), m, m)
		if err == nil || !strings.Contains(err.Error(), "out of regions") {
			return fmt.Errorf("%v: expected what the transport said", err)
		}
		return nil
	})
}
