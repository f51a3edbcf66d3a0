package collectives

import (
	"context"

	"github.com/mscclpp-go/mscclpp/collectives/internal/inter/crosshost"
)

// Calls in two levels for little data, as in hierarchy_small.go: all ranks of a host get
// what it has, and each gives it to counterparts on the other hosts.

// barrier: who has heard of a rank of each host has heard of all their ranks.
func (t *trip) barrier() {
	h := t.ports.hierarchy
	if t.err == nil {
		t.err = h.named(h.inside.Barrier(&CallOptions{Stream: t.stream}))
	}
	t.await(t.tell(func(ctx context.Context) error {
		return h.ExchangeNothing(ctx, crosshost.Signals{Exchange: h.Exchange})
	}))
}

// through copies from the device what do reads, has the host do it, and copies what it
// writes to the device.
func (t *trip) through(from uintptr, own uint64, to uintptr, bytes uint64, do func(ctx context.Context, own, out []byte) error) {
	in, out := t.region(forSending), t.region(forResults)
	t.copy(in.addr, from, own)
	t.await(t.tell(func(ctx context.Context) error { return do(ctx, in.bytes[:own], out.bytes[:bytes]) }, in, out))
	t.copy(to, out.addr, bytes)
}

// sumInside reduces the inputs of the ranks of the host, for all of them.
func (t *trip) sumInside(count uint64, out uintptr) {
	h, c := t.ports.hierarchy, t.call
	if t.err == nil {
		op, o := h.innerOp(c)
		t.err = h.named(h.inside.AllReduce(c.Input, at(out), int(count), c.Type, op, o))
	}
}

func (t *trip) allReduceSmall() {
	h, c := t.ports.hierarchy, t.call
	bytes := c.Count * uint64(c.Type.Size())
	if bytes == 0 {
		return
	}
	block := t.place(placeBlock)
	t.sumInside(c.Count, block)
	t.through(block, bytes, address(c.Output), bytes, func(ctx context.Context, own, out []byte) error {
		return h.ExchangeSum(ctx, crosshost.Signals{Exchange: h.Exchange}, reduction(c), own, func(int) []byte { return own }, out)
	})
}

// reduceScatterSmall reduces all parts inside, on all ranks of the host, and gives each
// counterpart its own.
func (t *trip) reduceScatterSmall() {
	h, c := t.ports.hierarchy, t.call
	part, n, rank := c.Count*uint64(c.Type.Size()), uint64(t.ports.Comm.Size()), t.ports.Comm.Rank()
	if part == 0 {
		return
	}
	block := t.place(placeBlock)
	t.sumInside(c.Count*n, block)
	t.through(block, part*n, address(c.Output), part, func(ctx context.Context, own, out []byte) error {
		of := func(rank int) []byte { return own[uint64(rank)*part:][:part] }
		return h.ExchangeSum(ctx, crosshost.Signals{Exchange: h.Exchange}, reduction(c), of(rank), of, out)
	})
}

func (t *trip) allGatherSmall() {
	h, c := t.ports.hierarchy, t.call
	part, n := c.Count*uint64(c.Type.Size()), uint64(t.ports.Comm.Size())
	if part == 0 {
		return
	}
	block := t.place(placeBlock)
	if t.err == nil {
		t.err = h.named(h.inside.AllGather(c.Input, at(block), int(c.Count), c.Type, &CallOptions{Stream: t.stream}))
	}
	t.through(block, uint64(h.Size())*part, address(c.Output), part*n, func(ctx context.Context, own, out []byte) error {
		return h.ExchangeBlocks(ctx, crosshost.Signals{Exchange: h.Exchange}, part, own, out)
	})
}
