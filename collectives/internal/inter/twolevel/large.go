package twolevel

import (
	"context"
	"unsafe"

	"github.com/mscclpp-go/mscclpp/collectives/internal/engine"
	"github.com/mscclpp-go/mscclpp/collectives/internal/inter/crosshost"
	"github.com/mscclpp-go/mscclpp/collectives/internal/inter/lanes"
	"github.com/mscclpp-go/mscclpp/collectives/internal/inter/placement"
)

func (h *Engine) allReduceLarge(ctx context.Context, c *engine.Call) error {
	return h.reduceTo(ctx, c, crosshost.Direction{})
}

// reduceTo takes each piece through two stages or three:
//
//	begin   a reduce-scatter inside the host; the shares are sent to the other hosts
//	middle  in two steps alone: this rank's slices are added up, and go to the hosts that get them
//	end     the share is completed by what others sent, and an all-gather inside
//
// While a piece is between hosts, the next is begun. A rank is never two pieces ahead of
// another of its host, nor of those on other hosts that it exchanges with, so that a slot is
// free before it is needed. A root waits for those, and they only for each other.
func (h *Engine) reduceTo(ctx context.Context, c *engine.Call, course crosshost.Direction) error {
	element := uint64(c.Type.Size())
	size := h.PieceOf(c.Count, element)
	pieces := int((c.Count + size - 1) / size)
	split, behind := h.Stages(size, element)
	var under [3]crosshost.Piece
	for k := range pieces + behind {
		if k < pieces {
			at := uint64(k) * size
			room := h.Spaces[crosshost.SpaceShare+k%3].Bytes(placement.Share(size, h.Size()) * element)
			under[k%3] = crosshost.Piece{Direction: course, At: at, Count: min(size, c.Count-at), Share: room}
			if err := h.begin(ctx, c, &under[k%3], split); err != nil {
				return err
			}
		}
		if j := k - 1; split && j >= 0 && j < pieces {
			if err := h.Middle(ctx, reduction(c), &under[j%3]); err != nil {
				return err
			}
		}
		if j := k - behind; j >= 0 {
			if err := h.end(ctx, c, &under[j%3], split); err != nil {
				return err
			}
		}
	}
	return nil
}

// begin reduces a piece inside the host, and sends this rank's share.
func (h *Engine) begin(ctx context.Context, c *engine.Call, x *crosshost.Piece, split bool) error {
	element := uint64(c.Type.Size())
	if err := h.scatter(c, lanes.View(unsafe.Add(c.Input, x.At*element), x.Count*element), x.Share); err != nil {
		return err
	}
	own := h.Mine(x.Count)
	x.Share = x.Share[:(own.To-own.From)*element]
	return h.Send(ctx, x, element, split)
}

// end completes this rank's share, and gathers the shares of the host. Kernels that gather
// do it for all of a host, where a root is alone in having an output.
func (h *Engine) end(ctx context.Context, c *engine.Call, x *crosshost.Piece, split bool) error {
	if err := h.Complete(ctx, reduction(c), x, split); err != nil || !x.Gets(h.Host) {
		return err
	}
	element := uint64(c.Type.Size())
	if x.Spares(h.Rank, c.Root) {
		return h.gather(c, x.Share, x.Count, h.Spaces[crosshost.SpacePadded].Bytes(x.Count*element))
	}
	return h.gather(c, x.Share, x.Count, lanes.View(unsafe.Add(c.Output, x.At*element), x.Count*element))
}

// scatter reduces a vector inside the host. This rank's share goes to room, which has
// space for the largest.
func (h *Engine) scatter(c *engine.Call, in, room []byte) error {
	element := uint64(c.Type.Size())
	count := uint64(len(in)) / element
	each := placement.Share(count, h.Size())
	if whole := each * uint64(h.Size()); whole != count {
		padded := h.Spaces[crosshost.SpacePadded].Bytes(whole * element)
		clear(padded[copy(padded, in):])
		in = padded
	}
	op, scale := h.Inner(c.Op, c.Scale)
	return h.inside.ReduceScatter(lanes.PointerTo(in), lanes.PointerTo(room), int(each), c.Type, op, scale)
}

// gather puts the shares of the ranks of the host together. Memory for a share is that
// of the largest, whatever it holds.
func (h *Engine) gather(c *engine.Call, own []byte, count uint64, out []byte) error {
	element := uint64(c.Type.Size())
	each := placement.Share(count, h.Size())
	to, whole := out, each*uint64(h.Size())
	if whole != count {
		to = h.Spaces[crosshost.SpacePadded].Bytes(whole * element)
	}
	if err := h.inside.AllGather(lanes.PointerTo(own), lanes.PointerTo(to), int(each), c.Type); err != nil {
		return err
	}
	if whole != count {
		copy(out, to)
	}
	return nil
}
