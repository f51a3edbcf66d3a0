package direct

import (
	"github.com/mscclpp-go/mscclpp/collectives/internal/inter/crosshost"
	"github.com/mscclpp-go/mscclpp/collectives/internal/inter/enqueue"
	"github.com/mscclpp-go/mscclpp/collectives/internal/inter/placement"
	"github.com/mscclpp-go/mscclpp/framework/device"
)

// inPieces says in how many pieces a vector is worked on, and where, in bytes, each begins
// and how many elements it has.
func (t *call) inPieces() (pieces int, of func(k int) (at uintptr, count uint64)) {
	c, element := t.Call, uint64(t.Call.Type.Size())
	size := t.Queue.PieceOf(c.Count, element)
	// A rank without messages hears from others that they have some.
	return max(1, int((c.Count+size-1)/size)), func(k int) (at uintptr, count uint64) {
		first := uint64(k) * size
		return uintptr(first * element), min(size, c.Count-first)
	}
}

// allReduce takes each piece through a reduce-scatter inside the host, an exchange
// with the counterparts and a sum, and an all-gather inside.
func (t *call) allReduce() {
	h, c := t.Queue, t.Call
	pieces, of := t.inPieces()
	if h.Most == 1 || c.Count == 0 { // nothing inside
		for k := range pieces {
			at, count := of(k)
			t.sumBetween(t.Stream, enqueue.Address(c.Input)+at, enqueue.Address(c.Output)+at, count, 0, everyHost)
		}
		return
	}
	t.stages(pieces, func(k int) {
		at, count := of(k)
		t.Scatter(enqueue.Address(c.Input)+at, count, t.Place(k%3))
	}, func(s device.Stream, k int) {
		at, count := of(k)
		own := h.Mine(count)
		t.sumBetween(s, t.Place(k%3), t.summed(k, at, count), own.To-own.From, k, everyHost)
	}, func(k int) {
		at, count := of(k)
		t.Gather(t.summed(k, at, count), count, enqueue.Address(c.Output)+at)
	})
}

// sumBetween adds up what counterparts have, for those of all hosts or of one, the taker.
// Much of it, between more than two hosts, goes in two steps, as in crosshost/slices.go: each
// reduces a segment, and gives it to the others. On hosts that get nothing out is for that.
func (t *call) sumBetween(s device.Stream, in, out uintptr, count uint64, half int, taker uint32) {
	h, element := t.Queue, uint64(t.Call.Type.Size())
	d, hosts := t.d, uint64(len(h.Hosts))
	word := max(1, crosshost.WordBytes/element)
	if each := count / hosts / word * word; hosts > 2 && each > 0 && count*element >= crosshost.TwoSteps {
		bytes := each * element
		own := uintptr(uint64(h.Host) * bytes)
		t.exchange(s, traffic{in, bytes, bytes, d.half(d.theirs, half), d.stride})
		t.combine(s, in+own, out+own, each, half)
		t.pass(s, traffic{out + own, 0, bytes, out, bytes}, everyHost, taker)
		in, out, count = in+uintptr(hosts*bytes), out+uintptr(hosts*bytes), count-hosts*each
		if count == 0 {
			return
		}
	}
	t.pass(s, traffic{in, 0, count * element, d.half(d.theirs, half), d.stride}, everyHost, taker)
	if taker == everyHost || taker == only(h.Host) {
		t.combine(s, in, out, count, half)
	}
}

// summed is where the sum of this rank's share of a piece goes: where it belongs, if the
// piece can be divided evenly.
func (t *call) summed(k int, at uintptr, count uint64) uintptr {
	h := t.Queue
	if own := h.Mine(count); placement.Share(count, h.Size())*uint64(h.Size()) == count {
		return enqueue.Address(t.Call.Output) + at + uintptr(own.From*uint64(t.Call.Type.Size()))
	}
	return t.Place(k % 3)
}

// inParts says in how many pieces, of so many bytes at most, a part of each rank is worked
// on, and which.
func (t *call) inParts(size uint64) (part uint64, pieces int, of func(k int) (from, bytes uint64)) {
	part = t.Call.Count * uint64(t.Call.Type.Size())
	return part, max(1, int((part+size-1)/size)), func(k int) (from, bytes uint64) {
		from = uint64(k) * size
		return from, min(size, part-from)
	}
}

// reduceScatter reduces inside, for each host, what its ranks are to get, and
// exchanges the shares of that.
func (t *call) reduceScatter() {
	h, c := t.Queue, t.Call
	d, element := t.d, uint64(c.Type.Size())
	part, pieces, of := t.inParts(h.PieceOfPart(element))
	if h.Most == 1 || part == 0 { // ranks are in the order of the hosts
		for k := range pieces {
			from, bytes := of(k)
			in := enqueue.Address(c.Input) + uintptr(from)
			t.exchange(t.Stream, traffic{in, part, bytes, d.half(d.theirs, 0), d.stride})
			t.combine(t.Stream, in+uintptr(uint64(h.Host)*part), enqueue.Address(c.Output)+uintptr(from), bytes/element, 0)
		}
		return
	}
	room := func(g, k int) uintptr { return d.half(d.mine, k) + uintptr(uint64(g)*d.stride) }
	t.stages(pieces, func(k int) {
		from, bytes := of(k)
		for g, ranks := range h.Hosts {
			block, there := t.Block(enqueue.Address(c.Input), part, from, bytes, ranks)
			for i, rank := range ranks {
				if !there {
					t.Copy(block+uintptr(uint64(i)*bytes), enqueue.Address(c.Input)+uintptr(uint64(rank)*part+from), bytes)
				}
			}
			t.Scatter(block, uint64(len(ranks))*bytes/element, room(g, k))
		}
	}, func(s device.Stream, k int) {
		from, bytes := of(k)
		t.exchange(s, traffic{room(0, k), d.stride, bytes, d.half(d.theirs, k), d.stride})
		t.combine(s, room(h.Host, k), enqueue.Address(c.Output)+uintptr(from), bytes/element, k)
	}, func(int) {})
}

// allGather exchanges the part of this rank, and gathers inside, for each host, what
// its ranks have given to those of this one.
func (t *call) allGather() {
	h, c := t.Queue, t.Call
	d := t.d
	part, pieces, of := t.inParts(h.PieceOfPart(uint64(c.Type.Size())))
	t.stages(pieces, func(int) {}, func(s device.Stream, k int) {
		from, bytes := of(k)
		t.exchange(s, traffic{enqueue.Address(c.Input) + uintptr(from), 0, bytes, d.half(d.theirs, k), d.stride})
	}, func(k int) {
		from, bytes := of(k)
		for g, ranks := range h.Hosts {
			own := d.half(d.theirs, k) + uintptr(uint64(g)*d.stride)
			if g == h.Host {
				own = enqueue.Address(c.Input) + uintptr(from)
			}
			if h.Most == 1 {
				t.Copy(enqueue.Address(c.Output)+uintptr(uint64(ranks[0])*part+from), own, bytes)
			} else if bytes > 0 {
				t.GatherBlock(g, own, part, from, bytes)
			}
		}
	})
}
