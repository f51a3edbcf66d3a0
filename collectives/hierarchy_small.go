package collectives

import (
	"context"
	"unsafe"

	"github.com/mscclpp-go/mscclpp/collectives/internal/inter/crosshost"
	"github.com/mscclpp-go/mscclpp/collectives/internal/inter/lanes"
)

// pointerTo is the address of memory, nil of none.
func pointerTo(b []byte) unsafe.Pointer { return unsafe.Pointer(unsafe.SliceData(b)) }

// bySignals is a collective of the slower way, that all transports have.
func bySignals(run func(*hierarchy, context.Context, *Call, crosshost.SmallExchange) error) func(*hierarchy, context.Context, *Call) error {
	return func(h *hierarchy, ctx context.Context, c *Call) error {
		return run(h, ctx, c, crosshost.Signals{Exchange: h.Exchange})
	}
}

// byPackets is the same of the faster one.
func byPackets(run func(*hierarchy, context.Context, *Call, crosshost.SmallExchange) error) func(*hierarchy, context.Context, *Call) error {
	return func(h *hierarchy, ctx context.Context, c *Call) error { return run(h, ctx, c, h.packets) }
}

// barrier: who has heard of a rank of each host has heard of all their ranks.
func (h *hierarchy) barrier(ctx context.Context, _ *Call, w crosshost.SmallExchange) error {
	if err := h.named(h.inside.Barrier(nil)); err != nil {
		return err
	}
	return h.ExchangeNothing(ctx, w)
}

func (h *hierarchy) allReduceSmall(ctx context.Context, c *Call, w crosshost.SmallExchange) error {
	bytes := c.Count * uint64(c.Type.Size())
	if bytes == 0 {
		return nil
	}
	own := w.Begin(bytes)
	op, o := h.innerOp(c)
	if err := h.named(h.inside.AllReduce(c.Input, pointerTo(own), int(c.Count), c.Type, op, o)); err != nil {
		return err
	}
	return h.ExchangeSum(ctx, w, reduction(c), own, func(int) []byte { return own }, lanes.View(c.Output, bytes))
}

// reduceScatterSmall reduces all parts inside, on all ranks of the host, and gives each
// counterpart its own.
func (h *hierarchy) reduceScatterSmall(ctx context.Context, c *Call, w crosshost.SmallExchange) error {
	part := c.Count * uint64(c.Type.Size())
	if part == 0 {
		return nil
	}
	w.Begin(0) // no two counterparts get the same
	n := h.ports.Comm.Size()
	own := h.Spaces[crosshost.SpaceBlock].Bytes(part * uint64(n))
	op, o := h.innerOp(c)
	if err := h.named(h.inside.AllReduce(c.Input, pointerTo(own), int(c.Count)*n, c.Type, op, o)); err != nil {
		return err
	}
	of := func(rank int) []byte { return own[uint64(rank)*part:][:part] }
	return h.ExchangeSum(ctx, w, reduction(c), of(h.ports.Comm.Rank()), of, lanes.View(c.Output, part))
}

func (h *hierarchy) allGatherSmall(ctx context.Context, c *Call, w crosshost.SmallExchange) error {
	part := c.Count * uint64(c.Type.Size())
	if part == 0 {
		return nil
	}
	own := w.Begin(uint64(h.Size()) * part)
	if err := h.named(h.inside.AllGather(c.Input, pointerTo(own), int(c.Count), c.Type, nil)); err != nil {
		return err
	}
	return h.ExchangeBlocks(ctx, w, part, own, lanes.View(c.Output, part*uint64(h.ports.Comm.Size())))
}
