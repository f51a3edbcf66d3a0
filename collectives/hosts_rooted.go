package collectives

import (
	"context"

	"github.com/mscclpp-go/mscclpp/collectives/internal/inter/crosshost"
)

// Calls in two levels with a root, as in hierarchy_rooted.go.

// spreadInside is a broadcast on one host.
func (t *trip) spreadInside(in, out uintptr, count uint64, index int) {
	h := t.ports.hierarchy
	if t.err == nil {
		t.err = h.named(h.inside.Broadcast(at(in), at(out), int(count), t.call.Type, index, &CallOptions{Stream: t.stream}))
	}
}

// broadcastSmall spreads the data on the root's host, whose ranks give it to all others.
func (t *trip) broadcastSmall() {
	h, c := t.ports.hierarchy, t.call
	bytes := c.Count * uint64(c.Type.Size())
	if bytes == 0 {
		return
	}
	home, index := h.Find(c.Root)
	if home != h.Host {
		t.through(0, 0, address(c.Output), bytes, func(ctx context.Context, _, out []byte) error {
			return h.ports.Take(ctx, h.Counterpart(home), bytes, func(b []byte) { copy(out, b) })
		})
		return
	}
	t.spreadInside(address(c.Input), address(c.Output), c.Count, index)
	t.through(address(c.Output), bytes, 0, 0, func(ctx context.Context, own, _ []byte) error {
		return h.Counterparts(func(to int) error { return h.ports.Post(ctx, to, own) })
	})
}

// broadcastLarge spreads each piece on the root's host, whose ranks send a share each;
// the other hosts gather the shares. They ask for a piece, and pass it on, before they
// gather the last.
func (t *trip) broadcastLarge() {
	h, c := t.ports.hierarchy, t.call
	element := uint64(c.Type.Size())
	size := h.PieceOf(c.Count, element)
	split, _ := h.Stages(size, element)
	home, index := h.Find(c.Root)
	finish := func() {}
	for from := uint64(0); from < c.Count; from += size {
		count := min(size, c.Count-from)
		out := address(c.Output) + uintptr(from*element)
		purpose := forResults
		if h.Host == home {
			purpose = forSending
		}
		x := &passing{crosshost.Piece{Course: crosshost.Course{Rooted: true, Gives: true, Home: home}, At: from, Count: count}, t.region(purpose)}
		x.Share = x.bytes[:t.ownBytes(count)]
		if h.Host == home {
			in := out
			if h.Index == index {
				in = address(c.Input) + uintptr(from*element)
			}
			t.spreadInside(in, out, count, index)
			t.copy(x.addr, out+uintptr(h.Mine(count).From*element), uint64(len(x.Share)))
			t.tell(func(ctx context.Context) error { return h.Send(ctx, &x.Piece, element, split) }, x.region)
			continue
		}
		number := t.tell(func(ctx context.Context) error { return h.Pass(ctx, &x.Piece, element, split) }, x.region)
		finish()
		finish = func() {
			if split {
				number = t.tell(func(ctx context.Context) error { return h.TakeSlices(ctx, &x.Piece, element) }, x.region)
			}
			t.await(number)
			t.copy(t.place(placeShare), x.addr, uint64(len(x.Share)))
			t.gather(t.place(placeShare), count, out)
		}
	}
	finish()
}

// reduceSmall reduces on each host, at the rank that sends to the root; on its own host,
// at the root.
func (t *trip) reduceSmall() {
	h, c := t.ports.hierarchy, t.call
	bytes := c.Count * uint64(c.Type.Size())
	if bytes == 0 {
		return
	}
	home, index := h.Find(c.Root)
	block, sender := t.place(placeBlock), index%h.Size()
	if t.err == nil {
		op, o := h.innerOp(c)
		t.err = h.named(h.inside.Reduce(c.Input, at(block), int(c.Count), c.Type, op, sender, o))
	}
	switch {
	case h.Index != sender:
	case h.Host != home:
		t.through(block, bytes, 0, 0, func(ctx context.Context, own, _ []byte) error {
			return h.ports.Post(ctx, c.Root, own)
		})
	default:
		t.through(block, bytes, address(c.Output), bytes, func(ctx context.Context, own, out []byte) error {
			return h.SumSmall(ctx, reduction(c), own, out)
		})
	}
}

// reduceLarge is an all-reduce of which the root's host alone gets the sum.
func (t *trip) reduceLarge() {
	home, _ := t.ports.hierarchy.Find(t.call.Root)
	t.reduceTo(crosshost.Course{Rooted: true, Home: home})
}
