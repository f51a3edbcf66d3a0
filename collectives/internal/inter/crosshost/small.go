package crosshost

import (
	"context"
)

// SmallExchange is how small parts go from host to host: in slots, announced by a signal, or in
// packets.
type SmallExchange interface {
	// Begin starts the call's exchange, and returns memory for what all counterparts are
	// to get.
	Begin(bytes uint64) []byte
	// Give sends to a counterpart. No rank has more than one message under way to another,
	// so no ranks wait in a circle.
	Give(ctx context.Context, to int, b []byte) error
	// Receive hands on what the counterpart on another host has given, and forgets it then.
	Receive(ctx context.Context, g int, bytes uint64, use func(b []byte)) error
}

// Signals is a small exchange by slots and signals.
type Signals struct{ *Level }

// Begin returns the memory from which slots of the counterparts are filled.
func (w Signals) Begin(bytes uint64) []byte { return w.Spaces[SpaceBlock].Bytes(bytes) }

// Give puts b into a slot of the counterpart, with a signal.
func (w Signals) Give(ctx context.Context, to int, b []byte) error { return w.Lanes.Post(ctx, to, b) }

// Receive waits for the signal of the counterpart on host g, and frees the slot after use.
func (w Signals) Receive(ctx context.Context, g int, bytes uint64, use func(b []byte)) error {
	return w.Lanes.Take(ctx, w.Counterpart(g), bytes, use)
}

// exchange gives mine, which all ranks of the host have, to counterparts on all other
// hosts, and hands on what they give of the others.
func (h *Level) exchange(ctx context.Context, w SmallExchange, mine func(to int) []byte, bytes func(g int) uint64, use func(g int, b []byte)) error {
	if err := h.Counterparts(func(to int) error { return w.Give(ctx, to, mine(to)) }); err != nil {
		return err
	}
	return h.OtherHosts(func(g int) error {
		return w.Receive(ctx, g, bytes(g), func(b []byte) { use(g, b) })
	})
}

// ExchangeSum is an exchange that reduces what hosts have, in their order.
func (h *Level) ExchangeSum(ctx context.Context, w SmallExchange, r Reduction, own []byte, mine func(to int) []byte, out []byte) error {
	if err := h.Counterparts(func(to int) error { return w.Give(ctx, to, mine(to)) }); err != nil {
		return err
	}
	sum := h.startSum(r, uint64(len(out)))
	for g := range h.Hosts {
		if g == h.Host {
			sum.Add(own)
			continue
		}
		if err := w.Receive(ctx, g, uint64(len(out)), sum.Add); err != nil {
			return err
		}
	}
	sum.Store(out)
	return nil
}

// ExchangeNothing is for a barrier.
func (h *Level) ExchangeNothing(ctx context.Context, w SmallExchange) error {
	nothing := w.Begin(0)
	return h.exchange(ctx, w, func(int) []byte { return nothing }, func(int) uint64 { return 0 }, func(int, []byte) {})
}

// SumSmall reduces what the hosts send to the root.
func (h *Level) SumSmall(ctx context.Context, r Reduction, own, out []byte) error {
	return h.Sum(r, own, out, func(g int, add func(b []byte)) error {
		return h.Lanes.Take(ctx, h.Counterpart(g), uint64(len(own)), add)
	})
}

// ExchangeBlocks gives the parts of this host's ranks to the others, and puts all parts
// where they belong.
func (h *Level) ExchangeBlocks(ctx context.Context, w SmallExchange, part uint64, own, out []byte) error {
	block := func(g int) uint64 { return uint64(len(h.Hosts[g])) * part }
	place := func(g int, b []byte) {
		for i, rank := range h.Hosts[g] {
			copy(out[uint64(rank)*part:][:part], b[uint64(i)*part:])
		}
	}
	place(h.Host, own)
	return h.exchange(ctx, w, func(int) []byte { return own }, block, place)
}
