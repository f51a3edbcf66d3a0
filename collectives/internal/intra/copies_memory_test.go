package intra

import (
	"testing"

	"github.com/mscclpp-go/mscclpp/collectives/internal/choose"
	"github.com/mscclpp-go/mscclpp/collectives/internal/engine"
	"github.com/mscclpp-go/mscclpp/collectives/internal/kernelargs"
	"github.com/mscclpp-go/mscclpp/framework/collective"
	"github.com/mscclpp-go/mscclpp/framework/kernel"
)

// A call has as many pieces, of the same sizes, as if each slot had the configured size, and takes no more memory than
// these pieces fill. That of a root has more from 256 MiB on, and passes through half as much memory.
func TestCopyScratchOfCalls(t *testing.T) {
	const configured = 1 << 30
	for _, x := range []struct {
		kind    collective.Kind
		ranks   int
		mib     uint64 // of the larger buffer
		pieces  int
		scratch uint64 // MiB
	}{
		{collective.AllReduce, 2, 256, 2, 128},
		{collective.AllReduce, 2, 512, 2, 256},
		{collective.AllReduce, 2, 1024, 4, 512},
		{collective.AllGather, 2, 512, 2, 256},
		{collective.Broadcast, 2, 256, 2, 256},
		{collective.Broadcast, 2, 288, 4, 256},
		{collective.Broadcast, 2, 512, 6, 256},
		{collective.Reduce, 2, 512, 6, 256},
		{collective.Broadcast, 2, 1024, 6, 512},
		{collective.Broadcast, 2, 4096, 18, 512},
		{collective.ReduceScatter, 8, 512, 2, 512},
		{collective.AllReduce, 8, 1024, 4, 1024},
		{collective.AllReduce, 8, 4096, 10, 1024},
	} {
		k := &copier{ranks: x.ranks, scratch: configured}
		c := &engine.Call{}
		c.Collective, c.Type, c.Count = x.kind, kernel.Float16, x.mib<<20/2
		if x.kind != collective.AllReduce && !x.kind.Rooted() {
			c.Count /= uint64(x.ranks)
		}
		a := &algorithm{Algorithm: engine.New(x.kind, choose.CopyStaged), traits: choose.TraitsOf(choose.CopyStaged, x.kind)}
		k.room = k.ask(k.needs(a, c))
		cut, element := k.cutOf(a, c)
		if n := cut.pieces(); n != x.pieces || k.room != x.scratch<<20 {
			t.Errorf("%v of %d MiB, %d ranks: %d pieces through %d MiB, expected %d through %d", x.kind, x.mib, x.ranks, n, k.room>>20, x.pieces, x.scratch)
		}
		if b := k.bytes(cut, element); b > k.room {
			t.Errorf("%v of %d MiB: slots of %d bytes of %d", x.kind, x.mib, b, k.room)
		}
		k.room = 32 << 20 // all that one rank had
		if cut, element = k.cutOf(a, c); k.bytes(cut, element) > k.room {
			t.Errorf("%v of %d MiB: slots of %d bytes of %d", x.kind, x.mib, k.bytes(cut, element), k.room)
		}
	}
}

// Five communicators of two of NVIDIA's GPUs, of which one at a time has memory for copies, ask the driver for no more than this
// after calls of 512 MiB. It makes memory in units of 2 MiB: for semaphores that peers raise, for what is expected of them, for
// scratch with the state of kernels, and for the copies.
func TestMemoryOfFiveCommunicators(t *testing.T) {
	const most, unit, semaphores = 536 << 20, 2 << 20, 2 * 2 << 20
	units := func(bytes uint64) uint64 { return (bytes + unit - 1) / unit * unit }
	k := &copier{ranks: 2, scratch: 1 << 30}
	copies := uint64(0)
	for _, kind := range collective.All() {
		a := &algorithm{Algorithm: engine.New(kind, choose.CopyStaged), traits: choose.TraitsOf(choose.CopyStaged, kind)}
		c := &engine.Call{}
		c.Collective, c.Type, c.Count = kind, kernel.Float16, 256<<20
		if kind != collective.AllReduce && !kind.Rooted() {
			c.Count /= 2
		}
		copies = max(copies, k.ask(k.needs(a, c)))
	}
	m := memory{}
	g, err := kernelargs.Divide(128<<20, 2, choose.DeviceLanes, kernelargs.DeviceLine)
	if err != nil {
		t.Fatal(err)
	}
	m.geometry = g.WithLamport(2)
	scratch := units(m.bytes(false))
	if all := 5*(semaphores+scratch) + units(copies); all > most {
		t.Errorf("%d MiB, with %d of scratch each: expected at most %d", all>>20, scratch>>20, most>>20)
	}
}
