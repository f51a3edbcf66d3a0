package twolevel

import (
	"context"

	"github.com/mscclpp-go/mscclpp/collectives/internal/engine"
	"github.com/mscclpp-go/mscclpp/collectives/internal/inter/crosshost"
	"github.com/mscclpp-go/mscclpp/collectives/internal/inter/lanes"
)

// The data that ranks of one host have for ranks of another is different for each pair, so that
// nothing can be added up or left out. Two levels save messages: all that the ranks of a host have
// for one rank elsewhere goes there in one, from that rank's counterpart, which has collected it
// inside. It arrives where it belongs, and nothing has to be passed on. That moves everything
// inside first, so large parts go straight to where they belong, and only those between ranks of a
// host go by kernels.

// allToAllSmall collects inside what the ranks of the host have for this rank and for
// its counterparts, in one step.
func (h *Engine) allToAllSmall(ctx context.Context, c *engine.Call) error {
	element, n := uint64(c.Type.Size()), uint64(h.Ranks())
	part := c.Count * element
	in, out := lanes.View(c.Input, n*part), lanes.View(c.Output, n*part)
	width := 1 + h.CountRounds()
	size := h.BundleOf(element)
	for at := uint64(0); at < part; at += size {
		bytes := min(size, part-at)
		from, to := parts{in, part, at, bytes}, parts{out, part, at, bytes}
		mine := h.Spaces[crosshost.SpacePadded].Bytes(uint64(h.Size()) * width * bytes)
		ours := h.Spaces[crosshost.SpaceBlock].Bytes(uint64(h.Size()) * width * bytes)
		of := func(b []byte, k int, number uint64) []byte { return b[(uint64(k)*width+number)*bytes:][:bytes] }
		for k, rank := range h.Hosts[h.Host] {
			copy(of(mine, k, 0), from.of(rank))
		}
		round := uint64(0)
		_ = h.Rounds(func(g, first int) error {
			round++
			for k, rank := range h.Hosts[g][first:min(first+h.Size(), len(h.Hosts[g]))] {
				copy(of(mine, k, round), from.of(rank))
			}
			return nil
		})
		if err := h.inside.AllToAll(lanes.PointerTo(mine), lanes.PointerTo(ours), int(width*bytes/element), c.Type); err != nil {
			return err
		}
		for k, rank := range h.Hosts[h.Host] {
			copy(to.of(rank), of(ours, k, 0))
		}
		if err := h.Swap(ctx, bytes, func(round uint64, k int) []byte { return of(ours, k, 1+round) }, to.of); err != nil {
			return err
		}
	}
	return nil
}

// allToAllLarge has the parts for other hosts on their way while those for this one are
// crosshost.Piece inside.
func (h *Engine) allToAllLarge(ctx context.Context, c *engine.Call) error {
	if err := h.Lanes.LinkAll(ctx); err != nil {
		return err
	}
	element, n := uint64(c.Type.Size()), uint64(h.Ranks())
	part := c.Count * element
	in, out := lanes.View(c.Input, n*part), lanes.View(c.Output, n*part)
	return h.pieces(in, part, element, func(from parts) error {
		to := parts{out, part, from.at, from.n}
		if err := h.SendRemote(ctx, from.of); err != nil {
			return err
		}
		if err := h.swapInside(c, from, to); err != nil {
			return err
		}
		return h.TakeRemote(ctx, to.of)
	})
}

// swapInside is the all-to-all of the ranks of this host.
func (h *Engine) swapInside(c *engine.Call, from, to parts) error {
	ranks, count := h.Hosts[h.Host], int(from.n/uint64(c.Type.Size()))
	block := to.block(ranks)
	if block != nil {
		return h.inside.AllToAll(lanes.PointerTo(from.block(ranks)), lanes.PointerTo(block), count, c.Type)
	}
	mine := from.load(ranks, &h.Spaces[crosshost.SpacePadded])
	ours := h.Spaces[crosshost.SpaceBlock].Bytes(uint64(len(ranks)) * from.n)
	if err := h.inside.AllToAll(lanes.PointerTo(mine), lanes.PointerTo(ours), count, c.Type); err != nil {
		return err
	}
	to.store(ranks, ours)
	return nil
}
