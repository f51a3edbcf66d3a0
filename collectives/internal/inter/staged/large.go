package staged

import (
	"context"

	"github.com/mscclpp-go/mscclpp/collectives/internal/inter/crosshost"
	"github.com/mscclpp-go/mscclpp/collectives/internal/inter/enqueue"
)

// Calls in two levels, for vectors that are large: kernels reduce and gather inside the
// host, as in twolevel/large.go, and what goes between hosts passes through the host.

func (t *call) allReduceLarge() { t.reduceTo(crosshost.Direction{}) }

// reduceTo takes each piece through the same stages as on the host.
func (t *call) reduceTo(course crosshost.Direction) {
	h, c := t.h, t.Call
	element := uint64(c.Type.Size())
	size := h.PieceOf(c.Count, element)
	pieces := int((c.Count + size - 1) / size)
	split, behind := h.Stages(size, element)
	var under [3]*stagedPiece
	for k := range pieces + behind {
		if k < pieces {
			at := uint64(k) * size
			x := &stagedPiece{crosshost.Piece{Direction: course, At: at, Count: min(size, c.Count-at)}, t.region(forResults)}
			t.Scatter(enqueue.Address(c.Input)+uintptr(at*element), x.Count, t.Place(k%3))
			x.Share = x.bytes[:t.OwnBytes(x.Count)]
			t.Copy(x.addr, t.Place(k%3), uint64(len(x.Share)))
			t.onHost(func(ctx context.Context) error { return h.Send(ctx, &x.Piece, element, split) }, x.region)
			under[k%3] = x
		}
		if j := k - 1; split && j >= 0 && j < pieces {
			x := under[j%3]
			t.onHost(func(ctx context.Context) error { return h.Middle(ctx, t.reduction(), &x.Piece) }, x.region)
		}
		if j := k - behind; j >= 0 && course.Gets(h.Host) {
			x := under[j%3]
			t.await(t.onHost(func(ctx context.Context) error { return h.Complete(ctx, t.reduction(), &x.Piece, split) }, x.region))
			t.Copy(t.Place(j%3), x.addr, uint64(len(x.Share)))
			out := enqueue.Address(c.Output) + uintptr(x.At*element)
			if course.Spares(h.Rank, c.Root) {
				out = t.Place(enqueue.PlacePadded)
			}
			t.Gather(t.Place(j%3), x.Count, out)
		}
	}
}

// stagedPiece is a piece under way, and its region.
type stagedPiece struct {
	crosshost.Piece
	*region
}

// reduceScatterLarge reduces, for each host, what its ranks are to get, and sends the shares of
// that to the ranks that are to have them. While one piece is between hosts, the next is reduced.
func (t *call) reduceScatterLarge() {
	h, c := t.h, t.Call
	element := uint64(c.Type.Size())
	part, size := c.Count*element, h.PieceOfPart(element)
	finish := func() {}
	for from := uint64(0); from < part; from += size {
		bytes := min(size, part-from)
		reduce := func(g int, r *region) (count uint64, own []byte) {
			ranks := h.Hosts[g]
			block, there := t.Block(enqueue.Address(c.Input), part, from, bytes, ranks)
			for i, rank := range ranks {
				if !there {
					t.Copy(block+uintptr(uint64(i)*bytes), enqueue.Address(c.Input)+uintptr(uint64(rank)*part+from), bytes)
				}
			}
			count = uint64(len(ranks)) * bytes / element
			t.Scatter(block, count, t.Place(enqueue.PlaceShare))
			own = r.bytes[:t.OwnBytes(count)]
			t.Copy(r.addr, t.Place(enqueue.PlaceShare), uint64(len(own)))
			return count, own
		}
		_ = h.OtherHosts(func(g int) error {
			r := t.region(forSending)
			count, own := reduce(g, r)
			t.onHost(func(ctx context.Context) error { return h.SendTo(ctx, count, element, g, own) }, r)
			return t.Err
		})
		r := t.region(forResults)
		count, own := reduce(h.Host, r)
		number := t.onHost(func(ctx context.Context) error { return h.SumShare(ctx, t.reduction(), count, own, own) }, r)
		finish()
		finish = func() {
			t.await(number)
			t.Copy(enqueue.Address(c.Output)+uintptr(from), r.addr, uint64(len(own)))
		}
	}
	finish()
}

// allGatherLarge sends the part of this rank to the other hosts, where each rank
// receives a share of the block, and gathers the shares. A piece is sent before the one
// before it is gathered.
func (t *call) allGatherLarge() {
	h, c := t.h, t.Call
	element := uint64(c.Type.Size())
	part, size := c.Count*element, h.PieceOfPart(element)
	finish := func() {}
	for from := uint64(0); from < part; from += size {
		bytes := min(size, part-from)
		count := func(g int) uint64 { return uint64(len(h.Hosts[g])) * bytes / element }
		r := t.region(forSending)
		t.Copy(r.addr, enqueue.Address(c.Input)+uintptr(from), bytes)
		t.onHost(func(ctx context.Context) error {
			return h.SendShare(ctx, crosshost.Direction{}, count(h.Host), element, r.bytes[:bytes])
		}, r)
		finish()
		finish = func() {
			t.GatherBlock(h.Host, enqueue.Address(c.Input)+uintptr(from), part, from, bytes)
			_ = h.OtherHosts(func(g int) error {
				r := t.region(forResults)
				own := r.bytes[:t.OwnBytes(count(g))]
				t.await(t.onHost(func(ctx context.Context) error { return h.TakeShare(ctx, count(g), element, g, own) }, r))
				t.Copy(t.Place(enqueue.PlaceShare), r.addr, uint64(len(own)))
				t.GatherBlock(g, t.Place(enqueue.PlaceShare), part, from, bytes)
				return t.Err
			})
		}
	}
	finish()
}
