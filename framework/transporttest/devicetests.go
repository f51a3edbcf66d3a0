package transporttest

import (
	"slices"

	"github.com/mscclpp-go/mscclpp/framework"
)

// The tests of channels on memory that this process cannot touch: what the device
// itself reads and writes through the mappings.
var deviceTests = []test{
	{name: "device/put-get", when: apart(framework.KindMemory), body: testDevicePutGet},
	{name: "device/ranges", when: apart(framework.KindMemory), body: testDeviceRanges},
	{name: "device/every-share", when: apart(framework.KindMemory), body: testDeviceEveryShare},
	{name: "device/one-side", when: apart(framework.KindMemory), body: testDeviceOneSide},
	{name: "device/outlives", when: apart(framework.KindMemory), body: testDeviceOutlives},
	{name: "device/beyond-the-end", when: apart(framework.KindMemory), body: testDeviceBeyond},
	{name: "device/memory-survives", when: func(c claims) bool { return c.process && apart(framework.KindMemory)(c) }, body: testDeviceSurvives},
}

func apart(kind framework.Kind) func(c claims) bool {
	return func(c claims) bool { return c.memory.apart && c.engine && c.Has(kind) }
}

// put stores a pattern through the rank's device.
func (d *desk) put(addr uintptr, n int, seed uint64) {
	b := make([]byte, n)
	fill(b, seed)
	d.write(addr, b)
}

// sees checks that the rank's device finds a pattern.
func (d *desk) sees(what string, addr uintptr, n int, seed uint64) {
	if i, bad := differs(d.read(addr, n), seed); bad {
		d.t.Errorf("%s: byte %d of %d is wrong for rank %d", what, i, n, d.n)
	}
}

// deviceLink is a memory link of two ranks, and how each looks at its device.
func (t *T) deviceLink() (l *link, a, b *desk) {
	l = t.link(framework.KindMemory, t.rank(0), t.rank(1))
	return l, l.ranks[0].desk(), l.ranks[1].desk()
}

// opens allocates memory of rank 1, and has rank 0 reach it.
func (l *link) opens(bytes uint64) (owner *buffer, far window) {
	owner = l.ranks[1].alloc(bytes)
	return owner, l.reach(0, l.ranks[1].registered(owner.segment).Key)
}

func testDevicePutGet(t *T) {
	const room = 1 << 17
	l, a, b := t.deviceLink()
	owner, far := l.opens(room)
	if far.mem.Bytes() != room {
		t.Fatalf("the mapping has %d bytes, the memory %d", far.mem.Bytes(), room)
	}
	seed := uint64(0)
	for _, at := range []int{0, 1, 4, 8, 16, 63, 4096} {
		for _, n := range []int{1, 7, 8, 4096, 65535} {
			seed++
			around := slices.Clone(b.read(owner.mem.Addr(), room))
			a.put(far.mem.Addr()+uintptr(at), n, seed)
			after := b.read(owner.mem.Addr(), room)
			fill(around[at:at+n], seed)
			if i, bad := unlike(after, around); bad {
				t.Fatalf("put of %d bytes at %d: byte %d is wrong at the owner", n, at, i)
			}
			b.put(owner.mem.Addr()+uintptr(at), n, seed+1000)
			a.sees("get", far.mem.Addr()+uintptr(at), n, seed+1000)
		}
	}
}

// testDeviceRanges registers parts of allocations: a part is reached as a part. A
// driver may map allocations in whole units of some MiB, and no fewer than there are:
// so the parts end in the last unit.
func testDeviceRanges(t *T) {
	l, a, b := t.deviceLink()
	small, large := l.ranks[1].alloc(1<<20), l.ranks[1].alloc(1<<22)
	for _, part := range []struct {
		m       *buffer
		from, n int
	}{
		{small, 0, 1}, {small, 1, 7}, {small, 4096, 4096}, {small, 100, 9000}, {small, 1<<20 - 1, 1},
		{large, 1 << 21, 1 << 20}, {large, 3<<20 + 77, 4097}, {large, 1<<22 - 1, 1},
	} {
		m, from, n := part.m, part.from, part.n
		w := l.reach(0, l.ranks[1].registered(m.part(uint64(from), uint64(n))).Key)
		if w.mem.Bytes() != uint64(n) {
			t.Errorf("%d bytes at %d: the mapping has %d bytes", n, from, w.mem.Bytes())
		}
		a.put(w.mem.Addr(), n, uint64(from))
		b.sees("put into a part", m.mem.Addr()+uintptr(from), n, uint64(from))
	}
}

func testDeviceEveryShare(t *T) {
	l, a, b := t.deviceLink()
	m := l.ranks[1].alloc(8192)
	recipe, err := a.Attach(t.ctx, l.conn[0], 0, []framework.Parcel{l.ranks[1].registered(m.segment).Key})
	if err != nil {
		t.Fatalf("attach: %v", err)
	}
	defer recipe.Close()
	for _, mapping := range recipe.Mappings {
		for i, share := range mapping.Shares {
			if share.Kind == framework.ShareLegacyIPC {
				continue // cannot be opened by its exporter, which this process is
			}
			one := mapping
			one.Shares = mapping.Shares[i : i+1]
			mem, err := a.device.Map(one)
			if err != nil {
				t.Errorf("share %d of kind %s: %v", i, share.Kind, err)
				continue
			}
			a.put(mem.Addr(), 8192, uint64(i))
			b.sees("put through a share of kind "+string(share.Kind), m.mem.Addr(), 8192, uint64(i))
			_ = mem.Close()
		}
	}
}

func testDeviceOneSide(t *T) {
	r := t.rank(0)
	l := t.link(framework.KindMemory, r, t.join(1, r.side, r.ids))
	owner, far := l.opens(4096)
	r.desk().put(far.mem.Addr(), 4096, 3)
	l.ranks[1].desk().sees("put between ranks of one side", owner.mem.Addr(), 4096, 3)
}

func testDeviceOutlives(t *T) {
	l, a, b := t.deviceLink()
	m := l.ranks[1].alloc(4096)
	reg := l.ranks[1].registered(m.segment)
	w := l.reach(0, reg.Key)
	l.ranks[0].release(l.conn[0])
	l.ranks[1].release(l.conn[1])
	l.ranks[1].release(reg.ID)
	a.put(w.mem.Addr(), 4096, 9)
	b.sees("put after the connection was closed", m.mem.Addr(), 4096, 9)
}

// unlike finds the first byte in which two slices of one length differ.
func unlike(a, b []byte) (int, bool) {
	for i := range a {
		if a[i] != b[i] {
			return i, true
		}
	}
	return 0, false
}

// testDeviceBeyond registers more than there is. Where the transport cannot see
// that, mapping fails: nobody gets an address that is not backed.
func testDeviceBeyond(t *T) {
	l := t.link(framework.KindMemory, t.rank(0), t.rank(1))
	b := l.ranks[1].alloc(4096)
	reg, err := l.ranks[1].Register(t.ctx, b.part(0, 1<<30))
	if err != nil {
		t.wantClass("register more than there is", err, framework.ErrInvalid)
		return
	}
	defer l.ranks[1].release(reg.ID)
	defer reg.Key.Close()
	a, err := l.ranks[0].Attach(t.ctx, l.conn[0], 0, []framework.Parcel{reg.Key})
	if err != nil {
		t.wantClass("attach to more than there is", err, framework.ErrPeer, framework.ErrInvalid)
		return
	}
	defer a.Close()
	for _, m := range a.Mappings {
		if mem, err := l.ranks[0].device.Map(m); err == nil {
			t.Errorf("1 GiB of an allocation of 4096 bytes was mapped")
			_ = mem.Close()
		}
	}
}

// testDeviceSurvives kills both plugins and goes on using the memory.
func testDeviceSurvives(t *T) {
	l, a, b := t.deviceLink()
	owner, far := l.opens(1 << 16)
	t.kill(l.ranks[0])
	t.kill(l.ranks[1])
	a.put(far.mem.Addr(), 1<<16, 5)
	b.sees("put after the death of the plugins", owner.mem.Addr(), 1<<16, 5)
}
