package direct

import (
	"github.com/mscclpp-go/mscclpp/collectives/internal/inter/crosshost"
	"github.com/mscclpp-go/mscclpp/collectives/internal/inter/enqueue"
	"github.com/mscclpp-go/mscclpp/framework/device"
)

// Calls with a root between hosts, without the host: one host alone gives, or gets. The
// others send heads still, so that what kernels/exchange.h says of slots holds as it does
// for all other calls, and so that ranks that disagree on the root get an error.

// broadcast spreads each piece on the root's host, whose ranks give a share each to
// their counterparts; the other hosts gather the shares.
func (t *call) broadcast() {
	h, c := t.Queue, t.Call
	element := uint64(c.Type.Size())
	pieces, of := t.inPieces()
	home, index := h.Find(c.Root)
	if h.Most == 1 || c.Count == 0 { // nothing inside
		for k := range pieces {
			at, count := of(k)
			in, out := enqueue.Address(c.Input)+at, enqueue.Address(c.Output)+at
			t.passBetween(t.Stream, in, out, count*element, home)
			if h.Host == home {
				t.Copy(out, in, count*element)
			}
		}
		return
	}
	t.stages(pieces, func(k int) {
		if h.Host != home {
			return
		}
		at, count := of(k)
		in, out := enqueue.Address(c.Output)+at, enqueue.Address(c.Output)+at
		if h.Index == index {
			in = enqueue.Address(c.Input) + at
		}
		t.Spread(in, out, count, index)
	}, func(s device.Stream, k int) {
		at, count := of(k)
		own := h.Mine(count)
		share := t.summed(k, at, count)
		if h.Host == home {
			share = enqueue.Address(c.Output) + at + uintptr(own.From*element)
		}
		t.passBetween(s, share, share, (own.To-own.From)*element, home)
	}, func(k int) {
		if at, count := of(k); h.Host != home {
			t.Gather(t.summed(k, at, count), count, enqueue.Address(c.Output)+at)
		}
	})
}

// passBetween gives counterparts on all hosts what the one on a host has. Much of it,
// between more than two hosts, goes in two steps: each gets a segment, and gives it to the
// others, so that no host sends all of it more than twice. The one that had it all gets the
// same bytes back, while it sends: they take the other direction of its links.
func (t *call) passBetween(s device.Stream, in, out uintptr, bytes uint64, home int) {
	h := t.Queue
	hosts := uint64(len(h.Hosts))
	if each := bytes / hosts / crosshost.WordBytes * crosshost.WordBytes; hosts > 2 && each > 0 && bytes >= crosshost.TwoSteps {
		own, segments := uintptr(uint64(h.Host)*each), out
		if h.Host == home {
			segments = in
		}
		t.pass(s, traffic{in, each, each, out + own, 0}, only(home), everyHost)
		t.exchange(s, traffic{segments + own, 0, each, out, each})
		in, out, bytes = in+uintptr(hosts*each), out+uintptr(hosts*each), bytes-hosts*each
		if bytes == 0 {
			return
		}
	}
	t.pass(s, traffic{in, 0, bytes, out, 0}, only(home), everyHost)
}

// reduce takes each piece through a reduce-scatter inside the host, and a sum on the
// root's, whose ranks gather the shares: the same bits as those of an all-reduce.
func (t *call) reduce() {
	h, c := t.Queue, t.Call
	pieces, of := t.inPieces()
	home, _ := h.Find(c.Root)
	root := t.Rank == c.Root
	if h.Most == 1 || c.Count == 0 { // nothing inside
		for k := range pieces {
			at, count := of(k)
			out := t.d.half(t.d.mine, 0) // others than the root have no output
			if root {
				out = enqueue.Address(c.Output) + at
			}
			t.sumBetween(t.Stream, enqueue.Address(c.Input)+at, out, count, 0, only(home))
		}
		return
	}
	sum := func(k int) uintptr {
		if at, count := of(k); root {
			return t.summed(k, at, count)
		}
		return t.Place(k % 3)
	}
	t.stages(pieces, func(k int) {
		at, count := of(k)
		t.Scatter(enqueue.Address(c.Input)+at, count, t.Place(k%3))
	}, func(s device.Stream, k int) {
		_, count := of(k)
		own := h.Mine(count)
		t.sumBetween(s, t.Place(k%3), sum(k), own.To-own.From, k, only(home))
	}, func(k int) {
		at, count := of(k)
		switch {
		case root:
			t.Gather(sum(k), count, enqueue.Address(c.Output)+at)
		case h.Host == home: // kernels that gather do it for all of a host
			t.Gather(sum(k), count, t.Place(enqueue.PlacePadded))
		}
	})
}
