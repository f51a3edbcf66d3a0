package staged

import (
	"context"

	"github.com/mscclpp-go/mscclpp/collectives/internal/inter/crosshost"
	"github.com/mscclpp-go/mscclpp/collectives/internal/inter/enqueue"
)

// Calls in two levels with a root, as in twolevel/rooted.go.

// broadcastSmall spreads the data on the root's host, whose ranks give it to all others.
func (t *call) broadcastSmall() {
	h, c := t.h, t.Call
	bytes := c.Count * uint64(c.Type.Size())
	if bytes == 0 {
		return
	}
	home, index := h.Find(c.Root)
	if home != h.Host {
		t.through(0, 0, enqueue.Address(c.Output), bytes, func(ctx context.Context, _, out []byte) error {
			return h.Lanes.Take(ctx, h.Counterpart(home), bytes, func(b []byte) { copy(out, b) })
		})
		return
	}
	t.Spread(enqueue.Address(c.Input), enqueue.Address(c.Output), c.Count, index)
	t.through(enqueue.Address(c.Output), bytes, 0, 0, func(ctx context.Context, own, _ []byte) error {
		return h.Counterparts(func(to int) error { return h.Lanes.Post(ctx, to, own) })
	})
}

// broadcastLarge spreads each piece on the root's host, whose ranks send a share each;
// the other hosts gather the shares. They ask for a piece, and pass it on, before they
// gather the last.
func (t *call) broadcastLarge() {
	h, c := t.h, t.Call
	element := uint64(c.Type.Size())
	size := h.PieceOf(c.Count, element)
	split, _ := h.Stages(size, element)
	home, index := h.Find(c.Root)
	finish := func() {}
	for from := uint64(0); from < c.Count; from += size {
		count := min(size, c.Count-from)
		out := enqueue.Address(c.Output) + uintptr(from*element)
		purpose := forResults
		if h.Host == home {
			purpose = forSending
		}
		x := &stagedPiece{crosshost.Piece{Direction: crosshost.Direction{Rooted: true, Gives: true, Home: home}, At: from, Count: count}, t.region(purpose)}
		x.Share = x.bytes[:t.OwnBytes(count)]
		if h.Host == home {
			in := out
			if h.Index == index {
				in = enqueue.Address(c.Input) + uintptr(from*element)
			}
			t.Spread(in, out, count, index)
			t.Copy(x.addr, out+uintptr(h.Mine(count).From*element), uint64(len(x.Share)))
			t.onHost(func(ctx context.Context) error { return h.Send(ctx, &x.Piece, element, split) }, x.region)
			continue
		}
		number := t.onHost(func(ctx context.Context) error { return h.Pass(ctx, &x.Piece, element, split) }, x.region)
		finish()
		finish = func() {
			if split {
				number = t.onHost(func(ctx context.Context) error { return h.TakeSlices(ctx, &x.Piece, element) }, x.region)
			}
			t.await(number)
			t.Copy(t.Place(enqueue.PlaceShare), x.addr, uint64(len(x.Share)))
			t.Gather(t.Place(enqueue.PlaceShare), count, out)
		}
	}
	finish()
}

// reduceSmall reduces on each host, at the rank that sends to the root; on its own host,
// at the root.
func (t *call) reduceSmall() {
	h, c := t.h, t.Call
	bytes := c.Count * uint64(c.Type.Size())
	if bytes == 0 {
		return
	}
	home, index := h.Find(c.Root)
	block, sender := t.Place(enqueue.PlaceBlock), index%h.Size()
	t.SumFor(c.Count, block, sender)
	switch {
	case h.Index != sender:
	case h.Host != home:
		t.through(block, bytes, 0, 0, func(ctx context.Context, own, _ []byte) error {
			return h.Lanes.Post(ctx, c.Root, own)
		})
	default:
		t.through(block, bytes, enqueue.Address(c.Output), bytes, func(ctx context.Context, own, out []byte) error {
			return h.SumSmall(ctx, t.reduction(), own, out)
		})
	}
}

// reduceLarge is an all-reduce of which the root's host alone gets the sum.
func (t *call) reduceLarge() {
	home, _ := t.h.Find(t.Call.Root)
	t.reduceTo(crosshost.Direction{Rooted: true, Home: home})
}
