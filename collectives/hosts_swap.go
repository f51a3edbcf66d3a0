package collectives

import (
	"context"

	"github.com/mscclpp-go/mscclpp/collectives/internal/inter/crosshost"
)

// All-to-all in two levels, as in hierarchy_swap.go. Many small copies would cost more
// than kernels, so what is meant for the ranks of another host is crosshost.Piece inside where
// it lies, one host after another, instead of being put together first.

// swapBlock exchanges inside what all ranks of the host have for some ranks, one of them
// for each of these; nobody's, where there are fewer. What this rank gets of it goes to.
func (t *trip) swapBlock(all uintptr, part, begin, bytes uint64, ranks []int, to uintptr) {
	h, c := t.ports.hierarchy, t.call
	from, there := t.block(all, part, begin, bytes, ranks)
	if !there || len(ranks) < h.Size() {
		from = t.place(placePadded)
		for i, rank := range ranks {
			t.copy(from+uintptr(uint64(i)*bytes), all+uintptr(uint64(rank)*part+begin), bytes)
		}
	}
	if t.err == nil {
		t.err = h.named(h.inside.AllToAll(at(from), at(to), int(bytes/uint64(c.Type.Size())), c.Type, &CallOptions{Stream: t.stream}))
	}
}

// swapInside is the all-to-all of the ranks of this host.
func (t *trip) swapInside(part, at, bytes uint64) {
	h, out := t.ports.hierarchy, address(t.call.Output)
	ranks := h.Hosts[h.Host]
	block, there := t.block(out, part, at, bytes, ranks)
	t.swapBlock(address(t.call.Input), part, at, bytes, ranks, block)
	for i, rank := range ranks {
		if !there {
			t.copy(out+uintptr(uint64(rank)*part+at), block+uintptr(uint64(i)*bytes), bytes)
		}
	}
}

// allToAllSmall exchanges what the ranks of the host have for their counterparts, and
// has the host swap it with what those have.
func (t *trip) allToAllSmall() {
	h, c := t.ports.hierarchy, t.call
	element := uint64(c.Type.Size())
	part, size, m := c.Count*element, h.BundleOf(element), uint64(h.Size())
	for at := uint64(0); at < part; at += size {
		bytes := min(size, part-at)
		in, out := t.region(forSending), t.region(forResults)
		round := uint64(0)
		_ = h.Rounds(func(g, first int) error {
			ranks := h.Hosts[g][first:min(first+h.Size(), len(h.Hosts[g]))]
			t.swapBlock(address(c.Input), part, at, bytes, ranks, t.place(placeBlock)+uintptr(round*m*bytes))
			round++
			return t.err
		})
		t.copy(in.addr, t.place(placeBlock), round*m*bytes)
		number := t.tell(func(ctx context.Context) error {
			return h.Swap(ctx, bytes, func(round uint64, k int) []byte { return in.bytes[(round*m+uint64(k))*bytes:][:bytes] },
				func(rank int) []byte { return out.bytes[uint64(rank)*bytes:][:bytes] })
		}, in, out)
		t.swapInside(part, at, bytes)
		t.await(number)
		t.results(out, part, at, bytes)
	}
}

// results copies what came from other hosts to the device.
func (t *trip) results(r *region, part, at, bytes uint64) {
	t.ports.hierarchy.Runs(bytes == part, func(first, n uint64) {
		t.copy(address(t.call.Output)+uintptr(first*part+at), r.addr+uintptr(first*bytes), n*bytes)
	})
}

// allToAllLarge has the host exchange the parts for ranks of other hosts directly. A
// piece is sent before the one before it has come.
func (t *trip) allToAllLarge() {
	h, c := t.ports.hierarchy, t.call
	element := uint64(c.Type.Size())
	part := c.Count * element
	size := max(1, min(h.ports.Piece, crosshost.RegionBytes/uint64(h.ports.Comm.Size()))/element) * element
	finish := func() {}
	for at := uint64(0); at < part; at += size {
		bytes := min(size, part-at)
		in, out := t.region(forSending), t.region(forResults)
		h.Runs(bytes == part, func(first, n uint64) {
			t.copy(in.addr+uintptr(first*bytes), address(c.Input)+uintptr(first*part+at), n*bytes)
		})
		number := t.tell(func(ctx context.Context) error {
			if err := h.SendRemote(ctx, func(rank int) []byte { return in.bytes[uint64(rank)*bytes:][:bytes] }); err != nil {
				return err
			}
			return h.TakeRemote(ctx, func(rank int) []byte { return out.bytes[uint64(rank)*bytes:][:bytes] })
		}, in, out)
		t.swapInside(part, at, bytes)
		finish()
		finish = func() {
			t.await(number)
			t.results(out, part, at, bytes)
		}
	}
	finish()
}
