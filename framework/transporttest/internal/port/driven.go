package port

import (
	"bytes"
	"context"
	"encoding/binary"

	"github.com/mscclpp-go/mscclpp/framework"
	"github.com/mscclpp-go/mscclpp/framework/kernel"
	"github.com/mscclpp-go/mscclpp/framework/proxy"
	"github.com/mscclpp-go/mscclpp/framework/ring"
	"github.com/mscclpp-go/mscclpp/framework/transporttest/internal/harness"
)

// The tests below are for port channels that the rank drives, by the copy engine of
// its own device: they need one.
func drivenClaimed(c harness.Claims) bool {
	return c.Has(framework.KindPort) && c.Proxy == framework.ProxyRank && c.Engine
}

var drivenTests = []harness.Test{
	{
		Name: "driven/recipe", Rule: "The recipe of a port that the rank drives reaches the segment at its offset.",
		When: drivenClaimed, Body: testDrivenRecipe,
	},
	{
		Name: "driven/put", Rule: "Puts by the rank's copy engine reach exactly the bytes meant.",
		When: drivenClaimed, Body: testDrivenPut,
	},
	{
		Name: "driven/signal-after-data", Rule: "A signal never overtakes the data before it.",
		When: drivenClaimed, Body: testDrivenSignal,
	},
	{
		Name: "driven/order", Rule: "Triggers are performed in their order.",
		When: drivenClaimed, Body: testDrivenOrder,
	},
	{
		Name: "driven/flush", Rule: "After a flush the source can be reused.",
		When: drivenClaimed, Body: testDrivenFlush,
	},
	{
		Name: "driven/peers", Rule: "One ring serves channels to several peers.",
		When: drivenClaimed, Body: testDrivenPeers,
	},
	{
		Name: "driven/both-ways", Rule: "Both directions work at once.",
		When: drivenClaimed, Body: testDrivenBothDirections,
	},
	{
		Name: "driven/outlives", Rule: "What a channel uses outlives the ids that it came from.",
		When: drivenClaimed, Body: testDrivenOutlives,
	},
}

// driver is a rank that drives its port channels: a ring, and the copier that comm
// has as well.
type driver struct {
	*harness.DeviceView
	ring   *ring.Ring
	base   uintptr // of the ring, for the device
	copier *proxy.Copier
}

func newDriver(r *harness.Rank, slots int) *driver {
	t := r.T
	d := &driver{DeviceView: r.DeviceView()}
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
	seen, err := r.Device.Map(framework.Mapping{
		Role: framework.RolePeer, Peer: framework.NoPeer, Shares: []framework.Share{share}, Bytes: d.ring.Bytes(),
	})
	if err != nil {
		t.Fatalf("rank %d: show the ring to the device: %v", r.N, err)
	}
	t.Cleanup(func() { _ = seen.Close() })
	d.base = seen.Addr()
	d.copier = proxy.NewCopier(d.ring, d.base, proxy.Options{})
	if err := d.copier.Start(); err != nil {
		t.Fatalf("rank %d: start the copier: %v", r.N, err)
	}
	t.Cleanup(func() {
		if t.Failed() {
			d.copier.Quit()
		}
		if err := d.copier.Stop(context.Background()); err != nil && !t.Failed() {
			t.Errorf("rank %d: stop the copier: %v", r.N, err)
		}
	})
	return d
}

// drivenChannel is one direction of a port connection.
type drivenChannel struct {
	*driver
	peer     *harness.DeviceView
	src, dst uintptr
	counter  uintptr // of the receiver, as the receiver sees it
	room     uint64
	slot     uint32 // of the semaphore; memories are 2 × slot and 2 × slot + 1
}

// drives makes side i of a port link the sender of a channel. The receiver opens a
// part of its memory, to see that the recipe keeps to it.
func (d *driver) drives(l *harness.Link, i int, lane *proxy.Lane, peer *harness.DeviceView, room uint64, slot uint32) *drivenChannel {
	const before = 4096
	t := d.T
	receiver := l.Ranks[1-i]
	src, dst, counters := d.Alloc(room), receiver.Alloc(room+2*before), receiver.Alloc(4096)
	own := d.Registered(src.Segment)
	far := driven(l, i, own.ID, receiver.Registered(dst.Part(before, room)).Key, room)
	words := driven(l, i, 0, receiver.Registered(counters.Segment).Key, 4096)
	for _, err := range []error{
		d.copier.BindSource(2*slot, src.Mem.Addr(), room),
		d.copier.BindTarget(2*slot+1, far.Mem.Addr(), room, lane),
		d.copier.BindSemaphore(slot, lane.Counter(proxy.Word{Device: words.Mem.Addr() + harness.SignalAt})),
	} {
		if err != nil {
			t.Fatalf("rank %d: %v", d.N, err)
		}
	}
	return &drivenChannel{
		driver: d, peer: peer, src: src.Mem.Addr(), dst: dst.Mem.Addr() + before,
		counter: counters.Mem.Addr() + harness.SignalAt, room: room, slot: slot,
	}
}

// driven carries out the recipe that reaches the memory behind key over a port
// connection.
func driven(l *harness.Link, i int, local framework.ID, key framework.Parcel, bytes uint64) harness.Window {
	t, r := l.T, l.Ranks[i]
	a, err := r.Attach(t.Context(), l.Conn[i], local, []framework.Parcel{key})
	if err != nil {
		t.Fatalf("rank %d: attach to a port that the rank drives: %v", r.N, err)
	}
	if len(a.Mappings) != 1 || a.Mappings[0].Role != framework.RolePeer || a.Mappings[0].Peer != l.Ranks[1-i].N || a.Mappings[0].Bytes < bytes {
		_ = a.Close()
		t.Fatalf("rank %d: the recipe is %+v: want one mapping, of role peer, with the %d bytes of rank %d", r.N, a, bytes, l.Ranks[1-i].N)
	}
	w := (&harness.RecipeRunner{Rank: r, Meet: harness.NewBarrier(1)}).Perform(a)
	if w[0].Mem == nil {
		t.Fatalf("rank %d: no step of the recipe maps the peer's memory: %+v", r.N, a.Steps)
	}
	return w[0]
}

// drivenChannel is a channel from rank 0 to rank 1.
func newDrivenChannel(t *harness.T, slots int, room uint64) *drivenChannel {
	l := t.Link(framework.KindPort, t.Rank(0), t.Rank(1))
	d := newDriver(l.Ranks[0], slots)
	return d.drives(l, 0, d.NewLane(1), l.Ranks[1].DeviceView(), room, 0)
}

func (c *drivenChannel) push(kind, dst, src, n uint64) (pos uint64) {
	ctx, cancel := context.WithTimeout(c.T.Context(), c.T.Options.CallLimit)
	defer cancel()
	pos, err := c.ring.PushContext(ctx, kernel.TriggerFields{
		Kind: kind, Bytes: n, From: src, To: dst, Src: 2 * c.slot, Dst: 2*c.slot + 1, Slot: c.slot,
	}.Pack())
	if err != nil {
		c.T.Fatalf("rank %d: push: %v%s", c.N, err, c.why())
	}
	return pos
}

// why is the copier's own account of its end, if it has ended.
func (c *drivenChannel) why() string {
	if c.ring.Err() == nil {
		return ""
	}
	return "; the copier says: " + harness.ErrorText(c.copier.Wait(c.T.Context()))
}

func (c *drivenChannel) flush() {
	ctx, cancel := context.WithTimeout(c.T.Context(), c.T.Options.CallLimit)
	defer cancel()
	if err := c.ring.WaitFlushed(ctx, c.slot, c.push(kernel.TriggerFlush, 0, 0, 0)); err != nil {
		c.T.Fatalf("rank %d: flush: %v%s", c.N, err, c.why())
	}
}

func patterned(n int, seed uint64) []byte {
	b := make([]byte, n)
	harness.Fill(b, seed)
	return b
}

// testDrivenRecipe reaches memory over a port, at several offsets: what is stored
// through the mapping is at the owner where the segment was.
func testDrivenRecipe(t *harness.T) {
	l := t.Link(framework.KindPort, t.Rank(0), t.Rank(1))
	a, b := l.Ranks[0].DeviceView(), l.Ranks[1].DeviceView()
	m := l.Ranks[1].Alloc(1 << 18)
	for n, at := range []uint64{0, 8, 4096, 12344, 1<<18 - 4096} {
		far := driven(l, 0, 0, l.Ranks[1].Registered(m.Part(at, 4096)).Key, 4096)
		a.Write(far.Mem.Addr(), patterned(4096, uint64(n)))
		if i, bad := harness.Differs(b.Read(m.Mem.Addr()+uintptr(at), 4096), uint64(n)); bad {
			t.Fatalf("segment at %d: byte %d is not what was stored through the mapping", at, i)
		}
	}
}

func testDrivenPut(t *harness.T) {
	const room, guard = 1 << 17, 0xa5
	c := newDrivenChannel(t, 64, room)
	around := bytes.Repeat([]byte{guard}, 128)
	for n, size := range []int{0, 1, 3, 8, 17, 64, 255, 4097, 65535} {
		for k, at := range []int{0, 1, 7, 64, 4095} {
			seed := uint64(100*n + k)
			from := 64 - 9*k
			c.peer.Write(c.dst+uintptr(at), bytes.Repeat([]byte{guard}, size+128))
			c.Write(c.src+uintptr(from), patterned(size, seed))
			c.push(kernel.TriggerData, uint64(at), uint64(from), uint64(size))
			c.flush()
			got := c.peer.Read(c.dst+uintptr(at), size+128)
			if i, bad := harness.Differs(got[:size], seed); bad {
				t.Fatalf("put of %d bytes from %d to %d: byte %d is wrong after the flush", size, from, at, i)
			}
			if !bytes.Equal(got[size:], around) {
				t.Fatalf("put of %d bytes from %d to %d changed bytes behind it", size, from, at)
			}
		}
	}
}

// testDrivenSignal looks at the data as soon as the counter moves.
func testDrivenSignal(t *harness.T) {
	const rounds, slots, size = 64, 8, 1 << 15
	c := newDrivenChannel(t, 64, slots*size)
	for n := range uint64(rounds) {
		at := n % slots * size
		if n < slots {
			c.Write(c.src+uintptr(at), patterned(size, n))
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
		c.peer.Await("signal after a put", c.counter, n+1)
		if i, bad := harness.Differs(c.peer.Read(c.dst+uintptr(at), size), n); bad {
			t.Fatalf("round %d: byte %d of %d arrived after its signal", n, i, size)
		}
	}
	c.flush()
	if got := c.peer.Count(c.counter); got != rounds {
		t.Errorf("the counter is %d after %d signals", got, rounds)
	}
}

// testDrivenOrder overwrites one word, many more times than a ring or a stream holds.
func testDrivenOrder(t *harness.T) {
	const puts = 4000
	c := newDrivenChannel(t, 64, 8*puts)
	values := make([]byte, 8*puts)
	for n := range uint64(puts) {
		binary.LittleEndian.PutUint64(values[8*n:], n+1)
	}
	c.Write(c.src, values)
	t.Spawn(func() {
		for n := range uint64(puts) {
			c.push(kernel.TriggerData|kernel.TriggerSignal, 0, 8*n, 8)
		}
	})
	for last := uint64(0); last < puts; {
		signals := c.peer.Count(c.counter)
		now := c.peer.Count(c.dst)
		if now < last || now < signals {
			t.Fatalf("saw put %d after put %d, with %d signals: puts are out of order", now, last, signals)
		}
		if last = now; t.Failed() || t.Context().Err() != nil {
			t.Fatalf("%d of %d puts arrived", last, puts)
		}
	}
	c.flush()
	if got := c.peer.Count(c.counter); got != puts {
		t.Errorf("%d signals arrived, %d were sent", got, puts)
	}
}

// testDrivenFlush reuses the source as soon as a flush is over.
func testDrivenFlush(t *harness.T) {
	const size = 1 << 18
	c := newDrivenChannel(t, 16, size)
	for n := range uint64(20) {
		c.Write(c.src, patterned(size, n))
		if n%2 == 0 {
			c.push(kernel.TriggerData, 0, 0, size)
			c.flush()
		} else {
			pos := c.push(kernel.TriggerData|kernel.TriggerSignal|kernel.TriggerFlush, 0, 0, size)
			ctx, cancel := context.WithTimeout(t.Context(), t.Options.CallLimit)
			err := c.ring.WaitFlushed(ctx, c.slot, pos)
			cancel()
			if err != nil {
				t.Fatalf("flush with a put: %v%s", err, c.why())
			}
		}
		c.Write(c.src, make([]byte, size))
		if i, bad := harness.Differs(c.peer.Read(c.dst, size), n); bad {
			t.Fatalf("round %d: byte %d is not there after the flush", n, i)
		}
	}
}

// testDrivenPeers has one ring serve two channels to each of two peers, with many
// puts outstanding.
func testDrivenPeers(t *harness.T) {
	const each, size = 300, 4096
	a := t.Rank(0)
	d := newDriver(a, 128)
	var all []*drivenChannel
	for n := range 2 {
		l := t.Link(framework.KindPort, a, t.Rank(n+1))
		lane, peer := d.NewLane(n+1), l.Ranks[1].DeviceView()
		for range 2 {
			c := d.drives(l, 0, lane, peer, each*size/4, uint32(len(all)))
			c.Write(c.src, patterned(each*size/4, uint64(c.slot)))
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
		if got := c.peer.Count(c.counter); got != each {
			t.Errorf("channel %d: %d signals arrived of %d", c.slot, got, each)
		}
		if i, bad := harness.Differs(c.peer.Read(c.dst, int(c.room)), uint64(c.slot)); bad {
			t.Errorf("channel %d: byte %d is wrong", c.slot, i)
		}
	}
}

// testDrivenBothDirections hands a buffer to and fro.
func testDrivenBothDirections(t *harness.T) {
	const rounds, size = 30, 1024
	l := t.Link(framework.KindPort, t.Rank(0), t.Rank(1))
	a, b := newDriver(l.Ranks[0], 16), newDriver(l.Ranks[1], 16)
	out := [2]*drivenChannel{
		a.drives(l, 0, a.NewLane(1), b.DeviceView, size, 0),
		b.drives(l, 1, b.NewLane(0), a.DeviceView, size, 0),
	}
	t.All(2, func(i int) {
		mine, theirs := out[i], out[1-i]
		for n := range uint64(rounds) {
			if i == 1 || n > 0 {
				want := n + uint64(i) // rank 0 gets back what it sent a round before
				mine.Await("the other side", theirs.counter, want)
				if at, bad := harness.Differs(mine.Read(theirs.dst, size), 2*want+uint64(1-i)); bad {
					t.Fatalf("round %d: rank %d sees a wrong byte %d", n, i, at)
				}
			}
			mine.Write(mine.src, patterned(size, 2*(n+1)+uint64(i)))
			mine.push(kernel.TriggerData|kernel.TriggerSignal, 0, 0, size)
			mine.flush()
		}
	})
}

// testDrivenOutlives withdraws what a mapping was made from: it stays until the rank
// itself unmaps it.
func testDrivenOutlives(t *harness.T) {
	l := t.Link(framework.KindPort, t.Rank(0), t.Rank(1))
	a, b := l.Ranks[0].DeviceView(), l.Ranks[1].DeviceView()
	m := l.Ranks[1].Alloc(4096)
	reg, err := l.Ranks[1].Register(t.Context(), m.Segment)
	if err != nil {
		t.Fatalf("rank 1: register: %v", err)
	}
	far := driven(l, 0, 0, reg.Key, 4096)
	_ = reg.Key.Close()
	l.Ranks[1].Release(reg.ID)
	l.Ranks[0].Release(l.Conn[0])
	a.Write(far.Mem.Addr(), patterned(4096, 3))
	if i, bad := harness.Differs(b.Read(m.Mem.Addr(), 4096), 3); bad {
		t.Errorf("byte %d was lost when the registration and the connection were closed", i)
	}
}
