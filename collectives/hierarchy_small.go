package collectives

import (
	"context"
	"math"
	"unsafe"

	"github.com/mscclpp-go/mscclpp/collectives/internal/hostreduce"
	"github.com/mscclpp-go/mscclpp/collectives/internal/inter/lanes"
	"github.com/mscclpp-go/mscclpp/framework/kernel"
)

// pointerTo is the address of memory, nil of none.
func pointerTo(b []byte) unsafe.Pointer { return unsafe.Pointer(unsafe.SliceData(b)) }

// innerOp is the reduction inside a host. An average becomes a sum of what was made
// smaller, so that it does not become too large for the type: by a power of two, which
// rounds nothing.
func (h *hierarchy) innerOp(c *Call) (kernel.Op, *CallOptions) {
	o := &CallOptions{Stream: c.Stream, Scale: c.Scale}
	if c.Op == kernel.Avg {
		o.Scale = 1 / h.smaller()
		return kernel.PreMulSum, o
	}
	return c.Op, o
}

func (h *hierarchy) smaller() float64 { return math.Exp2(math.Ceil(math.Log2(float64(h.Most)))) }

// startSum begins the reduction between hosts.
func (h *hierarchy) startSum(c *Call, bytes uint64) *hostreduce.Accumulator {
	sum, op := &h.ports.sum, c.Op
	if op == kernel.PreMulSum { // done inside
		op = kernel.Sum
	}
	sum.Start(c.Type, op, 0, bytes)
	sum.By = float64(h.ports.Comm.Size()) / h.smaller()
	return sum
}

// way is how small parts go from host to host: in slots, announced by a signal, or in
// packets.
type way interface {
	// begin starts the call's exchange, and returns memory for what all counterparts are
	// to get.
	begin(bytes uint64) []byte
	// give sends to a counterpart. Nobody has more than one message under way to another,
	// so nobody waits in a circle.
	give(ctx context.Context, to int, b []byte) error
	// receive hands on what the counterpart on another host has given, and forgets it then.
	receive(ctx context.Context, g int, bytes uint64, use func(b []byte)) error
}

// signals is the way of slots and signals.
type signals struct{ *hierarchy }

func (w signals) begin(bytes uint64) []byte { return w.spaces[spaceBlock].bytes(bytes) }

func (w signals) give(ctx context.Context, to int, b []byte) error { return w.ports.Post(ctx, to, b) }

func (w signals) receive(ctx context.Context, g int, bytes uint64, use func(b []byte)) error {
	return w.ports.Take(ctx, w.Counterpart(g), bytes, use)
}

// bySignals is a collective of the slower way, that all transports have.
func bySignals(run func(*hierarchy, context.Context, *Call, way) error) func(*hierarchy, context.Context, *Call) error {
	return func(h *hierarchy, ctx context.Context, c *Call) error { return run(h, ctx, c, signals{h}) }
}

// byPackets is the same of the faster one.
func byPackets(run func(*hierarchy, context.Context, *Call, way) error) func(*hierarchy, context.Context, *Call) error {
	return func(h *hierarchy, ctx context.Context, c *Call) error { return run(h, ctx, c, h.packets) }
}

// exchange gives mine, which all ranks of the host have, to counterparts on all other
// hosts, and hands on what they give of the others.
func (h *hierarchy) exchange(ctx context.Context, w way, mine func(to int) []byte, bytes func(g int) uint64, use func(g int, b []byte)) error {
	if err := h.Counterparts(func(to int) error { return w.give(ctx, to, mine(to)) }); err != nil {
		return err
	}
	return h.OtherHosts(func(g int) error {
		return w.receive(ctx, g, bytes(g), func(b []byte) { use(g, b) })
	})
}

// exchangeSum is an exchange that reduces what hosts have, in their order.
func (h *hierarchy) exchangeSum(ctx context.Context, w way, c *Call, own []byte, mine func(to int) []byte, out []byte) error {
	if err := h.Counterparts(func(to int) error { return w.give(ctx, to, mine(to)) }); err != nil {
		return err
	}
	sum := h.startSum(c, uint64(len(out)))
	for g := range h.Hosts {
		if g == h.Host {
			sum.Add(own)
			continue
		}
		if err := w.receive(ctx, g, uint64(len(out)), sum.Add); err != nil {
			return err
		}
	}
	sum.Store(out)
	return nil
}

// exchangeNothing is for a barrier.
func (h *hierarchy) exchangeNothing(ctx context.Context, w way) error {
	nothing := w.begin(0)
	return h.exchange(ctx, w, func(int) []byte { return nothing }, func(int) uint64 { return 0 }, func(int, []byte) {})
}

// barrier: who has heard of a rank of each host has heard of all their ranks.
func (h *hierarchy) barrier(ctx context.Context, _ *Call, w way) error {
	if err := h.named(h.inside.Barrier(nil)); err != nil {
		return err
	}
	return h.exchangeNothing(ctx, w)
}

func (h *hierarchy) allReduceSmall(ctx context.Context, c *Call, w way) error {
	bytes := c.Count * uint64(c.Type.Size())
	if bytes == 0 {
		return nil
	}
	own := w.begin(bytes)
	op, o := h.innerOp(c)
	if err := h.named(h.inside.AllReduce(c.Input, pointerTo(own), int(c.Count), c.Type, op, o)); err != nil {
		return err
	}
	return h.exchangeSum(ctx, w, c, own, func(int) []byte { return own }, lanes.View(c.Output, bytes))
}

// reduceScatterSmall reduces all parts inside, on all ranks of the host, and gives each
// counterpart its own.
func (h *hierarchy) reduceScatterSmall(ctx context.Context, c *Call, w way) error {
	part := c.Count * uint64(c.Type.Size())
	if part == 0 {
		return nil
	}
	w.begin(0) // no two counterparts get the same
	n := h.ports.Comm.Size()
	own := h.spaces[spaceBlock].bytes(part * uint64(n))
	op, o := h.innerOp(c)
	if err := h.named(h.inside.AllReduce(c.Input, pointerTo(own), int(c.Count)*n, c.Type, op, o)); err != nil {
		return err
	}
	of := func(rank int) []byte { return own[uint64(rank)*part:][:part] }
	return h.exchangeSum(ctx, w, c, of(h.ports.Comm.Rank()), of, lanes.View(c.Output, part))
}

func (h *hierarchy) allGatherSmall(ctx context.Context, c *Call, w way) error {
	part := c.Count * uint64(c.Type.Size())
	if part == 0 {
		return nil
	}
	own := w.begin(uint64(h.Size()) * part)
	if err := h.named(h.inside.AllGather(c.Input, pointerTo(own), int(c.Count), c.Type, nil)); err != nil {
		return err
	}
	return h.exchangeBlocks(ctx, w, part, own, lanes.View(c.Output, part*uint64(h.ports.Comm.Size())))
}

// exchangeBlocks gives the parts of this host's ranks to the others, and puts all parts
// where they belong.
func (h *hierarchy) exchangeBlocks(ctx context.Context, w way, part uint64, own, out []byte) error {
	block := func(g int) uint64 { return uint64(len(h.Hosts[g])) * part }
	place := func(g int, b []byte) {
		for i, rank := range h.Hosts[g] {
			copy(out[uint64(rank)*part:][:part], b[uint64(i)*part:])
		}
	}
	place(h.Host, own)
	return h.exchange(ctx, w, func(int) []byte { return own }, block, place)
}
