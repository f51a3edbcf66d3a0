package memory_test

import (
	"math/rand/v2"
	"strings"
	"testing"
	"unsafe"

	"github.com/mscclpp-go/mscclpp/internal/gfx/machine"
	"github.com/mscclpp-go/mscclpp/internal/gfx/memory"
)

// bench is two GPUs of two XCDs each, with memory of the first.
type bench struct {
	t    *testing.T
	c    *memory.Caches
	data []uint64
}

func newBench(t *testing.T, arch string, kind memory.Kind) *bench {
	t.Helper()
	b := &bench{t: t, data: make([]uint64, 64)}
	r := &memory.Regions{}
	start := b.addr(0)
	if err := r.Add(memory.Region{Start: start, End: start + 512, Owner: 0, Kind: kind}); err != nil {
		t.Fatal(err)
	}
	xcds := map[string]int{"gfx942": 2, "gfx90a": 1}[arch]
	b.c = memory.NewCaches(r, 2, memory.Shape{Arch: arch, XCDs: xcds, CUs: 2})
	return b
}

func (b *bench) addr(n int) uint64 { return uint64(uintptr(unsafe.Pointer(&b.data[n]))) }

func (b *bench) store(c machine.Core, s machine.Scope, n int, v uint32) {
	b.t.Helper()
	if err := b.c.Store(c, s, b.addr(n), 4, &[4]uint32{v}); err != nil {
		b.t.Fatal(err)
	}
}

// expect loads, and compares.
func (b *bench) expect(c machine.Core, s machine.Scope, n int, want uint32) {
	b.t.Helper()
	var d [4]uint32
	if err := b.c.Load(c, s, b.addr(n), 4, &d); err != nil {
		b.t.Fatal(err)
	}
	if d[0] != want {
		b.t.Errorf("%+v loads %d: expected %d", c, d[0], want)
	}
}

func (b *bench) writeBack(c machine.Core) {
	b.t.Helper()
	if err := b.c.WriteBack(c); err != nil {
		b.t.Fatal(err)
	}
}

var (
	own   = machine.Core{}
	unit  = machine.Core{CU: 1}
	other = machine.Core{XCD: 1}
	peer  = machine.Core{Device: 1}
)

// A plain store stays in the cache of its XCD until it is written back, and then drops the lines of the owner's caches.
func TestCoarse(t *testing.T) {
	b := newBench(t, "gfx942", memory.Coarse)
	b.expect(other, machine.Wave, 0, 0)
	b.store(own, machine.Wave, 0, 7)
	b.expect(unit, machine.Wave, 0, 7) // of the same XCD
	b.expect(other, machine.System, 0, 0)
	b.writeBack(other)
	b.expect(other, machine.System, 0, 0)
	b.writeBack(own)
	b.expect(other, machine.System, 0, 7)
}

// The first cache of a compute unit notices no stores, until it is invalidated.
func TestFirstCache(t *testing.T) {
	b := newBench(t, "gfx942", memory.Uncached)
	b.expect(unit, machine.Wave, 0, 0)
	b.store(own, machine.Wave, 0, 7)
	b.expect(unit, machine.Wave, 0, 0)
	b.c.Invalidate(unit, machine.Group, true, false)
	b.expect(unit, machine.Wave, 0, 0)
	b.expect(unit, machine.Agent, 0, 7)
	b.store(own, machine.Wave, 0, 8)
	b.c.Invalidate(unit, machine.Agent, true, false)
	b.expect(unit, machine.Wave, 0, 8)
}

// Memory of another GPU is kept, and nobody says when it changes; an acquire for the system drops it.
func TestPeer(t *testing.T) {
	b := newBench(t, "gfx942", memory.Coarse)
	b.expect(peer, machine.System, 1, 0)
	b.store(own, machine.System, 1, 7)
	b.expect(peer, machine.System, 1, 0)
	b.c.Invalidate(peer, machine.Agent, true, false)
	b.expect(peer, machine.System, 1, 0)
	b.c.Invalidate(peer, machine.System, true, true)
	b.expect(peer, machine.System, 1, 7)

	b.expect(own, machine.Wave, 2, 0)
	b.store(peer, machine.Wave, 2, 5)
	b.c.Invalidate(peer, machine.System, true, true) // nothing is lost that was not written
	b.expect(own, machine.System, 2, 0)
	err := b.c.End(0)
	if err == nil || !strings.Contains(err.Error(), "device 1 stored") {
		t.Errorf("the end of a kernel that misses a store: %v", err)
	}
	b.writeBack(peer)
	b.expect(own, machine.System, 2, 5)
	if err := b.c.End(0); err != nil {
		t.Error(err)
	}
}

// On gfx90a the owner of coarse memory does not notice the stores of others.
func TestOlder(t *testing.T) {
	b := newBench(t, "gfx90a", memory.Coarse)
	b.expect(own, machine.System, 0, 0)
	b.store(peer, machine.Wave, 0, 7)
	b.writeBack(peer)
	b.expect(own, machine.System, 0, 0)

	u := newBench(t, "gfx90a", memory.Uncached)
	u.expect(own, machine.System, 0, 0)
	u.store(peer, machine.Wave, 0, 7)
	u.expect(own, machine.System, 0, 7)
}

// Bytes that two XCDs write in one line do not overwrite each other.
func TestLine(t *testing.T) {
	b := newBench(t, "gfx942", memory.Coarse)
	b.store(own, machine.Wave, 0, 1)
	b.store(other, machine.Wave, 1, 2)
	b.writeBack(own)
	b.writeBack(other)
	if b.data[0] != 1 || b.data[1] != 2 {
		t.Errorf("memory has %v", b.data[:2])
	}
	random := rand.New(rand.NewPCG(1, 2))
	b.store(own, machine.Wave, 3, 9)
	for range 2000 {
		b.c.Drift(random)
	}
	if b.data[3] != 9 {
		t.Error("nothing was evicted")
	}
}

// Atomic operations are performed where all see them; those for the own GPU on memory of another one are not.
func TestAtomics(t *testing.T) {
	b := newBench(t, "gfx942", memory.Coarse)
	add := func(c machine.Core, s machine.Scope) uint32 {
		d := [4]uint32{1}
		if err := b.c.Atomic(c, s, machine.Add, b.addr(0), 4, &d); err != nil {
			t.Fatal(err)
		}
		return d[0]
	}
	b.store(own, machine.Wave, 0, 10)
	if a, o := add(own, machine.Group), add(other, machine.Group); a != 10 || o != 11 {
		t.Errorf("old values %d, %d", a, o)
	}
	if p, o := add(peer, machine.System), add(own, machine.System); p != 12 || o != 13 {
		t.Errorf("old values %d, %d", p, o)
	}
	add(peer, machine.Group)
	if o := add(own, machine.System); o != 14 {
		t.Errorf("old value %d: expected that the peer's was in its cache", o)
	}
}

// Addresses of no memory, and of what nobody writes, are refused.
func TestRefused(t *testing.T) {
	b := newBench(t, "gfx942", memory.Coarse)
	code := make([]byte, 64)
	b.c.Constant(code)
	defer b.c.Forget(code)
	at := uint64(uintptr(unsafe.Pointer(unsafe.SliceData(code))))
	var d [4]uint32
	for _, c := range []struct {
		err  error
		want string
	}{
		{b.c.Load(own, machine.Wave, b.addr(0)+512, 4, &d), "no memory"},
		{b.c.Load(own, machine.Wave, b.addr(0)+510, 4, &d), "not aligned"},
		{b.c.Load(own, machine.Wave, b.addr(0)+508, 8, &d), "no memory"},
		{b.c.Store(own, machine.Wave, at, 4, &d), "code or arguments"},
		{b.c.Atomic(own, machine.Wave, machine.CompareSwap, b.addr(0), 8, &d), "no committed kernel"},
		{b.c.Load(own, machine.Wave, at, 4, &d), ""},
	} {
		if c.want == "" && c.err != nil || c.want != "" && (c.err == nil || !strings.Contains(c.err.Error(), c.want)) {
			t.Errorf("%v: expected %q", c.err, c.want)
		}
	}
}
