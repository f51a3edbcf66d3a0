package crosshost

import (
	"context"

	"github.com/mscclpp-go/mscclpp/collectives/internal/inter/placement"
)

// An exchange between hosts in two steps: each element is reduced on one host, and the result goes back
// to all others. A vector is cut in segments, each of which one rank of every host has in its share,
// wherever the length allows it; a segment is cut in slices, one for each host to reduce, in proportion
// to its ranks. So all ranks have the same part of the work, whatever the hosts look like. The parts
// that a rank has of the slices of a host are packed and travel as one message to each rank over there
// that has some of the same.
//
// Where one host alone gives, or gets, the others have all slices: what leaves it, or
// comes to it, does so once, however many they are.

// slice is where in a segment that of a host is, in elements.
func (h *Level) slice(x *Piece, g int) (segment, from, size uint64) {
	segment = placement.Share(x.Count, int(h.Cuts))
	first, n := 0, 0
	if !x.slices(g) {
		return segment, 0, 0
	}
	for i, ranks := range h.Hosts {
		if !x.slices(i) {
			continue
		}
		if i < g {
			first += len(ranks)
		}
		n += len(ranks)
	}
	each := placement.Share(segment, n)
	from = min(uint64(first)*each, segment)
	return segment, from, min(uint64(len(h.Hosts[g]))*each, segment-from)
}

// sliced is how many of the first elements belong to slices of a host.
func (h *Level) sliced(x *Piece, g int, elements uint64) uint64 {
	segment, from, size := h.slice(x, g)
	rest := elements % segment
	return elements/segment*size + min(rest-min(rest, from), size)
}

// cut calls f for what of a span belongs to slices of a host.
func (h *Level) cut(x *Piece, g int, s placement.Span, f func(from, to uint64)) {
	segment, begin, size := h.slice(x, g)
	for at := s.From / segment * segment; at < s.To; at += segment {
		from, to := max(s.From, at+begin), min(s.To, at+begin+size)
		if from < to {
			f(from, to)
		}
	}
}

// pack puts together what this rank's share has of the slices of a host.
func (h *Level) pack(x *Piece, element uint64, g int, room *Space) []byte {
	own := h.Mine(x.Count)
	all := (h.sliced(x, g, own.To) - h.sliced(x, g, own.From)) * element
	var packed []byte
	h.cut(x, g, own, func(from, to uint64) {
		part := x.Share[(from-own.From)*element : (to-own.From)*element]
		if uint64(len(part)) == all {
			packed = part // where it lies
			return
		}
		if packed == nil {
			packed = room.Bytes(all)[:0]
		}
		packed = append(packed, part...)
	})
	return packed
}

// unpack is the reverse for a part of a share.
func (h *Level) unpack(x *Piece, element uint64, g int, s placement.Span, packed []byte) {
	own := h.Mine(x.Count).From
	h.cut(x, g, s, func(from, to uint64) {
		packed = packed[copy(x.Share[(from-own)*element:(to-own)*element], packed):]
	})
}

// common calls f for the ranks of a host that have some of what this one has of the
// slices of reducer, with where that is in the packed slices, in bytes.
func (h *Level) common(x *Piece, element uint64, g, reducer int, f func(s placement.Span, from, to uint64) error) error {
	begin := h.sliced(x, reducer, h.Mine(x.Count).From)
	return h.Overlaps(x.Count, g, func(s placement.Span) error {
		from, to := h.sliced(x, reducer, s.From)-begin, h.sliced(x, reducer, s.To)-begin
		if from == to { // both ends know
			return nil
		}
		return f(s, from*element, to*element)
	})
}

// sendSlices is the first step: what this rank has of the slices of each host goes there.
func (h *Level) sendSlices(ctx context.Context, x *Piece, element uint64) error {
	return h.OtherHosts(func(g int) error {
		packed := h.pack(x, element, g, &h.Spaces[SpaceBlock])
		return h.common(x, element, g, g, func(s placement.Span, from, to uint64) error {
			return h.Lanes.Post(ctx, s.Rank, packed[from:to])
		})
	})
}

// Middle reduces what this rank has of the slices of its host, and is the first half of the second
// step: the result goes to the rank that has the same elsewhere.
func (h *Level) Middle(ctx context.Context, r Reduction, x *Piece) error {
	element := uint64(r.Type.Size())
	own := h.pack(x, element, h.Host, &h.Spaces[SpaceBlock])
	if len(own) == 0 {
		return nil
	}
	all := uint64(len(own))
	err := h.Sum(r, own, own, func(g int, add func(b []byte)) error {
		theirs := &h.Spaces[SpaceTheirs]
		whole := false
		err := h.common(x, element, g, h.Host, func(s placement.Span, from, to uint64) error {
			if whole = to-from == all; whole {
				return h.Lanes.Take(ctx, s.Rank, all, add)
			}
			return h.Lanes.Take(ctx, s.Rank, to-from, func(b []byte) { copy(theirs.Bytes(all)[from:to], b) })
		})
		if err == nil && !whole {
			add(theirs.Bytes(all))
		}
		return err
	})
	if err != nil {
		return err
	}
	h.unpack(x, element, h.Host, h.Mine(x.Count), own)
	return h.giveSlices(ctx, x, element, own)
}

// giveSlices hands the finished slices of this host to the ranks that are to have them.
func (h *Level) giveSlices(ctx context.Context, x *Piece, element uint64, own []byte) error {
	return h.OtherHosts(func(g int) error {
		if !x.Gets(g) {
			return nil
		}
		return h.common(x, element, g, h.Host, func(s placement.Span, from, to uint64) error {
			return h.Lanes.Post(ctx, s.Rank, own[from:to])
		})
	})
}

// TakeSlices is the second half: the finished slices of the other hosts.
func (h *Level) TakeSlices(ctx context.Context, x *Piece, element uint64) error {
	return h.OtherHosts(func(g int) error {
		return h.takeSlicesOf(ctx, x, element, g, g)
	})
}

// takeSlicesOf receives, from the ranks of a host, slices that are those of another, or
// its own.
func (h *Level) takeSlicesOf(ctx context.Context, x *Piece, element uint64, from, slices int) error {
	return h.common(x, element, from, slices, func(s placement.Span, begin, end uint64) error {
		return h.Lanes.Take(ctx, s.Rank, end-begin, func(b []byte) { h.unpack(x, element, slices, s, b) })
	})
}
