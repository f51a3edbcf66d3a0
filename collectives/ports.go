package collectives

import (
	"context"
	"errors"
	"fmt"
	"sync"
	"time"

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

func newPorts(c *Comm) *ports {
	return &ports{Lanes: lanes.New(c.comm, c.opts.Scratch, c.describe)}
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
	found := discover(c.Kernels(), min(c.Size(), maxRanks)) // more of them count as several hosts
	for k, algorithms := range found.algorithms {
		if len(algorithms) > 0 {
			list = append(list, Collective(k).String())
		}
	}
	if len(found.messages) > 0 {
		list = append(list, SendRecv.String())
	}
	return list
}

// offerPorts is what is left where ranks do not share memory.
func (c *Comm) offerPorts(apart error, groups [][]int) {
	var k *courier
	if !c.host {
		k = newCourier(c)
	}
	switch {
	case !c.host && k == nil:
		c.refused = fmt.Errorf("%w: collectives: ranks do not all share memory, and streams of %v cannot wait for the host, which would carry the data: %w", framework.ErrUnsupported, c.comm.Device().Info().Device, apart)
		return
	case !c.comm.Offers(framework.KindPort):
		c.refused = fmt.Errorf("%w: collectives: neither memory channels nor port channels join all ranks: %w", framework.ErrUnsupported, apart)
		return
	}
	c.ports = newPorts(c)
	if tooMany(c.comm) {
		c.ports.First = counterparts(groups, c.comm.Rank())
	}
	if k != nil {
		c.ports.courier, k.ports = k, c.ports
	}
	c.messages = &algorithm{name: portsName, id: nameID(portsName), collective: SendRecv}
	c.args.Rank, c.args.Ranks = uint32(c.comm.Rank()), uint32(c.comm.Size())
	c.offerHierarchy(groups)
	for k, run := range map[Collective]func(*ports, context.Context, *Call) error{
		AllReduce: (*ports).allReduce, AllGather: (*ports).allGather, ReduceScatter: (*ports).reduceScatter,
		Broadcast: (*ports).broadcast, Reduce: (*ports).reduce, AllToAll: (*ports).allToAll, Barrier: (*ports).barrier,
	} {
		c.offerOwn(Row{Collective: k, Algorithm: portsName}, nil, func(x *Comm, call *Call) error {
			if x.ports.courier != nil {
				return x.ports.enqueue(call, portsName, func(t *trip) { t.flat(run) })
			}
			return x.ports.collective(call, portsName, func(ctx context.Context) error {
				if err := x.ports.LinkAll(ctx); err != nil {
					return err
				}
				return run(x.ports, ctx, call)
			})
		})
	}
}

// offerOwn adds an algorithm that runs in Go, and the row that chooses it.
func (c *Comm) offerOwn(row Row, fits func(Request) bool, run func(*Comm, *Call) error) {
	c.algorithms[row.Collective] = append(c.algorithms[row.Collective], &algorithm{
		name: row.Algorithm, id: nameID(row.Algorithm), collective: row.Collective,
		own: &Algorithm{Collective: row.Collective, Name: row.Algorithm, Fits: fits, Run: run},
	})
	c.builtin = append(c.builtin, row)
}

// Shared reports whether all ranks share memory. If they do not, buffers cannot be
// registered by comm.Exchange.
func (c *Comm) Shared() bool { return c.refused == nil && c.ports == nil }

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
	ctx, cancel := context.WithTimeout(context.Background(), prepareTimeout*time.Duration(1+p.Comm.Size()/64))
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
