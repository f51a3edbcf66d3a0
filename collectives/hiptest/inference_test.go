package hiptest

import (
	"bytes"
	"context"
	"encoding/binary"
	"errors"
	"fmt"
	"sync"
	"testing"
	"time"

	"github.com/mscclpp-go/mscclpp/framework"
	"github.com/mscclpp-go/mscclpp/framework/bootstrap"
	"github.com/mscclpp-go/mscclpp/framework/comm"
	"github.com/mscclpp-go/mscclpp/framework/device"
	"github.com/mscclpp-go/mscclpp/framework/device/cuda/emulated"
	"github.com/mscclpp-go/mscclpp/framework/device/hip"
	hipemulated "github.com/mscclpp-go/mscclpp/framework/device/hip/emulated"
	"github.com/mscclpp-go/mscclpp/framework/topo"
	"github.com/mscclpp-go/mscclpp/inference"
	"github.com/mscclpp-go/mscclpp/inference/inferencetest"
	"github.com/mscclpp-go/mscclpp/inference/moe"
	"github.com/mscclpp-go/mscclpp/inference/moe/moetest"
	"github.com/mscclpp-go/mscclpp/transports/xgmi"
)

// Operators for inference run on AMD's GPUs of one host, right and with the same bits on both; and rows of tokens reach their experts there,
// and come back.
func TestInferenceOnHIP(t *testing.T) {
	library, _ := hipemulated.Build(t)
	t.Setenv(hip.EnvLibrary, library)
	t.Setenv(emulated.EnvImages, emulated.Images(t, append(hipemulated.Inference("../.."), hipemulated.Words("../.."))...))
	gpus := list(t, 2)
	ctx, cancel := context.WithTimeout(t.Context(), 2*time.Minute)
	defer cancel()
	var all sync.WaitGroup
	for i, boot := range bootstrap.InProcess(2) {
		all.Go(func() {
			defer boot.Close()
			if err := infers(ctx, boot, gpus, i); err != nil {
				t.Errorf("rank %d: %v", i, err)
			}
		})
	}
	all.Wait()
}

func infers(ctx context.Context, boot framework.Bootstrap, gpus []topo.GPU, index int) error {
	dev, err := hip.Open(index)
	if err != nil {
		return err
	}
	inner, err := xgmi.NewWith(xgmi.Config{}.Defaults(), func(context.Context) ([]topo.GPU, error) { return gpus, nil })
	if err != nil {
		return err
	}
	tr, err := comm.NewTransport(ctx, inner, "embedded")
	if err != nil {
		return err
	}
	facts := framework.Facts{NUMA: -1, Other: map[string]string{topo.FactKey("hip", "pci"): dev.PCI()}}
	world, err := comm.New(ctx, boot, comm.Options{Device: dev, Transports: []*comm.Transport{tr}, Facts: facts})
	if err != nil {
		return err
	}
	stream, err := dev.NewStream()
	if err == nil {
		in := func(at uintptr) piece { return piece{dev, at} }
		err = errors.Join(operators(ctx, world, stream, in), experts(ctx, world, stream, in))
	}
	if err != nil {
		world.Abort(err)
		return err
	}
	return errors.Join(dev.CloseStream(stream), world.Close(), tr.CloseModules(), dev.Close())
}

func operators(ctx context.Context, world *comm.Communicator, stream device.Stream, in func(at uintptr) piece) error {
	w, err := inference.New(ctx, world, inference.Options{Scratch: 1 << 20})
	if err != nil {
		return err
	}
	m, err := world.Alloc(1 << 20)
	if err != nil {
		return err
	}
	memory := in(m.Addr())
	for i, x := range inferencetest.Trials() {
		call, err := x.Call(memory, world.Rank(), world.Size(), uint64(i))
		if err != nil {
			return err
		}
		call.Stream = stream
		if err := errors.Join(w.AllReduceNorm(call), world.Settle(ctx, stream), world.Check()); err != nil {
			return fmt.Errorf("%v: %w", x, err)
		}
		sum, err := x.Check(memory, world.Rank(), world.Size(), uint64(i))
		if err != nil {
			return err
		}
		sums, err := world.AllGather(ctx, binary.LittleEndian.AppendUint64(nil, sum))
		if err != nil {
			return err
		}
		if !bytes.Equal(sums[0], sums[1]) {
			return fmt.Errorf("%v: ranks have other bits than each other", x)
		}
	}
	return errors.Join(w.Close(), m.Close())
}

func experts(ctx context.Context, world *comm.Communicator, stream device.Stream, in func(at uintptr) piece) error {
	b, err := moe.New(ctx, world, moetest.Options())
	if err != nil {
		return err
	}
	for i, x := range moetest.Trials() {
		r := moetest.Run{Trial: x, Rank: world.Rank(), Ranks: world.Size(), Seed: uint64(i), Handle: b.HandleBytes()}
		m, err := world.Alloc(uint64(r.Bytes()))
		if err != nil {
			return err
		}
		r.Memory = in(m.Addr())
		dispatch, err := r.Dispatch()
		if err != nil {
			return err
		}
		dispatch.Stream = stream
		if err := errors.Join(b.Dispatch(dispatch), world.Settle(ctx, stream), world.Check(), r.CheckDispatch()); err != nil {
			return fmt.Errorf("dispatch %d: %w", i, err)
		}
		combine := r.Combine()
		combine.Stream = stream
		if err := errors.Join(b.Combine(combine), world.Settle(ctx, stream), world.Check(), r.CheckCombine(), m.Close()); err != nil {
			return fmt.Errorf("combine %d: %w", i, err)
		}
	}
	return b.Close()
}
