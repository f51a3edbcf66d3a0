package transporttest

import (
	"bytes"
	"context"
	"encoding/binary"

	"github.com/mscclpp-go/mscclpp/framework"
	"github.com/mscclpp-go/mscclpp/framework/kernel"
	"github.com/mscclpp-go/mscclpp/framework/proxy"
	"github.com/mscclpp-go/mscclpp/framework/ring"
)

// The tests below are for port channels that the rank drives, by the copy engine of
// its own device: they need one.
func drivenClaimed(c claims) bool {
	return c.Has(framework.KindPort) && c.Proxy == framework.ProxyRank && c.engine
}

var drivenTests = []test{
	{name: "driven/recipe", when: drivenClaimed, body: testDrivenRecipe},
	{name: "driven/put", when: drivenClaimed, body: testDrivenPut},
	{name: "driven/signal-after-data", when: drivenClaimed, body: testDrivenSignal},
	{name: "driven/order", when: drivenClaimed, body: testDrivenOrder},
	{name: "driven/flush", when: drivenClaimed, body: testDrivenFlush},
	{name: "driven/peers", when: drivenClaimed, body: testDrivenPeers},
	{name: "driven/both-ways", when: drivenClaimed, body: testDrivenBothWays},
	{name: "driven/outlives", when: drivenClaimed, body: testDrivenOutlives},
}

// driver is a rank that drives its port channels: a ring, and the copier that comm
// has as well.
type driver struct {
	*desk
	ring   *ring.Ring
	base   uintptr // of the ring, for the device
	copier *proxy.Copier
}

func (r *rank) driver(slots int) *driver {
	t := r.t
	d := &driver{desk: r.desk()}
	var err error
	if d.ring, err = ring.New(slots); err != nil {
		t.Fatalf("make a ring: %v", err)
	}
	t.Cleanup(func() { _ = d.ring.Close() })
	share, err := d.ring.Share()
	if err != nil {
		t.Fatalf("share a ring: %v", err)
	}
	defer share.Close()
	seen, err := r.device.Map(framework.Mapping{
		Role: framework.RolePeer, Peer: framework.NoPeer, Shares: []framework.Share{share}, Bytes: d.ring.Bytes(),
	})
	if err != nil {
		t.Fatalf("rank %d: show the ring to the device: %v", r.n, err)
	}
	t.Cleanup(func() { _ = seen.Close() })
	d.base = seen.Addr()
	d.copier = proxy.NewCopier(d.ring, d.base, proxy.Options{})
	if err := d.copier.Start(); err != nil {
		t.Fatalf("rank %d: start the copier: %v", r.n, err)
	}
	t.Cleanup(func() {
		if t.failed() {
			d.copier.Quit()
		}
		if err := d.copier.Stop(context.Background()); err != nil && !t.failed() {
			t.Errorf("rank %d: stop the copier: %v", r.n, err)
		}
	})
	return d
}

// drivenChannel is one direction of a port connection.
type drivenChannel struct {
	*driver
	peer     *desk
	src, dst uintptr
	counter  uintptr // of the receiver, as the receiver sees it
	room     uint64
	slot     uint32 // of the semaphore; memories are 2 × slot and 2 × slot + 1
}

// drives makes side i of a port link the sender of a channel. The receiver opens a
// part of its memory, to see that the recipe keeps to it.
func (d *driver) drives(l *link, i int, lane *proxy.Lane, peer *desk, room uint64, slot uint32) *drivenChannel {
	const before = 4096
	t := d.t
	receiver := l.ranks[1-i]
	src, dst, counters := d.alloc(room), receiver.alloc(room+2*before), receiver.alloc(4096)
	own := d.registered(src.segment)
	far := l.driven(i, own.ID, receiver.registered(dst.part(before, room)).Key, room)
	words := l.driven(i, 0, receiver.registered(counters.segment).Key, 4096)
	for _, err := range []error{
		d.copier.BindSource(2*slot, src.mem.Addr(), room),
		d.copier.BindTarget(2*slot+1, far.mem.Addr(), room, lane),
		d.copier.BindSemaphore(slot, lane.Counter(proxy.Word{Device: words.mem.Addr() + signalAt})),
	} {
		if err != nil {
			t.Fatalf("rank %d: %v", d.n, err)
		}
	}
	return &drivenChannel{
		driver: d, peer: peer, src: src.mem.Addr(), dst: dst.mem.Addr() + before,
		counter: counters.mem.Addr() + signalAt, room: room, slot: slot,
	}
}

// driven carries out the recipe that reaches the memory behind key over a port
// connection.
func (l *link) driven(i int, local framework.ID, key framework.Parcel, bytes uint64) window {
	t, r := l.t, l.ranks[i]
	a, err := r.Attach(t.ctx, l.conn[i], local, []framework.Parcel{key})
	if err != nil {
		t.Fatalf("rank %d: attach to a port that the rank drives: %v", r.n, err)
	}
	if len(a.Mappings) != 1 || a.Mappings[0].Role != framework.RolePeer || a.Mappings[0].Peer != l.ranks[1-i].n || a.Mappings[0].Bytes < bytes {
		_ = a.Close()
		t.Fatalf("rank %d: the recipe is %+v: want one mapping, of role peer, with the %d bytes of rank %d", r.n, a, bytes, l.ranks[1-i].n)
	}
	w := (&performer{rank: r, meet: newMeeting(1)}).perform(a)
	if w[0].mem == nil {
		t.Fatalf("rank %d: no step of the recipe maps the peer's memory: %+v", r.n, a.Steps)
	}
	return w[0]
}

// drivenChannel is a channel from rank 0 to rank 1.
func (t *T) drivenChannel(slots int, room uint64) *drivenChannel {
	l := t.link(framework.KindPort, t.rank(0), t.rank(1))
	d := l.ranks[0].driver(slots)
	return d.drives(l, 0, d.newLane(1), l.ranks[1].desk(), room, 0)
}

func (c *drivenChannel) push(kind, dst, src, n uint64) (pos uint64) {
	ctx, cancel := context.WithTimeout(c.t.ctx, c.t.o.CallLimit)
	defer cancel()
	pos, err := c.ring.PushContext(ctx, kernel.Trigger{
		Fst: n | src<<32,
		Snd: dst | uint64(2*c.slot)<<32 | uint64(2*c.slot+1)<<41 | kind<<50 | uint64(c.slot)<<53,
	})
	if err != nil {
		c.t.Fatalf("rank %d: push: %v%s", c.n, err, c.why())
	}
	return pos
}

// why is the copier's own account of its end, if it has ended.
func (c *drivenChannel) why() string {
	if c.ring.Err() == nil {
		return ""
	}
	return "; the copier says: " + errorText(c.copier.Wait(c.t.ctx))
}

func (c *drivenChannel) flush() {
	ctx, cancel := context.WithTimeout(c.t.ctx, c.t.o.CallLimit)
	defer cancel()
	if err := c.ring.WaitFlushed(ctx, c.slot, c.push(kernel.TriggerFlush, 0, 0, 0)); err != nil {
		c.t.Fatalf("rank %d: flush: %v%s", c.n, err, c.why())
	}
}

func patterned(n int, seed uint64) []byte {
	b := make([]byte, n)
	fill(b, seed)
	return b
}

// testDrivenRecipe reaches memory over a port, at several offsets: what is stored
// through the mapping is at the owner where the segment was.
func testDrivenRecipe(t *T) {
	l := t.link(framework.KindPort, t.rank(0), t.rank(1))
	a, b := l.ranks[0].desk(), l.ranks[1].desk()
	m := l.ranks[1].alloc(1 << 18)
	for n, at := range []uint64{0, 8, 4096, 12344, 1<<18 - 4096} {
		far := l.driven(0, 0, l.ranks[1].registered(m.part(at, 4096)).Key, 4096)
		a.write(far.mem.Addr(), patterned(4096, uint64(n)))
		if i, bad := differs(b.read(m.mem.Addr()+uintptr(at), 4096), uint64(n)); bad {
			t.Fatalf("segment at %d: byte %d is not what was stored through the mapping", at, i)
		}
	}
}

func testDrivenPut(t *T) {
	const room, guard = 1 << 17, 0xa5
	c := t.drivenChannel(64, room)
	around := bytes.Repeat([]byte{guard}, 128)
	for n, size := range []int{0, 1, 3, 8, 17, 64, 255, 4097, 65535} {
		for k, at := range []int{0, 1, 7, 64, 4095} {
			seed := uint64(100*n + k)
			from := 64 - 9*k
			c.peer.write(c.dst+uintptr(at), bytes.Repeat([]byte{guard}, size+128))
			c.write(c.src+uintptr(from), patterned(size, seed))
			c.push(kernel.TriggerData, uint64(at), uint64(from), uint64(size))
			c.flush()
			got := c.peer.read(c.dst+uintptr(at), size+128)
			if i, bad := differs(got[:size], seed); bad {
				t.Fatalf("put of %d bytes from %d to %d: byte %d is wrong after the flush", size, from, at, i)
			}
			if !bytes.Equal(got[size:], around) {
				t.Fatalf("put of %d bytes from %d to %d changed bytes behind it", size, from, at)
			}
		}
	}
}

// testDrivenSignal looks at the data as soon as the counter moves.
func testDrivenSignal(t *T) {
	const rounds, slots, size = 64, 8, 1 << 15
	c := t.drivenChannel(64, slots*size)
	for n := range uint64(rounds) {
		at := n % slots * size
		if n < slots {
			c.write(c.src+uintptr(at), patterned(size, n))
		}
		if n%2 == 0 {
			c.push(kernel.TriggerData|kernel.TriggerSignal, at, at, size)
		} else {
			c.push(kernel.TriggerData, at, at, size)
			c.push(kernel.TriggerSignal, 0, 0, 0)
		}
		if n >= slots { // the same data again: what was there must not be lost
			continue
		}
		c.peer.await("signal after a put", c.counter, n+1)
		if i, bad := differs(c.peer.read(c.dst+uintptr(at), size), n); bad {
			t.Fatalf("round %d: byte %d of %d arrived after its signal", n, i, size)
		}
	}
	c.flush()
	if got := c.peer.count(c.counter); got != rounds {
		t.Errorf("the counter is %d after %d signals", got, rounds)
	}
}

// testDrivenOrder overwrites one word, many more times than a ring or a stream holds.
func testDrivenOrder(t *T) {
	const puts = 4000
	c := t.drivenChannel(64, 8*puts)
	values := make([]byte, 8*puts)
	for n := range uint64(puts) {
		binary.LittleEndian.PutUint64(values[8*n:], n+1)
	}
	c.write(c.src, values)
	t.spawn(func() {
		for n := range uint64(puts) {
			c.push(kernel.TriggerData|kernel.TriggerSignal, 0, 8*n, 8)
		}
	})
	for last := uint64(0); last < puts; {
		signals := c.peer.count(c.counter)
		now := c.peer.count(c.dst)
		if now < last || now < signals {
			t.Fatalf("saw put %d after put %d, with %d signals: puts are out of order", now, last, signals)
		}
		if last = now; t.failed() || t.ctx.Err() != nil {
			t.Fatalf("%d of %d puts arrived", last, puts)
		}
	}
	c.flush()
	if got := c.peer.count(c.counter); got != puts {
		t.Errorf("%d signals arrived, %d were sent", got, puts)
	}
}

// testDrivenFlush reuses the source as soon as a flush is over.
func testDrivenFlush(t *T) {
	const size = 1 << 18
	c := t.drivenChannel(16, size)
	for n := range uint64(20) {
		c.write(c.src, patterned(size, n))
		if n%2 == 0 {
			c.push(kernel.TriggerData, 0, 0, size)
			c.flush()
		} else {
			pos := c.push(kernel.TriggerData|kernel.TriggerSignal|kernel.TriggerFlush, 0, 0, size)
			ctx, cancel := context.WithTimeout(t.ctx, t.o.CallLimit)
			err := c.ring.WaitFlushed(ctx, c.slot, pos)
			cancel()
			if err != nil {
				t.Fatalf("flush with a put: %v%s", err, c.why())
			}
		}
		c.write(c.src, make([]byte, size))
		if i, bad := differs(c.peer.read(c.dst, size), n); bad {
			t.Fatalf("round %d: byte %d is not there after the flush", n, i)
		}
	}
}

// testDrivenPeers has one ring serve two channels to each of two peers, with many
// puts outstanding.
func testDrivenPeers(t *T) {
	const each, size = 300, 4096
	a := t.rank(0)
	d := a.driver(128)
	var all []*drivenChannel
	for n := range 2 {
		l := t.link(framework.KindPort, a, t.rank(n+1))
		lane, peer := d.newLane(n+1), l.ranks[1].desk()
		for range 2 {
			c := d.drives(l, 0, lane, peer, each*size/4, uint32(len(all)))
			c.write(c.src, patterned(each*size/4, uint64(c.slot)))
			all = append(all, c)
		}
	}
	for k := range uint64(each) {
		for _, c := range all {
			at := k * size % c.room
			c.push(kernel.TriggerData|kernel.TriggerSignal, at, at, size)
		}
	}
	for _, c := range all {
		c.flush()
		if got := c.peer.count(c.counter); got != each {
			t.Errorf("channel %d: %d signals arrived of %d", c.slot, got, each)
		}
		if i, bad := differs(c.peer.read(c.dst, int(c.room)), uint64(c.slot)); bad {
			t.Errorf("channel %d: byte %d is wrong", c.slot, i)
		}
	}
}

// testDrivenBothWays hands a buffer to and fro.
func testDrivenBothWays(t *T) {
	const rounds, size = 30, 1024
	l := t.link(framework.KindPort, t.rank(0), t.rank(1))
	a, b := l.ranks[0].driver(16), l.ranks[1].driver(16)
	out := [2]*drivenChannel{
		a.drives(l, 0, a.newLane(1), b.desk, size, 0),
		b.drives(l, 1, b.newLane(0), a.desk, size, 0),
	}
	t.all(2, func(i int) {
		mine, theirs := out[i], out[1-i]
		for n := range uint64(rounds) {
			if i == 1 || n > 0 {
				want := n + uint64(i) // rank 0 gets back what it sent a round before
				mine.await("the other side", theirs.counter, want)
				if at, bad := differs(mine.read(theirs.dst, size), 2*want+uint64(1-i)); bad {
					t.Fatalf("round %d: rank %d sees a wrong byte %d", n, i, at)
				}
			}
			mine.write(mine.src, patterned(size, 2*(n+1)+uint64(i)))
			mine.push(kernel.TriggerData|kernel.TriggerSignal, 0, 0, size)
			mine.flush()
		}
	})
}

// testDrivenOutlives withdraws what a mapping was made from: it stays until the rank
// itself unmaps it.
func testDrivenOutlives(t *T) {
	l := t.link(framework.KindPort, t.rank(0), t.rank(1))
	a, b := l.ranks[0].desk(), l.ranks[1].desk()
	m := l.ranks[1].alloc(4096)
	reg, err := l.ranks[1].Register(t.ctx, m.segment)
	if err != nil {
		t.Fatalf("rank 1: register: %v", err)
	}
	far := l.driven(0, 0, reg.Key, 4096)
	_ = reg.Key.Close()
	l.ranks[1].release(reg.ID)
	l.ranks[0].release(l.conn[0])
	a.write(far.mem.Addr(), patterned(4096, 3))
	if i, bad := differs(b.read(m.mem.Addr(), 4096), 3); bad {
		t.Errorf("byte %d was lost when the registration and the connection were closed", i)
	}
}
