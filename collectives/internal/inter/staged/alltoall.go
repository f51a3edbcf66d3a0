package staged

import (
	"context"

	"github.com/mscclpp-go/mscclpp/collectives/internal/inter/crosshost"
	"github.com/mscclpp-go/mscclpp/collectives/internal/inter/enqueue"
)

// All-to-all in two levels, as in twolevel/alltoall.go. Many small copies would cost more
// than kernels, so what is meant for the ranks of another host is crosshost.Piece inside where
// it lies, one host after another, instead of being put together first.

// allToAllSmall exchanges what the ranks of the host have for their counterparts, and
// has the host swap it with what those have.
func (t *call) allToAllSmall() {
	h, c := t.h, t.Call
	element := uint64(c.Type.Size())
	part, size, m := c.Count*element, h.BundleOf(element), uint64(h.Size())
	for at := uint64(0); at < part; at += size {
		bytes := min(size, part-at)
		in, out := t.region(forSending), t.region(forResults)
		round := uint64(0)
		_ = h.Rounds(func(g, first int) error {
			ranks := h.Hosts[g][first:min(first+h.Size(), len(h.Hosts[g]))]
			t.SwapBlock(enqueue.Address(c.Input), part, at, bytes, ranks, t.Place(enqueue.PlaceBlock)+uintptr(round*m*bytes))
			round++
			return t.Err
		})
		t.Copy(in.addr, t.Place(enqueue.PlaceBlock), round*m*bytes)
		number := t.onHost(func(ctx context.Context) error {
			return h.Swap(ctx, bytes, func(round uint64, k int) []byte { return in.bytes[(round*m+uint64(k))*bytes:][:bytes] },
				func(rank int) []byte { return out.bytes[uint64(rank)*bytes:][:bytes] })
		}, in, out)
		t.SwapInside(part, at, bytes)
		t.await(number)
		t.results(out, part, at, bytes)
	}
}

// results copies what came from other hosts to the device.
func (t *call) results(r *region, part, at, bytes uint64) {
	t.h.Runs(bytes == part, func(first, n uint64) {
		t.Copy(enqueue.Address(t.Call.Output)+uintptr(first*part+at), r.addr+uintptr(first*bytes), n*bytes)
	})
}

// allToAllLarge has the host exchange the parts for ranks of other hosts directly. A
// piece is sent before the one before it has come.
func (t *call) allToAllLarge() {
	h, c := t.h, t.Call
	element := uint64(c.Type.Size())
	part := c.Count * element
	size := max(1, min(h.Slot, crosshost.RegionBytes/uint64(h.Ranks()))/element) * element
	finish := func() {}
	for at := uint64(0); at < part; at += size {
		bytes := min(size, part-at)
		in, out := t.region(forSending), t.region(forResults)
		h.Runs(bytes == part, func(first, n uint64) {
			t.Copy(in.addr+uintptr(first*bytes), enqueue.Address(c.Input)+uintptr(first*part+at), n*bytes)
		})
		number := t.onHost(func(ctx context.Context) error {
			if err := h.SendRemote(ctx, func(rank int) []byte { return in.bytes[uint64(rank)*bytes:][:bytes] }); err != nil {
				return err
			}
			return h.TakeRemote(ctx, func(rank int) []byte { return out.bytes[uint64(rank)*bytes:][:bytes] })
		}, in, out)
		t.SwapInside(part, at, bytes)
		finish()
		finish = func() {
			t.await(number)
			t.results(out, part, at, bytes)
		}
	}
	finish()
}
