package transporttest

import (
	"bytes"
	"sync/atomic"

	"github.com/mscclpp-go/mscclpp/framework"
	"github.com/mscclpp-go/mscclpp/framework/device"
)

var memoryTests = []test{
	{name: "memory/put-get", when: memoryClaimed, body: testPutGet},
	{name: "memory/ranges", when: memoryClaimed, body: testRanges},
	{name: "memory/every-share", when: memoryClaimed, body: testEveryShare},
	{name: "memory/one-side", when: memoryClaimed, body: testOneSide},
	{name: "memory/message-passing", when: memoryClaimed, body: testMessagePassing},
	{name: "memory/signals", when: memoryClaimed, body: testSignals},
	{name: "memory/outlives", when: memoryClaimed, body: testOutlives},
	{name: "memory/concurrent", when: memoryClaimed, body: testConcurrentLinks},
}

// link is a memory or port connection of two ranks, both directions.
type link struct {
	t     *T
	ranks [2]*rank
	conn  [2]framework.ID
}

func (t *T) link(kind framework.Kind, a, b *rank) *link {
	l := &link{t: t, ranks: [2]*rank{a, b}}
	var ends [2]framework.Endpoint
	for i, r := range l.ranks {
		ends[i], _ = r.listening(r.config(kind, a.n, b.n))
	}
	for i, r := range l.ranks {
		l.conn[i] = r.connected(ends[i].ID, framework.Peer{Rank: l.ranks[1-i].n, Address: ends[1-i].Address})
	}
	return l
}

// reach makes the memory behind the key addressable for side i of the link.
func (l *link) reach(i int, key framework.Parcel) window {
	r := l.ranks[i]
	a, err := r.Attach(l.t.ctx, l.conn[i], 0, []framework.Parcel{key})
	if err != nil {
		l.t.Fatalf("rank %d: attach: %v", r.n, err)
	}
	p := &performer{rank: r, meet: newMeeting(1)}
	for i, w := range p.perform(a) {
		if a.Mappings[i].Role == framework.RolePeer && w.mem != nil {
			return w
		}
	}
	l.t.Fatalf("rank %d: the recipe maps no memory of the peer: %+v", r.n, a)
	return window{}
}

// shared is memory of rank b that rank a reaches.
func (t *T) shared(bytes uint64) (owner *buffer, far window) {
	l := t.link(framework.KindMemory, t.rank(0), t.rank(1))
	b := l.ranks[1].alloc(bytes)
	return b, l.reach(0, l.ranks[1].registered(b.segment).Key)
}

var (
	alignments = []int{0, 1, 2, 3, 4, 7, 8, 12, 15, 16, 31, 63}
	sizes      = []int{0, 1, 2, 3, 4, 5, 7, 8, 9, 15, 16, 17, 31, 33, 63, 64, 65, 127, 255, 1023, 4096, 4097, 65535}
)

// testPutGet puts and gets every size at every alignment, and looks at the bytes
// around.
func testPutGet(t *T) {
	const room = 1 << 17
	owner, far := t.shared(room)
	if len(far.bytes) != room {
		t.Fatalf("the mapping has %d bytes, the memory %d", len(far.bytes), room)
	}
	seed := uint64(0)
	got := make([]byte, room)
	for _, at := range alignments {
		for _, n := range sizes {
			seed++
			clear(owner.bytes)
			fill(far.bytes[at:at+n], seed)
			if i, bad := differs(owner.bytes[at:at+n], seed); bad {
				t.Fatalf("put of %d bytes at %d: byte %d is wrong at the owner", n, at, i)
			}
			if i := bytes.IndexFunc(owner.bytes[at+n:], func(r rune) bool { return r != 0 }); i >= 0 {
				t.Fatalf("put of %d bytes at %d: byte %d after its end has changed", n, at, i)
			}
			fill(owner.bytes[at:at+n], seed+1000)
			copy(got[:n], far.bytes[at:at+n])
			if i, bad := differs(got[:n], seed+1000); bad {
				t.Fatalf("get of %d bytes at %d: byte %d is wrong", n, at, i)
			}
		}
	}
}

// testRanges registers parts of an allocation. A part is reached as a part, at
// whatever byte it begins.
func testRanges(t *T) {
	l := t.link(framework.KindMemory, t.rank(0), t.rank(1))
	b := l.ranks[1].alloc(1 << 16)
	for _, part := range [][2]int{{0, 1}, {1, 7}, {4096, 4096}, {4095, 2}, {100, 9000}, {65535, 1}, {64, 65472}} {
		from, n := part[0], part[1]
		w := l.reach(0, l.ranks[1].registered(b.part(uint64(from), uint64(n))).Key)
		if len(w.bytes) != n {
			t.Errorf("%d bytes at %d: the mapping has %d bytes", n, from, len(w.bytes))
			continue
		}
		fill(w.bytes, uint64(from))
		if i, bad := differs(b.bytes[from:from+n], uint64(from)); bad {
			t.Errorf("%d bytes at %d: byte %d went elsewhere", n, from, i)
		}
	}
}

// testEveryShare maps by each share of the mapping alone. Best first is a promise
// about speed; each must work where the device can import it.
func testEveryShare(t *T) {
	l := t.link(framework.KindMemory, t.rank(0), t.rank(1))
	b := l.ranks[1].alloc(8192)
	key := l.ranks[1].registered(b.segment).Key
	a, err := l.ranks[0].Attach(t.ctx, l.conn[0], 0, []framework.Parcel{key})
	if err != nil {
		t.Fatalf("attach: %v", err)
	}
	defer a.Close()
	for _, m := range a.Mappings {
		for i, share := range m.Shares {
			if share.Kind == framework.ShareLegacyIPC {
				continue // cannot be opened by its exporter, which this process is
			}
			one := m
			one.Shares = m.Shares[i : i+1]
			mem, err := l.ranks[0].device.Map(one)
			if err != nil {
				t.Errorf("share %d of kind %s: %v", i, share.Kind, err)
				continue
			}
			fill(device.Bytes(mem), uint64(i))
			if at, bad := differs(b.bytes, uint64(i)); bad {
				t.Errorf("share %d of kind %s reaches other memory: byte %d", i, share.Kind, at)
			}
			_ = mem.Close()
		}
	}
}

// testOneSide links two ranks that share one side: ranks of one process.
func testOneSide(t *T) {
	a := t.rank(0)
	l := t.link(framework.KindMemory, a, t.join(1, a.side, a.ids))
	b := l.ranks[1].alloc(4096)
	w := l.reach(0, l.ranks[1].registered(b.segment).Key)
	fill(w.bytes, 3)
	if i, bad := differs(b.bytes, 3); bad {
		t.Errorf("byte %d put between ranks of one side is wrong", i)
	}
}

// testMessagePassing is the litmus test of one-sided communication: data, then
// signal at one end; wait, then data at the other. Both directions at once.
func testMessagePassing(t *T) {
	const rounds, payload, counter = 2000, 256, 4096
	l := t.link(framework.KindMemory, t.rank(0), t.rank(1))
	var own [2]*buffer
	var far [2]window
	for i, r := range l.ranks {
		own[i] = r.alloc(8192)
		far[1-i] = l.reach(1-i, r.registered(own[i].segment).Key)
	}
	t.all(2, func(i int) {
		in, out := word(own[i].bytes, counter), word(far[i].bytes, counter)
		for n := range uint64(rounds) {
			// Two slots: the peer may be one round ahead of what is checked here.
			slot := int(n%2) * payload
			fill(far[i].bytes[slot:slot+payload], n)
			signal(out)
			t.awaitCount("signal of the peer", in, n+1)
			if at, bad := differs(own[i].bytes[slot:slot+payload], n); bad {
				t.Fatalf("round %d: byte %d arrived after its signal", n, at)
			}
		}
	})
}

// testSignals raises one counter from many sides at once, across the end of its
// low 32 bits. None is lost, and the high half counts on.
func testSignals(t *T) {
	const start, each = 1<<32 - 1500, 1000
	owner, far := t.shared(4096)
	atomic.StoreUint64(word(owner.bytes, 8), start)
	t.all(4, func(i int) {
		w := word(far.bytes, 8)
		if i == 0 {
			w = word(owner.bytes, 8) // a rank may signal itself
		}
		for range each {
			signal(w)
		}
	})
	if got := atomic.LoadUint64(word(owner.bytes, 8)); got != start+4*each {
		t.Errorf("the counter is %#x after %d signals from %#x: expected %#x", got, 4*each, uint64(start), uint64(start+4*each))
	}
}

// testOutlives closes everything in the transport, and uses the mapping: it
// belongs to the rank.
func testOutlives(t *T) {
	l := t.link(framework.KindMemory, t.rank(0), t.rank(1))
	b := l.ranks[1].alloc(4096)
	reg := l.ranks[1].registered(b.segment)
	w := l.reach(0, reg.Key)
	l.ranks[0].release(l.conn[0])
	l.ranks[1].release(l.conn[1])
	l.ranks[1].release(reg.ID)
	fill(w.bytes, 9)
	if i, bad := differs(b.bytes, 9); bad {
		t.Errorf("byte %d put after the connection was closed is wrong", i)
	}
}

// testConcurrentLinks makes and uses many links between the same sides at once.
func testConcurrentLinks(t *T) {
	a, b := t.rank(0), t.rank(1)
	t.all(8, func(i int) {
		l := t.link(framework.KindMemory, a, b)
		buffer := b.alloc(8192)
		w := l.reach(0, b.registered(buffer.segment).Key)
		fill(w.bytes, uint64(i))
		if at, bad := differs(buffer.bytes, uint64(i)); bad {
			t.Errorf("link %d: byte %d is wrong", i, at)
		}
	})
}
