package crosshost

import (
	"context"

	"github.com/mscclpp-go/mscclpp/collectives/internal/inter/placement"
)

// Send gives what this rank has of a piece to the other hosts.
func (h *Level) Send(ctx context.Context, x *Piece, element uint64, split bool) error {
	if !split {
		return h.SendShare(ctx, x.Direction, x.Count, element, x.Share)
	}
	return h.sendSlices(ctx, x, element)
}

// Complete makes this rank's share of a piece the result, where that is wanted.
func (h *Level) Complete(ctx context.Context, r Reduction, x *Piece, split bool) error {
	if !x.Gets(h.Host) {
		return nil
	}
	if !split {
		return h.SumShare(ctx, r, x.Count, x.Share, x.Share)
	}
	return h.TakeSlices(ctx, x, uint64(r.Type.Size()))
}

// SumShare reduces what the hosts have of this rank's share of a vector.
func (h *Level) SumShare(ctx context.Context, r Reduction, count uint64, own, to []byte) error {
	if len(own) == 0 {
		return nil
	}
	return h.Sum(r, own, to, func(g int, add func(b []byte)) error {
		theirs := h.Spaces[SpaceTheirs].Bytes(uint64(len(own)))
		if err := h.TakeShare(ctx, count, uint64(r.Type.Size()), g, theirs); err != nil {
			return err
		}
		add(theirs)
		return nil
	})
}

// SendShare gives this rank's share of a vector to those of the other hosts that have
// some of it, and are to have it.
func (h *Level) SendShare(ctx context.Context, c Direction, count, element uint64, b []byte) error {
	return h.OtherHosts(func(g int) error {
		if !c.Gets(g) {
			return nil
		}
		return h.SendTo(ctx, count, element, g, b)
	})
}

// SendTo gives those of one host what they have of this share.
func (h *Level) SendTo(ctx context.Context, count, element uint64, g int, b []byte) error {
	from := h.Mine(count).From
	return h.Overlaps(count, g, func(s placement.Span) error {
		return h.Lanes.Post(ctx, s.Rank, b[(s.From-from)*element:(s.To-from)*element])
	})
}

// TakeShare receives what the ranks of another host have of this rank's share.
func (h *Level) TakeShare(ctx context.Context, count, element uint64, g int, to []byte) error {
	from := h.Mine(count).From
	return h.Overlaps(count, g, func(s placement.Span) error {
		at := to[(s.From-from)*element : (s.To-from)*element]
		return h.Lanes.Take(ctx, s.Rank, uint64(len(at)), func(b []byte) { copy(at, b) })
	})
}

// Pass takes what the root's host has sent of a piece: slices go on to the other hosts.
func (h *Level) Pass(ctx context.Context, x *Piece, element uint64, split bool) error {
	if !split {
		return h.TakeShare(ctx, x.Count, element, x.Home, x.Share)
	}
	if err := h.takeSlicesOf(ctx, x, element, x.Home, h.Host); err != nil {
		return err
	}
	return h.giveSlices(ctx, x, element, h.pack(x, element, h.Host, &h.Spaces[SpaceBlock]))
}
