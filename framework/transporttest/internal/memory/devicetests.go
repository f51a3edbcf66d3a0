package memory

import (
	"slices"

	"github.com/mscclpp-go/mscclpp/framework"
	"github.com/mscclpp-go/mscclpp/framework/transporttest/internal/harness"
)

// The tests of channels on memory that this process cannot touch: what the device
// itself reads and writes through the mappings.
var deviceTests = []harness.Test{
	{
		Name: "device/put-get", Rule: "As memory/put-get, by the device itself.",
		When: apart(framework.KindMemory), Body: testDevicePutGet,
	},
	{
		Name: "device/ranges", Rule: "As memory/ranges, by the device itself.",
		When: apart(framework.KindMemory), Body: testDeviceRanges,
	},
	{
		Name: "device/every-share", Rule: "As memory/every-share, by the device itself.",
		When: apart(framework.KindMemory), Body: testDeviceEveryShare,
	},
	{
		Name: "device/one-side", Rule: "As memory/one-side, by the device itself.",
		When: apart(framework.KindMemory), Body: testDeviceOneSide,
	},
	{
		Name: "device/outlives", Rule: "As memory/outlives, by the device itself.",
		When: apart(framework.KindMemory), Body: testDeviceOutlives,
	},
	{
		Name: "device/beyond-the-end", Rule: "Nothing maps beyond the end of an allocation.",
		When: apart(framework.KindMemory), Body: testDeviceBeyond,
	},
	{
		Name: "device/memory-survives", Rule: "Mappings belong to the ranks and survive the plugins.",
		When: func(c harness.Claims) bool { return c.Process && apart(framework.KindMemory)(c) }, Body: testDeviceSurvives,
	},
}

func apart(kind framework.Kind) func(c harness.Claims) bool {
	return func(c harness.Claims) bool { return c.Memory.Apart && c.Engine && c.Has(kind) }
}

// put stores a pattern through the rank's device.
func put(d *harness.DeviceView, addr uintptr, n int, seed uint64) {
	b := make([]byte, n)
	harness.Fill(b, seed)
	d.Write(addr, b)
}

// sees checks that the rank's device finds a pattern.
func sees(d *harness.DeviceView, what string, addr uintptr, n int, seed uint64) {
	if i, bad := harness.Differs(d.Read(addr, n), seed); bad {
		d.T.Errorf("%s: byte %d of %d is wrong for rank %d", what, i, n, d.N)
	}
}

// deviceLink is a memory link of two ranks, and how each looks at its device.
func deviceLink(t *harness.T) (l *harness.Link, a, b *harness.DeviceView) {
	l = t.Link(framework.KindMemory, t.Rank(0), t.Rank(1))
	return l, l.Ranks[0].DeviceView(), l.Ranks[1].DeviceView()
}

// opens allocates memory of rank 1, and has rank 0 reach it.
func opens(l *harness.Link, bytes uint64) (owner *harness.Buffer, far harness.Window) {
	owner = l.Ranks[1].Alloc(bytes)
	return owner, l.Reach(0, l.Ranks[1].Registered(owner.Segment).Key)
}

func testDevicePutGet(t *harness.T) {
	const room = 1 << 17
	l, a, b := deviceLink(t)
	owner, far := opens(l, room)
	if far.Mem.Bytes() != room {
		t.Fatalf("the mapping has %d bytes, the memory %d", far.Mem.Bytes(), room)
	}
	seed := uint64(0)
	for _, at := range []int{0, 1, 4, 8, 16, 63, 4096} {
		for _, n := range []int{1, 7, 8, 4096, 65535} {
			seed++
			around := slices.Clone(b.Read(owner.Mem.Addr(), room))
			put(a, far.Mem.Addr()+uintptr(at), n, seed)
			after := b.Read(owner.Mem.Addr(), room)
			harness.Fill(around[at:at+n], seed)
			if i, bad := unlike(after, around); bad {
				t.Fatalf("put of %d bytes at %d: byte %d is wrong at the owner", n, at, i)
			}
			put(b, owner.Mem.Addr()+uintptr(at), n, seed+1000)
			sees(a, "get", far.Mem.Addr()+uintptr(at), n, seed+1000)
		}
	}
}

// testDeviceRanges registers parts of allocations: a part is reached as a part. A
// driver may map allocations in whole units of some MiB, and no fewer than there are:
// so the parts end in the last unit.
func testDeviceRanges(t *harness.T) {
	l, a, b := deviceLink(t)
	small, large := l.Ranks[1].Alloc(1<<20), l.Ranks[1].Alloc(1<<22)
	for _, part := range []struct {
		m       *harness.Buffer
		from, n int
	}{
		{small, 0, 1}, {small, 1, 7}, {small, 4096, 4096}, {small, 100, 9000}, {small, 1<<20 - 1, 1},
		{large, 1 << 21, 1 << 20}, {large, 3<<20 + 77, 4097}, {large, 1<<22 - 1, 1},
	} {
		m, from, n := part.m, part.from, part.n
		w := l.Reach(0, l.Ranks[1].Registered(m.Part(uint64(from), uint64(n))).Key)
		if w.Mem.Bytes() != uint64(n) {
			t.Errorf("%d bytes at %d: the mapping has %d bytes", n, from, w.Mem.Bytes())
		}
		put(a, w.Mem.Addr(), n, uint64(from))
		sees(b, "put into a part", m.Mem.Addr()+uintptr(from), n, uint64(from))
	}
}

func testDeviceEveryShare(t *harness.T) {
	l, a, b := deviceLink(t)
	m := l.Ranks[1].Alloc(8192)
	recipe, err := a.Attach(t.Context(), l.Conn[0], 0, []framework.Parcel{l.Ranks[1].Registered(m.Segment).Key})
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
			mem, err := a.Device.Map(one)
			if err != nil {
				t.Errorf("share %d of kind %s: %v", i, share.Kind, err)
				continue
			}
			put(a, mem.Addr(), 8192, uint64(i))
			sees(b, "put through a share of kind "+string(share.Kind), m.Mem.Addr(), 8192, uint64(i))
			_ = mem.Close()
		}
	}
}

func testDeviceOneSide(t *harness.T) {
	r := t.Rank(0)
	l := t.Link(framework.KindMemory, r, t.Join(1, r.Side, r.Ids))
	owner, far := opens(l, 4096)
	put(r.DeviceView(), far.Mem.Addr(), 4096, 3)
	sees(l.Ranks[1].DeviceView(), "put between ranks of one side", owner.Mem.Addr(), 4096, 3)
}

func testDeviceOutlives(t *harness.T) {
	l, a, b := deviceLink(t)
	m := l.Ranks[1].Alloc(4096)
	reg := l.Ranks[1].Registered(m.Segment)
	w := l.Reach(0, reg.Key)
	l.Ranks[0].Release(l.Conn[0])
	l.Ranks[1].Release(l.Conn[1])
	l.Ranks[1].Release(reg.ID)
	put(a, w.Mem.Addr(), 4096, 9)
	sees(b, "put after the connection was closed", m.Mem.Addr(), 4096, 9)
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
// that, mapping fails: no rank gets an address that is not backed.
func testDeviceBeyond(t *harness.T) {
	l := t.Link(framework.KindMemory, t.Rank(0), t.Rank(1))
	b := l.Ranks[1].Alloc(4096)
	reg, err := l.Ranks[1].Register(t.Context(), b.Part(0, 1<<30))
	if err != nil {
		t.WantClass("register more than there is", err, framework.ErrInvalid)
		return
	}
	defer l.Ranks[1].Release(reg.ID)
	defer reg.Key.Close()
	a, err := l.Ranks[0].Attach(t.Context(), l.Conn[0], 0, []framework.Parcel{reg.Key})
	if err != nil {
		t.WantClass("attach to more than there is", err, framework.ErrPeer, framework.ErrInvalid)
		return
	}
	defer a.Close()
	for _, m := range a.Mappings {
		if mem, err := l.Ranks[0].Device.Map(m); err == nil {
			t.Errorf("1 GiB of an allocation of 4096 bytes was mapped")
			_ = mem.Close()
		}
	}
}

// testDeviceSurvives kills both plugins and goes on using the memory.
func testDeviceSurvives(t *harness.T) {
	l, a, b := deviceLink(t)
	owner, far := opens(l, 1<<16)
	t.Kill(l.Ranks[0])
	t.Kill(l.Ranks[1])
	put(a, far.Mem.Addr(), 1<<16, 5)
	sees(b, "put after the death of the plugins", owner.Mem.Addr(), 1<<16, 5)
}
