package collectives

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"sync"
	"time"

	"github.com/mscclpp-go/mscclpp/collectives/internal/engine"
	"github.com/mscclpp-go/mscclpp/collectives/internal/hostreduce"
	"github.com/mscclpp-go/mscclpp/collectives/internal/inter/lanes"
	"github.com/mscclpp-go/mscclpp/collectives/internal/inter/lifetime"
	"github.com/mscclpp-go/mscclpp/framework"
	"github.com/mscclpp-go/mscclpp/framework/comm"
	"github.com/mscclpp-go/mscclpp/framework/device"
)

// portsName is the name of the algorithms that need no shared memory.
const portsName = lanes.Name

// ports performs collectives over port channels, driven by the host: for ranks that
// do not all share memory, on the host.
//
// Channels and slots are made by the first collective, so that a program without
// collectives does not pay for them.
type ports struct {
	*lanes.Lanes

	mu        sync.Mutex // one collective at a time
	calls     uint64     // collectives so far
	failed    error      // of the set-up
	ready     bool
	sum       hostreduce.Accumulator
	hierarchy *hierarchy // nil where no two ranks share memory
	courier   *courier   // nil where kernels run on the host
}

func newPorts(c *comm.Communicator, scratch uint64, describe func(*signature) string) *ports {
	return &ports{Lanes: lanes.New(c, scratch, describe)}
}

// together says who shares memory, as far as there are kernels that make use of it. It is
// collective.
func together(ctx context.Context, c *comm.Communicator) (comm.Reach, error) {
	switch {
	case !c.Offers(framework.KindMemory):
		return comm.Reach{Apart: fmt.Errorf("%w: none of the configured transports has memory channels", framework.ErrUnsupported)}, nil
	case len(withKernels(c)) == 0 && c.Offers(framework.KindPort):
		return comm.Reach{Apart: fmt.Errorf("%w: none of the configured transports has kernels for collectives over memory channels", framework.ErrUnsupported)}, nil
	}
	switch {
	case c.Size() == 1:
		return comm.Reach{}, nil
	case tooMany(c):
		return dividedHost(c.Size()), nil // whose parts see for themselves: links of all pairs would cost minutes
	}
	return c.ReachAll(ctx)
}

// withKernels lists the collectives for which the transports have kernels over shared
// memory: the same on all ranks, since they are settings.
func withKernels(c *comm.Communicator) (list []string) {
	found := engine.Discover(c.Kernels(), min(c.Size(), maxRanks)) // more of them count as several hosts
	for k := AllReduce; k < collectives; k++ {
		if slices.ContainsFunc(found.Collectives, func(x *engine.Kernel) bool { return x.Kind == k }) {
			list = append(list, k.String())
		}
	}
	if len(found.Messages) > 0 {
		list = append(list, SendRecv.String())
	}
	return list
}

// collective performs one call of all ranks.
func (p *ports) collective(c *Call, algorithm string, f func(ctx context.Context) error) error {
	p.mu.Lock()
	defer p.mu.Unlock()
	p.calls++
	p.Call = signature{
		Sequence: p.calls, Count: c.Count, Collective: uint32(c.Collective), Algorithm: nameID(algorithm),
		Type: uint32(c.Type), Op: uint32(c.Op), Root: uint32(c.Root),
	}
	return p.run(f)
}

// run makes the channels before the first call; p.mu is held.
func (p *ports) run(f func(ctx context.Context) error) error {
	if err := p.setUp(); err != nil {
		return err
	}
	// A wait ends with the communicator, like that of a kernel.
	return lifetime.Settle(p.Comm, f(context.Background()))
}

// setUp makes what all calls need, once, and finds out how data of GPUs can go; p.mu is
// held. Collective.
func (p *ports) setUp() error {
	if p.failed != nil || p.ready {
		return p.failed
	}
	ctx, cancel := context.WithTimeout(context.Background(), engine.PreparePatience*time.Duration(1+p.Comm.Size()/64))
	defer cancel()
	err := p.courier.start(ctx)
	if err == nil {
		err = p.Comm.Survey(ctx, framework.KindPort)
	}
	if err == nil {
		err = p.Allocate()
	}
	linked := true
	if err == nil {
		err = p.Link(ctx)
		linked = err == nil
	}
	if h := p.hierarchy; h != nil {
		for _, open := range []func(context.Context) error{h.open, h.direct.open, h.packets.open} {
			if err == nil {
				err = open(ctx)
			}
		}
	}
	if err == nil {
		p.ready = true
		return nil
	}
	p.failed = fmt.Errorf("channels for collectives: %w", err)
	if linked { // or both ranks of a pair know that nothing joins them, and may go on with less
		p.Comm.Abort(p.failed) // others may be in a part that this rank never comes to
	}
	return p.failed
}

func (p *ports) close() error {
	if p == nil {
		return nil
	}
	p.mu.Lock()
	defer p.mu.Unlock()
	all := []error{p.hierarchy.closeDirect(), p.courier.close(), p.hierarchy.close()}
	all = append(all, p.Lanes.Close())
	all = append(all, p.courier.leave())
	p.failed = fmt.Errorf("collectives: %w", framework.ErrClosed)
	return errors.Join(all...)
}

// messages performs a group on the host.
func (p *ports) messages(list []transfer, stream device.Stream) error {
	if p.courier != nil {
		return p.enqueueMessages(list, stream)
	}
	p.mu.Lock()
	defer p.mu.Unlock()
	p.Call = lanes.OfMessages()
	return p.run(func(ctx context.Context) error { return p.Exchange(ctx, list) })
}
