package collectives

import (
	"context"
	"fmt"

	"github.com/mscclpp-go/mscclpp/collectives/internal/inter/crosshost"
	"github.com/mscclpp-go/mscclpp/collectives/internal/inter/placement"
)

// Calls in two levels, for vectors that are large: kernels reduce and gather inside the
// host, as in hierarchy_large.go, and what goes between hosts passes through the host.

// Memory of the device for pieces: three shares that are under way, a block, and a block
// that can be divided evenly.
const (
	placeShare  = 0
	placeBlock  = 3
	placePadded = 4
)

// place is where one of them is.
func (t *trip) place(i int) uintptr {
	h := t.ports.hierarchy
	at := t.scratch.Addr() + uintptr(min(i, placeBlock)*(crosshost.RegionBytes+crosshost.Slack))
	if i == placePadded {
		at += uintptr(h.BlockBytes())
	}
	return at
}

// prepare allocates it.
func (k *courier) prepare(h *hierarchy) (err error) {
	if k != nil {
		k.scratch, err = k.device.Alloc(placeBlock*(crosshost.RegionBytes+crosshost.Slack) + 2*h.BlockBytes())
	}
	if err != nil {
		return fmt.Errorf("memory for pieces: %w", err)
	}
	return nil
}

// scatter reduces a vector inside the host. This rank's share goes to room.
func (t *trip) scatter(in uintptr, count uint64, room uintptr) {
	h, c := t.ports.hierarchy, t.call
	element := uint64(c.Type.Size())
	each := placement.Share(count, h.Size())
	if each*uint64(h.Size()) != count {
		padded := t.place(placePadded) // what is behind the vector does not matter
		t.copy(padded, in, count*element)
		in = padded
	}
	if t.err == nil {
		op, o := h.innerOp(c)
		t.err = h.named(h.inside.ReduceScatter(at(in), at(room), int(each), c.Type, op, o))
	}
}

// gather puts the shares of the ranks of the host together.
func (t *trip) gather(own uintptr, count uint64, out uintptr) {
	h, c := t.ports.hierarchy, t.call
	each, to := placement.Share(count, h.Size()), out
	if each*uint64(h.Size()) != count {
		to = t.place(placePadded)
	}
	if t.err == nil {
		t.err = h.named(h.inside.AllGather(at(own), at(to), int(each), c.Type, &CallOptions{Stream: t.stream}))
	}
	t.copy(out, to, count*uint64(c.Type.Size()))
}

// ownBytes is the size of this rank's share of a vector.
func (t *trip) ownBytes(count uint64) uint64 {
	own := t.ports.hierarchy.Mine(count)
	return (own.To - own.From) * uint64(t.call.Type.Size())
}

func (t *trip) allReduceLarge() { t.reduceTo(crosshost.Course{}) }

// reduceTo takes each piece through the same stages as on the host.
func (t *trip) reduceTo(way crosshost.Course) {
	h, c := t.ports.hierarchy, t.call
	element := uint64(c.Type.Size())
	size := h.PieceOf(c.Count, element)
	pieces := int((c.Count + size - 1) / size)
	split, behind := h.Stages(size, element)
	var under [3]*passing
	for k := range pieces + behind {
		if k < pieces {
			at := uint64(k) * size
			x := &passing{crosshost.Piece{Course: way, At: at, Count: min(size, c.Count-at)}, t.region(forResults)}
			t.scatter(address(c.Input)+uintptr(at*element), x.Count, t.place(k%3))
			x.Share = x.bytes[:t.ownBytes(x.Count)]
			t.copy(x.addr, t.place(k%3), uint64(len(x.Share)))
			t.tell(func(ctx context.Context) error { return h.Send(ctx, &x.Piece, element, split) }, x.region)
			under[k%3] = x
		}
		if j := k - 1; split && j >= 0 && j < pieces {
			x := under[j%3]
			t.tell(func(ctx context.Context) error { return h.Middle(ctx, reduction(c), &x.Piece) }, x.region)
		}
		if j := k - behind; j >= 0 && way.Gets(h.Host) {
			x := under[j%3]
			t.await(t.tell(func(ctx context.Context) error { return h.Complete(ctx, reduction(c), &x.Piece, split) }, x.region))
			t.copy(t.place(j%3), x.addr, uint64(len(x.Share)))
			out := address(c.Output) + uintptr(x.At*element)
			if way.Spares(h.Rank, c.Root) {
				out = t.place(placePadded)
			}
			t.gather(t.place(j%3), x.Count, out)
		}
	}
}

// passing is a piece under way, and its region.
type passing struct {
	crosshost.Piece
	*region
}

// block is where the pieces of some ranks lie, or are to lie, one behind another: in the
// buffer itself, or not.
func (t *trip) block(all uintptr, part, at, bytes uint64, ranks []int) (addr uintptr, there bool) {
	there = bytes == part
	for i, r := range ranks {
		there = there && r == ranks[0]+i
	}
	if there {
		return all + uintptr(uint64(ranks[0])*part), true
	}
	return t.place(placeBlock), false
}

// reduceScatterLarge reduces, for each host, what its ranks are to get, and sends the
// shares of that to those who are to have them. While one piece is between hosts, the
// next is reduced.
func (t *trip) reduceScatterLarge() {
	h, c := t.ports.hierarchy, t.call
	element := uint64(c.Type.Size())
	part, size := c.Count*element, h.PieceOfPart(element)
	finish := func() {}
	for from := uint64(0); from < part; from += size {
		bytes := min(size, part-from)
		reduce := func(g int, r *region) (count uint64, own []byte) {
			ranks := h.Hosts[g]
			block, there := t.block(address(c.Input), part, from, bytes, ranks)
			for i, rank := range ranks {
				if !there {
					t.copy(block+uintptr(uint64(i)*bytes), address(c.Input)+uintptr(uint64(rank)*part+from), bytes)
				}
			}
			count = uint64(len(ranks)) * bytes / element
			t.scatter(block, count, t.place(placeShare))
			own = r.bytes[:t.ownBytes(count)]
			t.copy(r.addr, t.place(placeShare), uint64(len(own)))
			return count, own
		}
		_ = h.OtherHosts(func(g int) error {
			r := t.region(forSending)
			count, own := reduce(g, r)
			t.tell(func(ctx context.Context) error { return h.SendTo(ctx, count, element, g, own) }, r)
			return t.err
		})
		r := t.region(forResults)
		count, own := reduce(h.Host, r)
		number := t.tell(func(ctx context.Context) error { return h.SumShare(ctx, reduction(c), count, own, own) }, r)
		finish()
		finish = func() {
			t.await(number)
			t.copy(address(c.Output)+uintptr(from), r.addr, uint64(len(own)))
		}
	}
	finish()
}

// allGatherLarge sends the part of this rank to the other hosts, where each rank
// receives a share of the block, and gathers the shares. A piece is sent before the one
// before it is gathered.
func (t *trip) allGatherLarge() {
	h, c := t.ports.hierarchy, t.call
	element := uint64(c.Type.Size())
	part, size := c.Count*element, h.PieceOfPart(element)
	finish := func() {}
	for from := uint64(0); from < part; from += size {
		bytes := min(size, part-from)
		count := func(g int) uint64 { return uint64(len(h.Hosts[g])) * bytes / element }
		r := t.region(forSending)
		t.copy(r.addr, address(c.Input)+uintptr(from), bytes)
		t.tell(func(ctx context.Context) error {
			return h.SendShare(ctx, crosshost.Course{}, count(h.Host), element, r.bytes[:bytes])
		}, r)
		finish()
		finish = func() {
			t.spread(h.Host, address(c.Input)+uintptr(from), part, from, bytes)
			_ = h.OtherHosts(func(g int) error {
				r := t.region(forResults)
				own := r.bytes[:t.ownBytes(count(g))]
				t.await(t.tell(func(ctx context.Context) error { return h.TakeShare(ctx, count(g), element, g, own) }, r))
				t.copy(t.place(placeShare), r.addr, uint64(len(own)))
				t.spread(g, t.place(placeShare), part, from, bytes)
				return t.err
			})
		}
	}
	finish()
}

// spread gathers the shares of the block of a host, and puts its pieces where they belong.
func (t *trip) spread(g int, own uintptr, part, from, bytes uint64) {
	ranks, out := t.ports.hierarchy.Hosts[g], address(t.call.Output)
	block, there := t.block(out, part, from, bytes, ranks)
	t.gather(own, uint64(len(ranks))*bytes/uint64(t.call.Type.Size()), block)
	for i, rank := range ranks {
		if !there {
			t.copy(out+uintptr(uint64(rank)*part+from), block+uintptr(uint64(i)*bytes), bytes)
		}
	}
}
