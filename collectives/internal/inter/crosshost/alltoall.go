package crosshost

import (
	"context"
)

// Swap gives each counterpart what the ranks of this host have for it, which all have the same
// size: of is what rank k has for the counterpart in a round. The parts that others have for this
// rank go to where `to` says.
func (h *Level) Swap(ctx context.Context, bytes uint64, of func(round uint64, k int) []byte, to func(rank int) []byte) error {
	round := uint64(0)
	err := h.Rounds(func(g, first int) error {
		now := round
		round++
		if first+h.Index >= len(h.Hosts[g]) {
			return nil
		}
		return h.Lanes.Write(ctx, h.Hosts[g][first+h.Index], uint64(h.Size())*bytes, func(room []byte) {
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
		return h.Lanes.Take(ctx, h.Counterpart(g), uint64(len(ranks))*bytes, func(b []byte) {
			for k, rank := range ranks {
				copy(to(rank), b[uint64(k)*bytes:][:bytes])
			}
		})
	})
}

// remote calls f for every rank of the other hosts: whom to send to, and whom to
// Receive from.
func (h *Level) remote(f func(to, from int) error) error {
	return h.Lanes.Others(func(to, from int) error {
		if h.Local[to] {
			to = -1
		}
		if h.Local[from] {
			from = -1
		}
		return f(to, from)
	})
}

// SendRemote posts to every rank of other hosts, beginning with those behind this one,
// so that not all talk to one.
func (h *Level) SendRemote(ctx context.Context, of func(rank int) []byte) error {
	return h.remote(func(to, _ int) error {
		if to < 0 {
			return nil
		}
		return h.Lanes.Post(ctx, to, of(to))
	})
}

// TakeRemote receives from all of them.
func (h *Level) TakeRemote(ctx context.Context, of func(rank int) []byte) error {
	return h.remote(func(_, from int) error {
		if from < 0 {
			return nil
		}
		to := of(from)
		return h.Lanes.Take(ctx, from, uint64(len(to)), func(b []byte) { copy(to, b) })
	})
}
