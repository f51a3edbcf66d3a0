package twolevel

import (
	"context"

	"github.com/mscclpp-go/mscclpp/collectives/internal/engine"
	"github.com/mscclpp-go/mscclpp/collectives/internal/inter/crosshost"
	"github.com/mscclpp-go/mscclpp/collectives/internal/inter/lanes"
	"github.com/mscclpp-go/mscclpp/collectives/internal/inter/placement"
)

// Some buffers hold a part for every rank. The part of them for the ranks of one host is a block,
// and a vector like that of an all-reduce: the ranks of another host have an even share of it each,
// which need not be the part of one rank.

// parts is such a buffer, or the piece of each part that is worked on.
type parts struct {
	all   []byte
	part  uint64 // bytes of a rank
	at, n uint64 // of the piece
}

// of is the piece of one rank.
func (p parts) of(rank int) []byte { return p.all[uint64(rank)*p.part+p.at:][:p.n] }

// block is that of some ranks where it lies, or nil if it is not in one place.
func (p parts) block(ranks []int) []byte {
	if p.n != p.part {
		return nil
	}
	for i, r := range ranks {
		if r != ranks[0]+i {
			return nil
		}
	}
	return p.all[uint64(ranks[0])*p.part:][:uint64(len(ranks))*p.part]
}

// load makes a block in room, if there is none.
func (p parts) load(ranks []int, room *crosshost.Space) []byte {
	if b := p.block(ranks); b != nil {
		return b
	}
	b := room.Bytes(uint64(len(ranks)) * p.n)
	for i, r := range ranks {
		copy(b[uint64(i)*p.n:], p.of(r))
	}
	return b
}

// store takes a block apart.
func (p parts) store(ranks []int, b []byte) {
	for i, r := range ranks {
		copy(p.of(r), b[uint64(i)*p.n:])
	}
}

// pieces calls f for each piece of the parts.
func (h *Engine) pieces(all []byte, part, element uint64, f func(p parts) error) error {
	size := h.Lanes.Piece / element * element
	for at := uint64(0); at < part; at += size {
		if err := f(parts{all, part, at, min(size, part-at)}); err != nil {
			return err
		}
	}
	return nil
}

// reduceScatterLarge reduces, for each host, what its ranks are to get, inside this
// one; the shares of that go to the ranks that are to have them.
func (h *Engine) reduceScatterLarge(ctx context.Context, c *engine.Call) error {
	element := uint64(c.Type.Size())
	part := c.Count * element
	in, out := lanes.View(c.Input, part*uint64(h.Ranks())), lanes.View(c.Output, part)
	return h.pieces(in, part, element, func(p parts) error {
		reduced := func(g int) (count uint64, own []byte, err error) {
			block := p.load(h.Hosts[g], &h.Spaces[crosshost.SpaceBlock])
			count = uint64(len(block)) / element
			own = h.Spaces[crosshost.SpaceShare].Bytes(placement.Share(count, h.Size()) * element)
			return count, own, h.scatter(c, block, own)
		}
		err := h.OtherHosts(func(g int) error {
			count, own, err := reduced(g)
			if err != nil {
				return err
			}
			return h.SendTo(ctx, count, element, g, own)
		})
		if err != nil {
			return err
		}
		count, own, err := reduced(h.Host)
		if err != nil {
			return err
		}
		return h.SumShare(ctx, reduction(c), count, own, out[p.at:p.at+p.n])
	})
}

// allGatherLarge sends the part of this rank to the other hosts, where each rank
// receives a share of the block, and gathers the shares.
func (h *Engine) allGatherLarge(ctx context.Context, c *engine.Call) error {
	element := uint64(c.Type.Size())
	part := c.Count * element
	in, out := lanes.View(c.Input, part), lanes.View(c.Output, part*uint64(h.Ranks()))
	return h.pieces(out, part, element, func(p parts) error {
		own := in[p.at : p.at+p.n]
		count := func(g int) uint64 { return uint64(len(h.Hosts[g])) * p.n / element }
		if err := h.SendShare(ctx, crosshost.Direction{}, count(h.Host), element, own); err != nil {
			return err
		}
		if err := h.place(c, p, h.Host, own); err != nil {
			return err
		}
		return h.OtherHosts(func(g int) error {
			mine := h.Spaces[crosshost.SpaceShare].Bytes(placement.Share(count(g), h.Size()) * element)
			if err := h.TakeShare(ctx, count(g), element, g, mine); err != nil {
				return err
			}
			return h.place(c, p, g, mine)
		})
	})
}

// place gathers the shares of a block, and puts it where it belongs.
func (h *Engine) place(c *engine.Call, p parts, g int, own []byte) error {
	ranks := h.Hosts[g]
	count := uint64(len(ranks)) * p.n / uint64(c.Type.Size())
	if b := p.block(ranks); b != nil {
		return h.gather(c, own, count, b)
	}
	b := h.Spaces[crosshost.SpaceBlock].Bytes(uint64(len(ranks)) * p.n)
	if err := h.gather(c, own, count, b); err != nil {
		return err
	}
	p.store(ranks, b)
	return nil
}
