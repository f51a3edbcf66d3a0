package twolevel

import (
	"context"

	"github.com/mscclpp-go/mscclpp/collectives/internal/engine"
	"github.com/mscclpp-go/mscclpp/collectives/internal/inter/crosshost"
	"github.com/mscclpp-go/mscclpp/collectives/internal/inter/lanes"
)

// barrier: a rank that has a message from one rank of each host knows that all of them have come.
func (h *Engine) barrier(ctx context.Context, w crosshost.SmallExchange) error {
	if err := h.inside.Barrier(); err != nil {
		return err
	}
	return h.ExchangeNothing(ctx, w)
}

func (h *Engine) allReduceSmall(ctx context.Context, c *engine.Call, w crosshost.SmallExchange) error {
	bytes := c.Count * uint64(c.Type.Size())
	if bytes == 0 {
		return nil
	}
	own := w.Begin(bytes)
	op, scale := h.Inner(c.Op, c.Scale)
	if err := h.inside.AllReduce(c.Input, lanes.PointerTo(own), int(c.Count), c.Type, op, scale); err != nil {
		return err
	}
	return h.ExchangeSum(ctx, w, reduction(c), own, func(int) []byte { return own }, lanes.View(c.Output, bytes))
}

// reduceScatterSmall reduces all parts inside, on all ranks of the host, and gives each
// counterpart its own.
func (h *Engine) reduceScatterSmall(ctx context.Context, c *engine.Call, w crosshost.SmallExchange) error {
	part := c.Count * uint64(c.Type.Size())
	if part == 0 {
		return nil
	}
	w.Begin(0) // no two counterparts get the same
	n := h.Ranks()
	own := h.Spaces[crosshost.SpaceBlock].Bytes(part * uint64(n))
	op, scale := h.Inner(c.Op, c.Scale)
	if err := h.inside.AllReduce(c.Input, lanes.PointerTo(own), int(c.Count)*n, c.Type, op, scale); err != nil {
		return err
	}
	of := func(rank int) []byte { return own[uint64(rank)*part:][:part] }
	return h.ExchangeSum(ctx, w, reduction(c), of(h.Rank), of, lanes.View(c.Output, part))
}

func (h *Engine) allGatherSmall(ctx context.Context, c *engine.Call, w crosshost.SmallExchange) error {
	part := c.Count * uint64(c.Type.Size())
	if part == 0 {
		return nil
	}
	own := w.Begin(uint64(h.Size()) * part)
	if err := h.inside.AllGather(c.Input, lanes.PointerTo(own), int(c.Count), c.Type); err != nil {
		return err
	}
	return h.ExchangeBlocks(ctx, w, part, own, lanes.View(c.Output, part*uint64(h.Ranks())))
}
