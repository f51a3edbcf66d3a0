package staged

import (
	"context"

	"github.com/mscclpp-go/mscclpp/collectives/internal/inter/crosshost"
	"github.com/mscclpp-go/mscclpp/collectives/internal/inter/enqueue"
)

// Calls in two levels for little data, as in twolevel/small.go: all ranks of a host get
// what it has, and each gives it to counterparts on the other hosts.

// barrier: a rank that has a message from one rank of each host knows that all of them have come.
func (t *call) barrier() {
	h := t.h
	t.Meet()
	t.await(t.onHost(func(ctx context.Context) error {
		return h.ExchangeNothing(ctx, crosshost.Signals{Level: h})
	}))
}

// through copies from the device what do reads, has the host do it, and copies what it
// writes to the device.
func (t *call) through(from uintptr, own uint64, to uintptr, bytes uint64, do func(ctx context.Context, own, out []byte) error) {
	in, out := t.region(forSending), t.region(forResults)
	t.Copy(in.addr, from, own)
	t.await(t.onHost(func(ctx context.Context) error { return do(ctx, in.bytes[:own], out.bytes[:bytes]) }, in, out))
	t.Copy(to, out.addr, bytes)
}

func (t *call) allReduceSmall() {
	h, c := t.h, t.Call
	bytes := c.Count * uint64(c.Type.Size())
	if bytes == 0 {
		return
	}
	block := t.Place(enqueue.PlaceBlock)
	t.SumInside(c.Count, block)
	t.through(block, bytes, enqueue.Address(c.Output), bytes, func(ctx context.Context, own, out []byte) error {
		return h.ExchangeSum(ctx, crosshost.Signals{Level: h}, t.reduction(), own, func(int) []byte { return own }, out)
	})
}

// reduceScatterSmall reduces all parts inside, on all ranks of the host, and gives each
// counterpart its own.
func (t *call) reduceScatterSmall() {
	h, c := t.h, t.Call
	part, n, rank := c.Count*uint64(c.Type.Size()), uint64(t.ranks()), t.rank()
	if part == 0 {
		return
	}
	block := t.Place(enqueue.PlaceBlock)
	t.SumInside(c.Count*n, block)
	t.through(block, part*n, enqueue.Address(c.Output), part, func(ctx context.Context, own, out []byte) error {
		of := func(rank int) []byte { return own[uint64(rank)*part:][:part] }
		return h.ExchangeSum(ctx, crosshost.Signals{Level: h}, t.reduction(), of(rank), of, out)
	})
}

func (t *call) allGatherSmall() {
	h, c := t.h, t.Call
	part, n := c.Count*uint64(c.Type.Size()), uint64(t.ranks())
	if part == 0 {
		return
	}
	block := t.Place(enqueue.PlaceBlock)
	t.Collect(enqueue.Address(c.Input), block, c.Count)
	t.through(block, uint64(h.Size())*part, enqueue.Address(c.Output), part*n, func(ctx context.Context, own, out []byte) error {
		return h.ExchangeBlocks(ctx, crosshost.Signals{Level: h}, part, own, out)
	})
}
