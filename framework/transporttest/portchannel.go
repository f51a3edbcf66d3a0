package transporttest

import (
	"encoding/binary"
	"runtime"
	"sync/atomic"
	"time"
	"unsafe"

	"github.com/mscclpp-go/mscclpp/framework"
	"github.com/mscclpp-go/mscclpp/framework/kernel"
)

var portTests = []test{
	{name: "port/put", when: portClaimed, body: testPortPut},
	{name: "port/signal-after-data", when: portClaimed, body: testSignalAfterData},
	{name: "port/order", when: portClaimed, body: testPortOrder},
	{name: "port/flush", when: portClaimed, body: testFlush},
	{name: "port/flush-words", when: portClaimed, body: testFlushWords},
	{name: "port/signals", when: portClaimed, body: testPortSignals},
	{name: "port/ping-pong", when: portClaimed, body: testPingPong},
	{name: "port/producers", when: portClaimed, body: testProducers},
	{name: "port/rings", when: portClaimed, body: testRings},
	{name: "port/idle", when: portClaimed, body: testIdle},
	{name: "port/ring-full", when: portClaimed, body: testRingFull},
	{name: "port/address", when: func(c claims) bool { return portClaimed(c) && !c.memory.apart }, body: testAddress},
	{name: "port/several-links", when: func(c claims) bool { return portClaimed(c) && c.Links > 1 }, body: testSeveralLinks},
}

// testPortPut puts every size at every alignment of both ends, and looks at the
// bytes around.
func testPortPut(t *T) {
	const room, guard = 1 << 17, 0xa5
	c := t.channel(64, room)
	for n, bytes := range sizes {
		for k, at := range alignments {
			from := alignments[(k+n)%len(alignments)]
			for i := range c.dst.bytes {
				c.dst.bytes[i] = guard
			}
			fill(c.src.bytes[from:from+bytes], uint64(n*100+k))
			c.put(uint64(at), uint64(from), uint64(bytes))
			c.flush()
			if i, bad := differs(c.dst.bytes[at:at+bytes], uint64(n*100+k)); bad {
				t.Fatalf("put of %d bytes from %d to %d: byte %d is wrong after the flush", bytes, from, at, i)
			}
			for i, b := range c.dst.bytes {
				if (i < at || i >= at+bytes) && b != guard {
					t.Fatalf("put of %d bytes from %d to %d changed byte %d", bytes, from, at, i)
				}
			}
		}
	}
}

// testSignalAfterData reads the data as soon as the counter moves. It alternates
// between one trigger for both and two, and between small and large puts, which a
// transport may send by different ways.
func testSignalAfterData(t *T) {
	const rounds, small, large = 400, 64, 1 << 16
	c := t.channel(64, 2*large)
	t.spawn(func() {
		for n := range uint64(rounds) {
			at, size := n%2*large, uint64(small)
			if n%8 == 7 {
				size = large
			}
			// The slot's last use was two rounds ago; its reader has told.
			if n >= 2 {
				t.awaitCount("the reader", word(c.counters.bytes, 512), n-1)
			}
			fill(c.src.bytes[at:at+size], n)
			if n%2 == 0 {
				c.putSignal(at, at, size)
			} else {
				c.put(at, at, size)
				c.signal()
			}
		}
	})
	for n := range uint64(rounds) {
		at, size := n%2*large, uint64(small)
		if n%8 == 7 {
			size = large
		}
		t.awaitCount("signal after a put", c.count(), n+1)
		if i, bad := differs(c.dst.bytes[at:at+size], n); bad {
			t.Fatalf("round %d: byte %d of %d arrived after its signal", n, i, size)
		}
		signal(word(c.counters.bytes, 512))
	}
}

// testPortOrder overwrites one word over many laps of a small ring. What is seen
// never goes back, and after the k-th signal it is at least the k-th.
func testPortOrder(t *T) {
	const slots, laps = 8, 100
	c := t.channel(slots, 16*slots*laps)
	const puts = slots * laps / 2
	t.spawn(func() {
		for n := range uint64(puts) {
			binary.LittleEndian.PutUint64(c.src.bytes[16*n:], n+1)
			c.put(0, 16*n, 8)
			c.signal()
		}
	})
	there := word(c.dst.bytes, 0)
	last := uint64(0)
	for last < puts {
		signals := atomic.LoadUint64(c.count())
		now := atomic.LoadUint64(there)
		if now < last || now < signals {
			t.Fatalf("saw put %d after put %d, with %d signals: puts are out of order", now, last, signals)
		}
		last = now
		runtime.Gosched()
		if t.failed() || t.ctx.Err() != nil {
			t.Fatalf("%d of %d puts arrived", last, puts)
		}
	}
	t.awaitCount("last signal", c.count(), puts)
	c.flush()
	if got := atomic.LoadUint64(c.count()); got != puts {
		t.Errorf("%d signals arrived, %d were sent", got, puts)
	}
}

// testFlush reuses the source as soon as a flush is over, and looks at the peer's
// memory: a flush means that the data is there.
func testFlush(t *T) {
	const size = 1 << 15
	c := t.channel(16, size)
	for n := range uint64(200) {
		fill(c.src.bytes, n)
		if n%2 == 0 {
			c.put(0, 0, size)
			c.flush()
		} else {
			c.flushed(c.push(c.trigger(kernel.TriggerData|kernel.TriggerSignal|kernel.TriggerFlush, 0, 0, size)))
			if got := atomic.LoadUint64(c.count()); got != n/2+1 {
				t.Fatalf("round %d: the counter is %d after the flush of a signal, expected %d", n, got, n/2+1)
			}
		}
		clear(c.src.bytes)
		if i, bad := differs(c.dst.bytes, n); bad {
			t.Fatalf("round %d: byte %d is not there after the flush", n, i)
		}
	}
}

// testFlushWords has two channels on one ring. The word of a channel counts
// positions of the ring, and only its own flushes move it.
func testFlushWords(t *T) {
	l := t.link(framework.KindPort, t.rank(0), t.rank(1))
	p := l.ranks[0].proxied(16)
	var n numbers
	a, b := p.channelTo(l, 0, 4096, &n), p.channelTo(l, 0, 4096, &n)
	flushWord := func(c *channel) uint64 { return atomic.LoadUint64((*uint64)(pointer(c.ring.FlushWord(c.semSlot)))) }
	a.put(0, 0, 8)
	a.flush()
	if got := flushWord(b); got != 0 {
		t.Errorf("a flush of one channel moved the word of another to %d", got)
	}
	pos := b.push(b.trigger(kernel.TriggerFlush, 0, 0, 0))
	b.flushed(pos)
	if got := flushWord(b); got != pos+1 {
		t.Errorf("the flush at position %d left %d in its word, expected %d", pos, got, pos+1)
	}
	if was := flushWord(a); was >= flushWord(b) {
		t.Errorf("a later flush of another channel moved this one's word to %d", was)
	}
}

// testPortSignals raises a counter across the end of its low 32 bits, with bursts
// that no queue of completions holds. None is lost.
func testPortSignals(t *T) {
	const start, count = 1<<32 - 1000, 3000
	l := t.link(framework.KindPort, t.rank(0), t.rank(1))
	p := l.ranks[0].unstarted(256)
	c := p.channelTo(l, 0, 4096, &numbers{})
	atomic.StoreUint64(c.count(), start)
	p.start()
	for range count {
		c.signal()
	}
	t.awaitCount("the last signal", c.count(), start+count)
	c.flush()
	if got := atomic.LoadUint64(c.count()); got != start+count {
		t.Errorf("the counter is %#x after %d signals from %#x", got, count, uint64(start))
	}
}

// testPingPong uses both directions of one connection, each with its own ring and
// side, and hands one buffer to and fro.
func testPingPong(t *T) {
	const rounds, size = 300, 1024
	l := t.link(framework.KindPort, t.rank(0), t.rank(1))
	var c [2]*channel
	for i := range c {
		c[i] = l.ranks[i].proxied(16).channelTo(l, i, size, &numbers{})
	}
	t.all(2, func(i int) {
		in, out := c[1-i], c[i]
		for n := range uint64(rounds) {
			if i == 1 || n > 0 {
				want := n // rank 0 gets back what it sent a round before
				if i == 1 {
					want = n + 1
				}
				t.awaitCount("the other side", in.count(), want)
				if at, bad := differs(in.dst.bytes, 2*want+uint64(1-i)); bad {
					t.Fatalf("round %d: rank %d sees a wrong byte %d", n, i, at)
				}
			}
			fill(out.src.bytes, 2*(n+1)+uint64(i))
			out.putSignal(0, 0, size)
			out.flush()
		}
	})
}

// testProducers pushes from many threads to one ring, each on its own channel.
func testProducers(t *T) {
	const each, channels = 200, 4
	l := t.link(framework.KindPort, t.rank(0), t.rank(1))
	p := l.ranks[0].proxied(16)
	var n numbers
	var c [channels]*channel
	for i := range c {
		c[i] = p.channelTo(l, 0, 4096, &n)
	}
	t.all(channels, func(i int) {
		for k := range uint64(each) {
			fill(c[i].src.bytes, k+uint64(i)<<32)
			c[i].putSignal(0, 0, 4096)
			c[i].flush()
			if at, bad := differs(c[i].dst.bytes, k+uint64(i)<<32); bad {
				t.Fatalf("channel %d, put %d: byte %d is wrong", i, k, at)
			}
		}
	})
	for i := range c {
		if got := atomic.LoadUint64(c[i].count()); !t.failed() && got != each {
			t.Errorf("channel %d: %d signals arrived of %d", i, got, each)
		}
	}
}

// testRings gives one connection two rings: slot numbers belong to the ring. A
// channel that is bound while another is in use must not disturb it.
func testRings(t *T) {
	l := t.link(framework.KindPort, t.rank(0), t.rank(1))
	t.all(3, func(i int) {
		c := l.ranks[0].proxied(16).channelTo(l, 0, 8192, &numbers{})
		for k := range uint64(50) {
			fill(c.src.bytes, k+uint64(i)<<32)
			c.put(0, 0, 8192)
			c.flush()
			if at, bad := differs(c.dst.bytes, k+uint64(i)<<32); bad {
				t.Fatalf("ring %d, put %d: byte %d is wrong", i, k, at)
			}
		}
	})
}

// testIdle lets the proxy fall asleep before each put. A lost wake-up shows as a
// flush that takes until something else happens.
func testIdle(t *T) {
	c := t.channel(16, 64)
	parked := (*uint32)(pointer(c.ring.Handle(0).Parked))
	slept := 0
	for range 40 {
		limit := time.Now().Add(settle)
		for time.Now().Before(limit) && atomic.LoadUint32(parked) == 0 {
			time.Sleep(50 * time.Microsecond)
		}
		if atomic.LoadUint32(parked) != 0 {
			slept++
		}
		start := time.Now()
		c.put(0, 0, 8)
		c.flush()
		if took := time.Since(start); took > time.Second {
			t.Fatalf("a put after a pause took %v (the proxy had parked %d times)", took, slept)
		}
	}
}

// testRingFull fills the ring before anybody drains it. Pushes wait then; when the
// proxy starts, all are performed, in order and none twice.
func testRingFull(t *T) {
	const slots = 16
	l := t.link(framework.KindPort, t.rank(0), t.rank(1))
	p := l.ranks[0].unstarted(slots)
	c := p.channelTo(l, 0, 8*64, &numbers{})
	for n := range uint64(slots) {
		binary.LittleEndian.PutUint64(c.src.bytes[8*n:], n+1)
		c.putSignal(8*n, 8*n, 8)
	}
	over := make(chan struct{})
	t.spawn(func() {
		defer close(over)
		for range slots {
			c.signal()
		}
	})
	select {
	case <-over:
		t.Fatalf("%d triggers were pushed to a ring of %d that nobody drains", 2*slots, slots)
	case <-time.After(settle):
	}
	if got := atomic.LoadUint64(c.count()); got != 0 {
		t.Errorf("%d signals arrived before the proxy was started", got)
	}
	p.start()
	t.awaitCount("the last signal", c.count(), 2*slots)
	<-over
	c.flush()
	for n := range uint64(slots) {
		if got := binary.LittleEndian.Uint64(c.dst.bytes[8*n:]); got != n+1 {
			t.Errorf("put %d left %d", n, got)
		}
	}
	if got := atomic.LoadUint64(c.count()); got != 2*slots {
		t.Errorf("%d signals arrived of %d", got, 2*slots)
	}
}

// pointer is an address of mapped memory, which the collector does not move.
func pointer(addr uintptr) unsafe.Pointer { return *(*unsafe.Pointer)(unsafe.Pointer(&addr)) }

// testSeveralLinks has as many links between two ranks as the transport asks for, all on one
// ring: each carries its own data and signals, and goes away without the others.
func testSeveralLinks(t *T) {
	const room = 1 << 14
	a, b := t.rank(0), t.rank(1)
	p := a.proxied(256)
	var n numbers
	links := make([]*link, t.claims.Links)
	channels := make([]*channel, len(links))
	for i := range links {
		links[i] = t.link(framework.KindPort, a, b)
		channels[i] = p.channelTo(links[i], 0, room, &n)
		fill(channels[i].src.bytes, uint64(i))
	}
	for left := len(channels); left > 0; left-- {
		for _, c := range channels[:left] {
			clear(c.dst.bytes)
			c.putSignal(0, 0, room)
		}
		for i, c := range channels[:left] {
			c.flush()
			if at, bad := differs(c.dst.bytes, uint64(i)); bad {
				t.Fatalf("link %d of %d: byte %d is not there after the flush", i, left, at)
			}
			if got := atomic.LoadUint64(c.count()); got != uint64(len(channels)-left+1) {
				t.Fatalf("link %d of %d: %d signals arrived, %d were sent", i, left, got, len(channels)-left+1)
			}
		}
		last := links[left-1]
		for side, r := range last.ranks {
			if err := r.Close(t.ctx, last.conn[side]); err != nil {
				t.Fatalf("rank %d: close of link %d: %v", r.n, left-1, err)
			}
		}
	}
}
