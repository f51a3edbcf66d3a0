package port

import (
	"encoding/binary"
	"runtime"
	"sync/atomic"
	"time"

	"github.com/mscclpp-go/mscclpp/framework"
	"github.com/mscclpp-go/mscclpp/framework/kernel"
	"github.com/mscclpp-go/mscclpp/framework/transporttest/internal/harness"
	"github.com/mscclpp-go/mscclpp/internal/promise"
)

var portTests = []harness.Test{
	{
		Name: "port/put", Rule: "A put copies exactly the bytes that its trigger names, at any size and offset.",
		When: harness.PortClaimed, Body: testPortPut,
	},
	{
		Name: "port/signal-after-data", Rule: "A signal never overtakes the data before it.",
		When: harness.PortClaimed, Body: testSignalAfterData,
	},
	{
		Name: "port/order", Rule: "Triggers of a ring are performed in their order, over many laps: the commit bit changes its parity in each.",
		When: harness.PortClaimed, Body: testPortOrder,
	},
	{
		Name: "port/flush", Rule: "After a flush the source can be reused and the data is at the peer.",
		When: harness.PortClaimed, Body: testFlush,
	},
	{
		Name: "port/flush-words", Rule: "A flush word names the position that was flushed, and no other word changes.",
		When: harness.PortClaimed, Body: testFlushWords,
	},
	{
		Name: "port/signals", Rule: "Each signal raises the peer's counter by one.",
		When: harness.PortClaimed, Body: testPortSignals,
	},
	{
		Name: "port/ping-pong", Rule: "Channels of both directions work at once.",
		When: harness.PortClaimed, Body: testPingPong,
	},
	{
		Name: "port/producers", Rule: "Many producers can push to one ring.",
		When: harness.PortClaimed, Body: testProducers,
	},
	{
		Name: "port/rings", Rule: "Several proxies of one transport work at once.",
		When: harness.PortClaimed, Body: testRings,
	},
	{
		Name: "port/idle", Rule: "A proxy that was idle, and may be parked on its futex, performs a new trigger soon.",
		When: harness.PortClaimed, Body: testIdle,
	},
	{
		Name: "port/ring-full", Rule: "A full ring makes producers wait; what they pushed is performed in order, and none twice.",
		When: harness.PortClaimed, Body: testRingFull,
	},
	{
		Name: "port/segments", Rule: "Memory and semaphores of a segment begin at its offset.",
		When: harness.PortClaimed, Body: testSegments,
	},
	{
		Name: "port/address", Rule: "Memory without shares is registered by address or refused; after Close of the registration it is not touched.",
		When: func(c harness.Claims) bool { return harness.PortClaimed(c) && !c.Memory.Apart }, Body: testAddress,
	},
	{
		Name: "port/several-links", Rule: "Several connections to one peer work at once.",
		When: func(c harness.Claims) bool { return harness.PortClaimed(c) && c.Links > 1 }, Body: testSeveralLinks,
	},
}

// testPortPut puts every size at every alignment of both ends, and looks at the
// bytes around.
func testPortPut(t *harness.T) {
	const room, guard = 1 << 17, 0xa5
	c := t.Channel(64, room)
	for n, bytes := range harness.Sizes {
		for k, at := range harness.Alignments {
			from := harness.Alignments[(k+n)%len(harness.Alignments)]
			for i := range c.Dst.Bytes {
				c.Dst.Bytes[i] = guard
			}
			harness.Fill(c.Src.Bytes[from:from+bytes], uint64(n*100+k))
			c.Put(uint64(at), uint64(from), uint64(bytes))
			c.Flush()
			if i, bad := harness.Differs(c.Dst.Bytes[at:at+bytes], uint64(n*100+k)); bad {
				t.Fatalf("put of %d bytes from %d to %d: byte %d is wrong after the flush", bytes, from, at, i)
			}
			for i, b := range c.Dst.Bytes {
				if (i < at || i >= at+bytes) && b != guard {
					t.Fatalf("put of %d bytes from %d to %d changed byte %d", bytes, from, at, i)
				}
			}
		}
	}
}

// testSegments puts between segments that are parts of allocations, and signals in one:
// everything is counted from where the segment begins, not the allocation.
func testSegments(t *harness.T) {
	const room, before, guard = 4096, 4096 + 8, 0xa5
	l := t.Link(framework.KindPort, t.Rank(0), t.Rank(1))
	from, to, words := l.Ranks[0].Alloc(3*room), l.Ranks[1].Alloc(3*room), l.Ranks[1].Alloc(3*room)
	for i := range to.Bytes {
		to.Bytes[i] = guard
	}
	c := l.Ranks[0].Proxied(16).ChannelOver(l, 0, from.Range(before, room), to.Range(before, room), words.Range(before, room), &harness.Numbers{})
	harness.Fill(from.Bytes[before:before+room], 9)
	c.PutSignal(0, 0, room)
	c.Flush()
	if i, bad := harness.Differs(to.Bytes[before:before+room], 9); bad {
		t.Errorf("byte %d of a put between segments is wrong", i)
	}
	for i, b := range to.Bytes {
		if (i < before || i >= before+room) && b != guard {
			t.Fatalf("a put to the segment at %d changed byte %d of the allocation", before, i)
		}
	}
	for at := 0; at < len(words.Bytes); at += 8 {
		want := uint64(0)
		if at == before+harness.SignalAt {
			want = 1
		}
		if n := atomic.LoadUint64(harness.Word(words.Bytes, at)); n != want {
			t.Errorf("a signal at %d of the segment at %d: the word at %d of the allocation is %d, expected %d", harness.SignalAt, before, at, n, want)
		}
	}
}

// testSignalAfterData reads the data as soon as the counter moves. It alternates
// between one trigger for both and two, and between small and large puts, which a
// transport may send by different ways.
func testSignalAfterData(t *harness.T) {
	const rounds, small, large = 400, 64, 1 << 16
	c := t.Channel(64, 2*large)
	t.Spawn(func() {
		for n := range uint64(rounds) {
			at, size := n%2*large, uint64(small)
			if n%8 == 7 {
				size = large
			}
			// The slot's last use was two rounds ago; its reader has confirmed it.
			if n >= 2 {
				t.AwaitCount("the reader", harness.Word(c.Counters.Bytes, 512), n-1)
			}
			harness.Fill(c.Src.Bytes[at:at+size], n)
			if n%2 == 0 {
				c.PutSignal(at, at, size)
			} else {
				c.Put(at, at, size)
				c.Signal()
			}
		}
	})
	for n := range uint64(rounds) {
		at, size := n%2*large, uint64(small)
		if n%8 == 7 {
			size = large
		}
		t.AwaitCount("signal after a put", c.Count(), n+1)
		if i, bad := harness.Differs(c.Dst.Bytes[at:at+size], n); bad {
			t.Fatalf("round %d: byte %d of %d arrived after its signal", n, i, size)
		}
		harness.Signal(harness.Word(c.Counters.Bytes, 512))
	}
}

// testPortOrder overwrites one word over many laps of a small ring. A count that was seen never
// goes back, and after the k-th signal it is at least the k-th.
func testPortOrder(t *harness.T) {
	const slots, laps = 8, 100
	c := t.Channel(slots, 16*slots*laps)
	const puts = slots * laps / 2
	t.Spawn(func() {
		for n := range uint64(puts) {
			binary.LittleEndian.PutUint64(c.Src.Bytes[16*n:], n+1)
			c.Put(0, 16*n, 8)
			c.Signal()
		}
	})
	there := harness.Word(c.Dst.Bytes, 0)
	last := uint64(0)
	for last < puts {
		signals := atomic.LoadUint64(c.Count())
		now := atomic.LoadUint64(there)
		if now < last || now < signals {
			t.Fatalf("saw put %d after put %d, with %d signals: puts are out of order", now, last, signals)
		}
		last = now
		runtime.Gosched()
		if t.Failed() || t.Context().Err() != nil {
			t.Fatalf("%d of %d puts arrived", last, puts)
		}
	}
	t.AwaitCount("last signal", c.Count(), puts)
	c.Flush()
	if got := atomic.LoadUint64(c.Count()); got != puts {
		t.Errorf("%d signals arrived, %d were sent", got, puts)
	}
}

// testFlush reuses the source as soon as a flush is over, and looks at the peer's
// memory: a flush means that the data is there.
func testFlush(t *harness.T) {
	const size = 1 << 15
	c := t.Channel(16, size)
	for n := range uint64(200) {
		harness.Fill(c.Src.Bytes, n)
		if n%2 == 0 {
			c.Put(0, 0, size)
			c.Flush()
		} else {
			c.Flushed(c.Push(c.Trigger(kernel.TriggerData|kernel.TriggerSignal|kernel.TriggerFlush, 0, 0, size)))
			if got := atomic.LoadUint64(c.Count()); got != n/2+1 {
				t.Fatalf("round %d: the counter is %d after the flush of a signal, expected %d", n, got, n/2+1)
			}
		}
		clear(c.Src.Bytes)
		if i, bad := harness.Differs(c.Dst.Bytes, n); bad {
			t.Fatalf("round %d: byte %d is not there after the flush", n, i)
		}
	}
}

// testFlushWords has two channels on one ring. The word of a channel counts
// positions of the ring, and only its own flushes move it.
func testFlushWords(t *harness.T) {
	l := t.Link(framework.KindPort, t.Rank(0), t.Rank(1))
	p := l.Ranks[0].Proxied(16)
	var n harness.Numbers
	a, b := p.ChannelTo(l, 0, 4096, &n), p.ChannelTo(l, 0, 4096, &n)
	flushWord := func(c *harness.Channel) uint64 {
		return atomic.LoadUint64((*uint64)(harness.Pointer(c.Ring.FlushWord(c.SemSlot))))
	}
	a.Put(0, 0, 8)
	a.Flush()
	if got := flushWord(b); got != 0 {
		t.Errorf("a flush of one channel moved the word of another to %d", got)
	}
	pos := b.Push(b.Trigger(kernel.TriggerFlush, 0, 0, 0))
	b.Flushed(pos)
	if got := flushWord(b); got != pos+1 {
		t.Errorf("the flush at position %d left %d in its word, expected %d", pos, got, pos+1)
	}
	if was := flushWord(a); was >= flushWord(b) {
		t.Errorf("a later flush of another channel moved this one's word to %d", was)
	}
}

// testPortSignals raises a counter across the end of its low 32 bits, with bursts
// that no queue of completions holds. None is lost.
func testPortSignals(t *harness.T) {
	const start, count = 1<<32 - 1000, 3000
	l := t.Link(framework.KindPort, t.Rank(0), t.Rank(1))
	p := l.Ranks[0].Unstarted(256)
	c := p.ChannelTo(l, 0, 4096, &harness.Numbers{})
	atomic.StoreUint64(c.Count(), start)
	p.Start()
	for range count {
		c.Signal()
	}
	t.AwaitCount("the last signal", c.Count(), start+count)
	c.Flush()
	if got := atomic.LoadUint64(c.Count()); got != start+count {
		t.Errorf("the counter is %#x after %d signals from %#x", got, count, uint64(start))
	}
}

// testPingPong uses both directions of one connection, each with its own ring and
// side, and hands one buffer to and fro.
func testPingPong(t *harness.T) {
	const rounds, size = 300, 1024
	l := t.Link(framework.KindPort, t.Rank(0), t.Rank(1))
	var c [2]*harness.Channel
	for i := range c {
		c[i] = l.Ranks[i].Proxied(16).ChannelTo(l, i, size, &harness.Numbers{})
	}
	t.All(2, func(i int) {
		in, out := c[1-i], c[i]
		for n := range uint64(rounds) {
			if i == 1 || n > 0 {
				want := n // rank 0 gets back what it sent a round before
				if i == 1 {
					want = n + 1
				}
				t.AwaitCount("the other side", in.Count(), want)
				if at, bad := harness.Differs(in.Dst.Bytes, 2*want+uint64(1-i)); bad {
					t.Fatalf("round %d: rank %d sees a wrong byte %d", n, i, at)
				}
			}
			harness.Fill(out.Src.Bytes, 2*(n+1)+uint64(i))
			out.PutSignal(0, 0, size)
			out.Flush()
		}
	})
}

// testProducers pushes from many threads to one ring, each on its own channel.
func testProducers(t *harness.T) {
	const each, channels = 200, 4
	l := t.Link(framework.KindPort, t.Rank(0), t.Rank(1))
	p := l.Ranks[0].Proxied(16)
	var n harness.Numbers
	var c [channels]*harness.Channel
	for i := range c {
		c[i] = p.ChannelTo(l, 0, 4096, &n)
	}
	t.All(channels, func(i int) {
		for k := range uint64(each) {
			harness.Fill(c[i].Src.Bytes, k+uint64(i)<<32)
			c[i].PutSignal(0, 0, 4096)
			c[i].Flush()
			if at, bad := harness.Differs(c[i].Dst.Bytes, k+uint64(i)<<32); bad {
				t.Fatalf("channel %d, put %d: byte %d is wrong", i, k, at)
			}
		}
	})
	for i := range c {
		if got := atomic.LoadUint64(c[i].Count()); !t.Failed() && got != each {
			t.Errorf("channel %d: %d signals arrived of %d", i, got, each)
		}
	}
}

// testRings gives one connection two rings: slot numbers belong to the ring. A
// channel that is bound while another is in use must not disturb it.
func testRings(t *harness.T) {
	l := t.Link(framework.KindPort, t.Rank(0), t.Rank(1))
	t.All(3, func(i int) {
		c := l.Ranks[0].Proxied(16).ChannelTo(l, 0, 8192, &harness.Numbers{})
		for k := range uint64(50) {
			harness.Fill(c.Src.Bytes, k+uint64(i)<<32)
			c.Put(0, 0, 8192)
			c.Flush()
			if at, bad := harness.Differs(c.Dst.Bytes, k+uint64(i)<<32); bad {
				t.Fatalf("ring %d, put %d: byte %d is wrong", i, k, at)
			}
		}
	})
}

// testIdle lets the proxy fall asleep before each put. A lost wake-up shows as a
// flush that takes until something else happens.
func testIdle(t *harness.T) {
	c := t.Channel(16, 64)
	parked := (*uint32)(harness.Pointer(c.Ring.Handle(0).Parked))
	slept := 0
	for range 40 {
		limit := time.Now().Add(harness.Settle)
		for time.Now().Before(limit) && atomic.LoadUint32(parked) == 0 {
			time.Sleep(50 * time.Microsecond)
		}
		if atomic.LoadUint32(parked) != 0 {
			slept++
		}
		watch := promise.Begin()
		c.Put(0, 0, 8)
		c.Flush()
		if err := watch.Kept(time.Second); err != nil {
			t.Fatalf("a put after a pause: %v (the proxy had parked %d times)", err, slept)
		}
	}
}

// testRingFull fills the ring before any proxy drains it. Pushes wait then; when the proxy starts,
// all are performed, in order and none twice.
func testRingFull(t *harness.T) {
	const slots = 16
	l := t.Link(framework.KindPort, t.Rank(0), t.Rank(1))
	p := l.Ranks[0].Unstarted(slots)
	c := p.ChannelTo(l, 0, 8*64, &harness.Numbers{})
	for n := range uint64(slots) {
		binary.LittleEndian.PutUint64(c.Src.Bytes[8*n:], n+1)
		c.PutSignal(8*n, 8*n, 8)
	}
	over := make(chan struct{})
	t.Spawn(func() {
		defer close(over)
		for range slots {
			c.Signal()
		}
	})
	select {
	case <-over:
		t.Fatalf("%d triggers were pushed to a ring of %d that nobody drains", 2*slots, slots)
	case <-time.After(harness.Settle):
	}
	if got := atomic.LoadUint64(c.Count()); got != 0 {
		t.Errorf("%d signals arrived before the proxy was started", got)
	}
	p.Start()
	t.AwaitCount("the last signal", c.Count(), 2*slots)
	<-over
	c.Flush()
	for n := range uint64(slots) {
		if got := binary.LittleEndian.Uint64(c.Dst.Bytes[8*n:]); got != n+1 {
			t.Errorf("put %d left %d", n, got)
		}
	}
	if got := atomic.LoadUint64(c.Count()); got != 2*slots {
		t.Errorf("%d signals arrived of %d", got, 2*slots)
	}
}

// testSeveralLinks has as many links between two ranks as the transport asks for, all on one
// ring: each carries its own data and signals, and goes away without the others.
func testSeveralLinks(t *harness.T) {
	const room = 1 << 14
	a, b := t.Rank(0), t.Rank(1)
	p := a.Proxied(256)
	var n harness.Numbers
	links := make([]*harness.Link, t.Claims.Links)
	channels := make([]*harness.Channel, len(links))
	for i := range links {
		links[i] = t.Link(framework.KindPort, a, b)
		channels[i] = p.ChannelTo(links[i], 0, room, &n)
		harness.Fill(channels[i].Src.Bytes, uint64(i))
	}
	for left := len(channels); left > 0; left-- {
		for _, c := range channels[:left] {
			clear(c.Dst.Bytes)
			c.PutSignal(0, 0, room)
		}
		for i, c := range channels[:left] {
			c.Flush()
			if at, bad := harness.Differs(c.Dst.Bytes, uint64(i)); bad {
				t.Fatalf("link %d of %d: byte %d is not there after the flush", i, left, at)
			}
			if got := atomic.LoadUint64(c.Count()); got != uint64(len(channels)-left+1) {
				t.Fatalf("link %d of %d: %d signals arrived, %d were sent", i, left, got, len(channels)-left+1)
			}
		}
		last := links[left-1]
		for side, r := range last.Ranks {
			if err := r.Close(t.Context(), last.Conn[side]); err != nil {
				t.Fatalf("rank %d: close of link %d: %v", r.N, left-1, err)
			}
		}
	}
}
