package collectives

import (
	"context"

	"github.com/mscclpp-go/mscclpp/collectives/internal/inter/lanes"
)

// What ranks of one host have for ranks of another is different for each pair, so that
// nothing can be added up or left out. What two levels save are messages: all that the
// ranks of a host have for one rank elsewhere goes there in one, from that rank's
// counterpart, who has collected it inside. It arrives where it belongs, and nothing has
// to be passed on. That moves everything inside first, so large parts go straight to
// where they belong, and only those between ranks of a host go by kernels.

// mostBundled is up to how many bytes of a host for one rank elsewhere go in one
// message.
const mostBundled = 32 << 10

// bundled is the size of a buffer, of an all-to-all, of which a message has that many
// bytes.
func (h *hierarchy) bundled() uint64 {
	return min(mostBundled, h.ports.Piece) * uint64(h.ports.Comm.Size()) / uint64(h.Most)
}

// bundle is how many bytes of each part are worked on at a time, on all hosts: so that
// the parts of a host for one rank fit a slot, and those for all ranks the memory that
// they pass through.
func (h *hierarchy) bundle(element uint64) uint64 {
	all := uint64(h.ports.Comm.Size() + len(h.Hosts)*h.Most) // with what is added to fill rounds
	room := min(regionBytes, h.blockBytes())
	return max(1, min(h.ports.Piece/uint64(h.Most), room/all)/element) * element
}

// swap gives each counterpart what the ranks of this host have for it, which all have
// the same size: of is what rank k has for the counterpart in a round. What others have
// for this rank goes to where to says.
func (h *hierarchy) swap(ctx context.Context, bytes uint64, of func(round uint64, k int) []byte, to func(rank int) []byte) error {
	round := uint64(0)
	err := h.Rounds(func(g, first int) error {
		now := round
		round++
		if first+h.Index >= len(h.Hosts[g]) {
			return nil
		}
		return h.ports.Write(ctx, h.Hosts[g][first+h.Index], uint64(h.Size())*bytes, func(room []byte) {
			for k := range h.Size() {
				copy(room[uint64(k)*bytes:], of(now, k))
			}
		})
	})
	if err != nil {
		return err
	}
	return h.OtherHosts(func(g int) error {
		ranks := h.Hosts[g]
		return h.ports.Take(ctx, h.Counterpart(g), uint64(len(ranks))*bytes, func(b []byte) {
			for k, rank := range ranks {
				copy(to(rank), b[uint64(k)*bytes:][:bytes])
			}
		})
	})
}

// allToAllSmall collects inside what the ranks of the host have for this rank and for
// its counterparts, in one step.
func (h *hierarchy) allToAllSmall(ctx context.Context, c *Call) error {
	element, n := uint64(c.Type.Size()), uint64(h.ports.Comm.Size())
	part := c.Count * element
	in, out := lanes.View(c.Input, n*part), lanes.View(c.Output, n*part)
	width := 1 + h.CountRounds()
	size := h.bundle(element)
	for at := uint64(0); at < part; at += size {
		bytes := min(size, part-at)
		from, to := parts{in, part, at, bytes}, parts{out, part, at, bytes}
		mine := h.spaces[spacePadded].bytes(uint64(h.Size()) * width * bytes)
		ours := h.spaces[spaceBlock].bytes(uint64(h.Size()) * width * bytes)
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
		if err := h.named(h.inside.AllToAll(pointerTo(mine), pointerTo(ours), int(width*bytes/element), c.Type, nil)); err != nil {
			return err
		}
		for k, rank := range h.Hosts[h.Host] {
			copy(to.of(rank), of(ours, k, 0))
		}
		if err := h.swap(ctx, bytes, func(round uint64, k int) []byte { return of(ours, k, 1+round) }, to.of); err != nil {
			return err
		}
	}
	return nil
}

// allToAllLarge has the parts for other hosts on their way while those for this one are
// exchanged inside.
func (h *hierarchy) allToAllLarge(ctx context.Context, c *Call) error {
	if err := h.ports.LinkAll(ctx); err != nil {
		return err
	}
	element, n := uint64(c.Type.Size()), uint64(h.ports.Comm.Size())
	part := c.Count * element
	in, out := lanes.View(c.Input, n*part), lanes.View(c.Output, n*part)
	return h.pieces(in, part, element, func(from parts) error {
		to := parts{out, part, from.at, from.n}
		if err := h.sendRemote(ctx, from.of); err != nil {
			return err
		}
		if err := h.swapInside(c, from, to); err != nil {
			return err
		}
		return h.takeRemote(ctx, to.of)
	})
}

// remote calls f for every rank of the other hosts: whom to send to, and whom to
// receive from.
func (h *hierarchy) remote(f func(to, from int) error) error {
	return h.ports.Others(func(to, from int) error {
		if h.Local[to] {
			to = -1
		}
		if h.Local[from] {
			from = -1
		}
		return f(to, from)
	})
}

// sendRemote posts to every rank of other hosts, beginning with those behind this one,
// so that not all talk to one.
func (h *hierarchy) sendRemote(ctx context.Context, of func(rank int) []byte) error {
	return h.remote(func(to, _ int) error {
		if to < 0 {
			return nil
		}
		return h.ports.Post(ctx, to, of(to))
	})
}

// takeRemote receives from all of them.
func (h *hierarchy) takeRemote(ctx context.Context, of func(rank int) []byte) error {
	return h.remote(func(_, from int) error {
		if from < 0 {
			return nil
		}
		to := of(from)
		return h.ports.Take(ctx, from, uint64(len(to)), func(b []byte) { copy(to, b) })
	})
}

// swapInside is the all-to-all of the ranks of this host.
func (h *hierarchy) swapInside(c *Call, from, to parts) error {
	ranks, count := h.Hosts[h.Host], int(from.n/uint64(c.Type.Size()))
	block := to.block(ranks)
	if block != nil {
		return h.named(h.inside.AllToAll(pointerTo(from.block(ranks)), pointerTo(block), count, c.Type, nil))
	}
	mine := from.load(ranks, &h.spaces[spacePadded])
	ours := h.spaces[spaceBlock].bytes(uint64(len(ranks)) * from.n)
	if err := h.named(h.inside.AllToAll(pointerTo(mine), pointerTo(ours), count, c.Type, nil)); err != nil {
		return err
	}
	to.store(ranks, ours)
	return nil
}
