package twolevel

import (
	"context"
	"unsafe"

	"github.com/mscclpp-go/mscclpp/collectives/internal/engine"
	"github.com/mscclpp-go/mscclpp/collectives/internal/inter/crosshost"
	"github.com/mscclpp-go/mscclpp/collectives/internal/inter/lanes"
	"github.com/mscclpp-go/mscclpp/collectives/internal/inter/placement"
)

// Calls with a root: one host alone gives, or gets.

// broadcastSmall spreads the data on the root's host, whose ranks give it to all others.
func (h *Engine) broadcastSmall(ctx context.Context, c *engine.Call) error {
	bytes := c.Count * uint64(c.Type.Size())
	if bytes == 0 {
		return nil
	}
	out := lanes.View(c.Output, bytes)
	home, index := h.Find(c.Root)
	if home != h.Host {
		return h.Lanes.Take(ctx, h.Counterpart(home), bytes, func(b []byte) { copy(out, b) })
	}
	if err := h.inside.Broadcast(c.Input, c.Output, int(c.Count), c.Type, index); err != nil {
		return err
	}
	return h.Counterparts(func(to int) error { return h.Lanes.Post(ctx, to, out) })
}

// broadcastLarge spreads each piece on the root's host, whose ranks send a share each;
// the other hosts gather the shares. In two steps each of them gets slices, and gives
// them to the others, before it gathers the piece in front.
func (h *Engine) broadcastLarge(ctx context.Context, c *engine.Call) error {
	element := uint64(c.Type.Size())
	size := h.PieceOf(c.Count, element)
	pieces := int((c.Count + size - 1) / size)
	split, _ := h.Stages(size, element)
	home, index := h.Find(c.Root)
	var under [3]crosshost.Piece
	for k := range pieces {
		at := uint64(k) * size
		x := &under[k%3]
		*x = crosshost.Piece{Direction: crosshost.Direction{Rooted: true, Gives: true, Home: home}, At: at, Count: min(size, c.Count-at)}
		own := h.Mine(x.Count)
		if h.Host == home {
			out := lanes.View(unsafe.Add(c.Output, at*element), x.Count*element)
			in := lanes.PointerTo(out)
			if h.Index == index {
				in = unsafe.Add(c.Input, at*element)
			}
			if err := h.inside.Broadcast(in, lanes.PointerTo(out), int(x.Count), c.Type, index); err != nil {
				return err
			}
			x.Share = out[own.From*element : own.To*element]
			if err := h.Send(ctx, x, element, split); err != nil {
				return err
			}
			continue
		}
		room := h.Spaces[crosshost.SpaceShare+k%3].Bytes(placement.Share(x.Count, h.Size()) * element)
		x.Share = room[:(own.To-own.From)*element]
		if err := h.Pass(ctx, x, element, split); err != nil {
			return err
		}
		if k > 0 {
			if err := h.got(ctx, c, &under[(k-1)%3], split); err != nil {
				return err
			}
		}
	}
	if h.Host == home || pieces == 0 {
		return nil
	}
	return h.got(ctx, c, &under[(pieces-1)%3], split)
}

// got gathers a piece, of which the other hosts have slices.
func (h *Engine) got(ctx context.Context, c *engine.Call, x *crosshost.Piece, split bool) error {
	element := uint64(c.Type.Size())
	if split {
		if err := h.TakeSlices(ctx, x, element); err != nil {
			return err
		}
	}
	return h.gather(c, x.Share, x.Count, lanes.View(unsafe.Add(c.Output, x.At*element), x.Count*element))
}

// reduceSmall reduces on each host, at the rank that sends to the root; on its own host,
// at the root.
func (h *Engine) reduceSmall(ctx context.Context, c *engine.Call) error {
	bytes := c.Count * uint64(c.Type.Size())
	if bytes == 0 {
		return nil
	}
	home, index := h.Find(c.Root)
	own := h.Spaces[crosshost.SpaceBlock].Bytes(bytes)
	op, scale := h.Inner(c.Op, c.Scale)
	sender := index % h.Size()
	if err := h.inside.Reduce(c.Input, lanes.PointerTo(own), int(c.Count), c.Type, op, sender, scale); err != nil {
		return err
	}
	switch {
	case h.Index != sender:
		return nil
	case h.Host != home:
		return h.Lanes.Post(ctx, c.Root, own)
	}
	return h.SumSmall(ctx, reduction(c), own, lanes.View(c.Output, bytes))
}

// reduceLarge is an all-reduce of which the root's host alone gets the sum: the same bits.
func (h *Engine) reduceLarge(ctx context.Context, c *engine.Call) error {
	home, _ := h.Find(c.Root)
	return h.reduceTo(ctx, c, crosshost.Direction{Rooted: true, Home: home})
}
