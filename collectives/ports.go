package collectives

import (
	"context"
	"errors"
	"fmt"
	"sync"

	"github.com/mscclpp-go/mscclpp/collectives/internal/hostreduce"
	"github.com/mscclpp-go/mscclpp/collectives/internal/inter/lifetime"
	"github.com/mscclpp-go/mscclpp/framework"
	"github.com/mscclpp-go/mscclpp/framework/comm"
)

// portsName is the name of the algorithms that need no shared memory.
const portsName = "ports"

// Limits of the size of a piece. Below the first a message is all head, above the
// second nothing is gained.
const (
	minPortPiece = 4 << 10
	maxPortPiece = 1 << 20
)

// givenPiece is from where on it costs less to send a piece from where it is than to copy it
// into a slot first.
const givenPiece = 32 << 10

// ports performs collectives over port channels, driven by the host: for ranks that
// do not all share memory, on the host. Each pair of ranks has slots in both
// directions. A piece is copied into an own slot (a large one is sent from where it is,
// over streams that this rank drives), put into the same slot of the
// peer, and announced by a signal; who has taken it out says so over a second
// channel, and only then the slot is used again. In front of a piece stands what call
// it belongs to, so that ranks that disagree get an error.
//
// Channels and slots are made by the first collective, so that a program without
// collectives does not pay for them.
type ports struct {
	comm     *comm.Communicator
	piece    uint64
	describe func(*signature) string

	mu        sync.Mutex // one collective at a time
	call      signature  // under way; all zero but the collective for messages
	calls     uint64     // collectives so far
	failed    error      // of the set-up
	ready     bool
	lanes     []lane // by rank
	out       *comm.Memory
	in        *comm.Memory
	sum       hostreduce.Accumulator
	hierarchy *hierarchy // nil where no two ranks share memory
	courier   *courier   // nil where kernels run on the host
}

func newPorts(c *Comm) *ports {
	slots := uint64(2 * c.Size() * portSlots)
	return &ports{comm: c.comm, piece: min(maxPortPiece, max(minPortPiece, c.opts.Scratch/slots/line*line)), describe: c.describe}
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
	if c.Size() == 1 {
		return comm.Reach{}, nil
	}
	return c.ReachAll(ctx)
}

// withKernels lists the collectives for which the transports have kernels over shared
// memory: the same on all ranks, since they are settings.
func withKernels(c *comm.Communicator) (list []string) {
	found := discover(c.Kernels(), c.Size())
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
			return x.ports.collective(call, portsName, func(ctx context.Context) error { return run(x.ports, ctx, call) })
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
	p.call = signature{
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
	return lifetime.Settle(p.comm, f(context.Background()))
}

// setUp makes what all calls need, once, and finds out how data of GPUs can go; p.mu is
// held. Collective.
func (p *ports) setUp() error {
	if p.failed != nil || p.ready {
		return p.failed
	}
	ctx, cancel := context.WithTimeout(context.Background(), prepareTimeout)
	defer cancel()
	err := p.courier.start(ctx)
	if err == nil {
		err = p.comm.Survey(ctx, framework.KindPort)
	}
	if err == nil {
		err = p.allocate()
	}
	linked := true
	if err == nil {
		err = p.link(ctx)
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
		p.comm.Abort(p.failed) // others may be in a part that this rank never comes to
	}
	return p.failed
}

// allocate makes the memory for slots.
func (p *ports) allocate() error {
	n := p.comm.Size()
	p.lanes = make([]lane, n)
	bytes := uint64(n) * portSlots * (slotHead + p.piece)
	if p.hierarchy != nil {
		bytes += p.hierarchy.packets.memory()
	}
	var err error
	if p.out, err = p.comm.Alloc(bytes); err != nil {
		return fmt.Errorf("slots: %w", err)
	}
	if p.in, err = p.comm.Alloc(bytes); err != nil {
		return fmt.Errorf("slots: %w", err)
	}
	return nil
}

// link makes the channels. All ranks come here in their first collective, and meet in pairs.
func (p *ports) link(ctx context.Context) (err error) {
	n, rank := p.comm.Size(), p.comm.Rank()
	for round := range n {
		peer := (round - rank + n) % n // whose peer this rank is in the same round
		if peer == rank {
			continue
		}
		l := &p.lanes[peer]
		if l.data, err = p.comm.PortChannel(ctx, peer, p.out, p.in); err != nil {
			return err
		}
		if l.credit, err = p.comm.PortChannel(ctx, peer, p.out, p.in); err != nil {
			return err
		}
		if n == 2 && l.data.Gives() {
			if l.results, err = p.comm.PortChannel(ctx, peer, p.out, p.in); err != nil {
				return err
			}
			l.results.Land(nil) // until a call says where to
		}
	}
	return nil
}

func (p *ports) close() error {
	if p == nil {
		return nil
	}
	p.mu.Lock()
	defer p.mu.Unlock()
	all := []error{p.hierarchy.closeDirect(), p.courier.close(), p.hierarchy.close()}
	for _, l := range p.lanes {
		for _, ch := range []*comm.PortChannel{l.data, l.credit, l.results} {
			if ch != nil {
				all = append(all, ch.Close())
			}
		}
	}
	for _, m := range []*comm.Memory{p.out, p.in} {
		if m != nil {
			all = append(all, m.Close())
		}
	}
	p.lanes, p.out, p.in = nil, nil, nil
	all = append(all, p.courier.leave())
	p.failed = fmt.Errorf("collectives: %w", framework.ErrClosed)
	return errors.Join(all...)
}
