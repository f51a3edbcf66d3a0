package memory

import (
	"bytes"
	"sync/atomic"

	"github.com/mscclpp-go/mscclpp/framework"
	"github.com/mscclpp-go/mscclpp/framework/device"
	"github.com/mscclpp-go/mscclpp/framework/transporttest/internal/harness"
)

var memoryTests = []harness.Test{
	{
		Name: "memory/put-get", Rule: "Stores and loads through a mapping reach exactly the bytes meant, at any size and alignment.",
		When: harness.MemoryClaimed, Body: testPutGet,
	},
	{
		Name: "memory/ranges", Rule: "A segment that is a part of an allocation is reached as that part.",
		When: harness.MemoryClaimed, Body: testRanges,
	},
	{
		Name: "memory/every-share", Rule: "Each share of a mapping works alone.",
		When: harness.MemoryClaimed, Body: testEveryShare,
	},
	{
		Name: "memory/one-side", Rule: "Ranks of one process can share a transport, and be linked with each other.",
		When: harness.MemoryClaimed, Body: testOneSide,
	},
	{
		Name: "memory/message-passing", Rule: "Data stored before a signal is visible to a reader that sees the signal.",
		When: harness.MemoryClaimed, Body: testMessagePassing,
	},
	{
		Name: "memory/signals", Rule: "Signals through a mapping are atomic.",
		When: harness.MemoryClaimed, Body: testSignals,
	},
	{
		Name: "memory/outlives", Rule: "A mapping outlives the ids that it came from.",
		When: harness.MemoryClaimed, Body: testOutlives,
	},
	{
		Name: "memory/concurrent", Rule: "Links can be made and used concurrently.",
		When: harness.MemoryClaimed, Body: testConcurrentLinks,
	},
}

// testPutGet puts and gets every size at every alignment, and looks at the bytes
// around.
func testPutGet(t *harness.T) {
	const room = 1 << 17
	owner, far := t.Shared(room)
	if len(far.Bytes) != room {
		t.Fatalf("the mapping has %d bytes, the memory %d", len(far.Bytes), room)
	}
	seed := uint64(0)
	got := make([]byte, room)
	for _, at := range harness.Alignments {
		for _, n := range harness.Sizes {
			seed++
			clear(owner.Bytes)
			harness.Fill(far.Bytes[at:at+n], seed)
			if i, bad := harness.Differs(owner.Bytes[at:at+n], seed); bad {
				t.Fatalf("put of %d bytes at %d: byte %d is wrong at the owner", n, at, i)
			}
			if i := bytes.IndexFunc(owner.Bytes[at+n:], func(r rune) bool { return r != 0 }); i >= 0 {
				t.Fatalf("put of %d bytes at %d: byte %d after its end has changed", n, at, i)
			}
			harness.Fill(owner.Bytes[at:at+n], seed+1000)
			copy(got[:n], far.Bytes[at:at+n])
			if i, bad := harness.Differs(got[:n], seed+1000); bad {
				t.Fatalf("get of %d bytes at %d: byte %d is wrong", n, at, i)
			}
		}
	}
}

// testRanges registers parts of an allocation. A part is reached as a part, at
// whatever byte it begins.
func testRanges(t *harness.T) {
	l := t.Link(framework.KindMemory, t.Rank(0), t.Rank(1))
	b := l.Ranks[1].Alloc(1 << 16)
	for _, part := range [][2]int{{0, 1}, {1, 7}, {4096, 4096}, {4095, 2}, {100, 9000}, {65535, 1}, {64, 65472}} {
		from, n := part[0], part[1]
		w := l.Reach(0, l.Ranks[1].Registered(b.Part(uint64(from), uint64(n))).Key)
		if len(w.Bytes) != n {
			t.Errorf("%d bytes at %d: the mapping has %d bytes", n, from, len(w.Bytes))
			continue
		}
		harness.Fill(w.Bytes, uint64(from))
		if i, bad := harness.Differs(b.Bytes[from:from+n], uint64(from)); bad {
			t.Errorf("%d bytes at %d: byte %d went elsewhere", n, from, i)
		}
	}
}

// testEveryShare maps by each share of the mapping alone. Best first is a promise
// about speed; each must work where the device can import it.
func testEveryShare(t *harness.T) {
	l := t.Link(framework.KindMemory, t.Rank(0), t.Rank(1))
	b := l.Ranks[1].Alloc(8192)
	key := l.Ranks[1].Registered(b.Segment).Key
	a, err := l.Ranks[0].Attach(t.Context(), l.Conn[0], 0, []framework.Parcel{key})
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
			mem, err := l.Ranks[0].Device.Map(one)
			if err != nil {
				t.Errorf("share %d of kind %s: %v", i, share.Kind, err)
				continue
			}
			harness.Fill(device.Bytes(mem), uint64(i))
			if at, bad := harness.Differs(b.Bytes, uint64(i)); bad {
				t.Errorf("share %d of kind %s reaches other memory: byte %d", i, share.Kind, at)
			}
			_ = mem.Close()
		}
	}
}

// testOneSide links two ranks that share one side: ranks of one process.
func testOneSide(t *harness.T) {
	a := t.Rank(0)
	l := t.Link(framework.KindMemory, a, t.Join(1, a.Side, a.Ids))
	b := l.Ranks[1].Alloc(4096)
	w := l.Reach(0, l.Ranks[1].Registered(b.Segment).Key)
	harness.Fill(w.Bytes, 3)
	if i, bad := harness.Differs(b.Bytes, 3); bad {
		t.Errorf("byte %d put between ranks of one side is wrong", i)
	}
}

// testMessagePassing is the litmus test of one-sided communication: data, then
// signal at one end; wait, then data at the other. Both directions at once.
func testMessagePassing(t *harness.T) {
	const rounds, payload, counter = 2000, 256, 4096
	l := t.Link(framework.KindMemory, t.Rank(0), t.Rank(1))
	var own [2]*harness.Buffer
	var far [2]harness.Window
	for i, r := range l.Ranks {
		own[i] = r.Alloc(8192)
		far[1-i] = l.Reach(1-i, r.Registered(own[i].Segment).Key)
	}
	t.All(2, func(i int) {
		in, out := harness.Word(own[i].Bytes, counter), harness.Word(far[i].Bytes, counter)
		for n := range uint64(rounds) {
			// Two slots: the peer may be one round ahead of what is checked here.
			slot := int(n%2) * payload
			harness.Fill(far[i].Bytes[slot:slot+payload], n)
			harness.Signal(out)
			t.AwaitCount("signal of the peer", in, n+1)
			if at, bad := harness.Differs(own[i].Bytes[slot:slot+payload], n); bad {
				t.Fatalf("round %d: byte %d arrived after its signal", n, at)
			}
		}
	})
}

// testSignals raises one counter from many sides at once, across the end of its
// low 32 bits. None is lost, and the high half counts on.
func testSignals(t *harness.T) {
	const start, each = 1<<32 - 1500, 1000
	owner, far := t.Shared(4096)
	atomic.StoreUint64(harness.Word(owner.Bytes, 8), start)
	t.All(4, func(i int) {
		w := harness.Word(far.Bytes, 8)
		if i == 0 {
			w = harness.Word(owner.Bytes, 8) // a rank may signal itself
		}
		for range each {
			harness.Signal(w)
		}
	})
	if got := atomic.LoadUint64(harness.Word(owner.Bytes, 8)); got != start+4*each {
		t.Errorf("the counter is %#x after %d signals from %#x: expected %#x", got, 4*each, uint64(start), uint64(start+4*each))
	}
}

// testOutlives closes everything in the transport, and uses the mapping: it
// belongs to the rank.
func testOutlives(t *harness.T) {
	l := t.Link(framework.KindMemory, t.Rank(0), t.Rank(1))
	b := l.Ranks[1].Alloc(4096)
	reg := l.Ranks[1].Registered(b.Segment)
	w := l.Reach(0, reg.Key)
	l.Ranks[0].Release(l.Conn[0])
	l.Ranks[1].Release(l.Conn[1])
	l.Ranks[1].Release(reg.ID)
	harness.Fill(w.Bytes, 9)
	if i, bad := harness.Differs(b.Bytes, 9); bad {
		t.Errorf("byte %d put after the connection was closed is wrong", i)
	}
}

// testConcurrentLinks makes and uses many links between the same sides at once.
func testConcurrentLinks(t *harness.T) {
	a, b := t.Rank(0), t.Rank(1)
	t.All(8, func(i int) {
		l := t.Link(framework.KindMemory, a, b)
		buffer := b.Alloc(8192)
		w := l.Reach(0, b.Registered(buffer.Segment).Key)
		harness.Fill(w.Bytes, uint64(i))
		if at, bad := harness.Differs(buffer.Bytes, uint64(i)); bad {
			t.Errorf("link %d: byte %d is wrong", i, at)
		}
	})
}
