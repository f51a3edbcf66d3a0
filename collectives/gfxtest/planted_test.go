package gfxtest

import (
	"encoding/binary"
	"errors"
	"strings"
	"testing"

	"github.com/mscclpp-go/mscclpp/collectives/collectivetest"
	"github.com/mscclpp-go/mscclpp/framework"
	"github.com/mscclpp-go/mscclpp/framework/kernel"
	"github.com/mscclpp-go/mscclpp/internal/gfx/isa"
	"github.com/mscclpp-go/mscclpp/internal/gfx/machine"
	"github.com/mscclpp-go/mscclpp/internal/gfx/memory"
)

// nop has no effect; two of them take the place of an instruction of 8 bytes.
const nop = 0xbf800000

// each calls f with every instruction of an object, and the one before it, and replaces those for which f returns words.
func each(o *object, f func(before, i *isa.Inst) []uint32) (changed int) {
	for _, function := range o.Symbols {
		var before isa.Inst
		for addr := function.Start; addr < function.Start+function.Size; {
			i, err := isa.Decode(o.Arch, o.Image[addr:], addr)
			if err != nil {
				panic(err) // TestDisassembly has decoded all
			}
			if words := f(&before, &i); words != nil {
				changed++
				for n, w := range words {
					binary.LittleEndian.PutUint32(o.Image[addr+uint64(4*n):], w)
				}
			}
			before = i
			addr += uint64(i.Size)
		}
	}
	return changed
}

// without removes instructions.
func without(which func(before, i *isa.Inst) bool) func(*object) int {
	return func(o *object) int {
		return each(o, func(before, i *isa.Inst) []uint32 {
			if !which(before, i) {
				return nil
			}
			return []uint32{nop, nop}[:i.Size/4]
		})
	}
}

// plainStores takes the scope from stores.
func plainStores(o *object) int {
	return each(o, func(_, i *isa.Inst) []uint32 {
		if !strings.Contains(i.Name, "_store_dword") || i.Format != isa.Flat && i.Format != isa.Global || !i.SC0 {
			return nil
		}
		w := binary.LittleEndian.Uint32(o.Image[i.Addr:])
		return []uint32{w &^ (1<<16 | 1<<25)}
	})
}

// withoutWaits removes all waits behind write-backs: the compiler's and those of the headers.
func withoutWaits(o *object) int {
	behind := false
	return each(o, func(before, i *isa.Inst) []uint32 {
		behind = before.Form != nil && before.Name == "buffer_wbl2" || behind && before.Name == "s_waitcnt"
		if !behind || i.Name != "s_waitcnt" {
			return nil
		}
		return []uint32{nop}
	})
}

// oneRelease has the blocks of the first XCD alone write back, as if one block could do so for all.
type oneRelease struct{ machine.Memory }

func (m oneRelease) WriteBack(c machine.Core) error {
	if c.XCD != 0 {
		return nil
	}
	return m.Memory.WriteBack(c)
}

// planted are mistakes, and where they are to be found. On gfx942 an inbox may be cached: stores of
// others drop the lines of the owner's caches.
var planted = []struct {
	name  string
	arch  string
	plant func(*object) int // how many instructions it has changed
	wrap  func(machine.Memory) machine.Memory
	inbox bool // scratch is cached
	// No wait counts write-backs, so that the store of a signal may pass them: what clang 19 made of some releases.
	uncounted bool
	of        string // collective and algorithm; "": those without packets
}{
	{name: "sc bits", arch: "gfx942", inbox: true, plant: plainStores, of: "allreduce oneshot_ll8"},
	{name: "inv", arch: "gfx942", plant: without(func(_, i *isa.Inst) bool { return i.Name == "buffer_inv" }), of: "allreduce twophase_chunk"},
	{name: "inv", arch: "gfx90a", plant: without(func(_, i *isa.Inst) bool { return i.Name == "buffer_wbinvl1_vol" || i.Name == "buffer_invl2" }), of: "allreduce twophase_chunk"},
	{name: "inv", arch: "gfx942", plant: without(func(_, i *isa.Inst) bool { return i.Name == "buffer_inv" }), of: "allreduce shares"},
	{name: "inv", arch: "gfx90a", plant: without(func(_, i *isa.Inst) bool { return i.Name == "buffer_wbinvl1_vol" || i.Name == "buffer_invl2" }), of: "reducescatter shares"},
	{name: "waitcnt", arch: "gfx942", plant: withoutWaits, of: "allreduce shares"},
	{name: "waitcnt", arch: "gfx90a", plant: withoutWaits, of: "reducescatter shares"},
	{name: "wbl2", arch: "gfx942", plant: without(func(_, i *isa.Inst) bool { return i.Name == "buffer_wbl2" }), of: "allreduce zerocopy"},
	{name: "wbl2", arch: "gfx90a", plant: without(func(_, i *isa.Inst) bool { return i.Name == "buffer_wbl2" }), of: "allreduce zerocopy"},
	{name: "waitcnt", arch: "gfx942", plant: withoutWaits},
	{name: "waitcnt", arch: "gfx90a", plant: withoutWaits},
	{name: "write-backs that are not waited for", arch: "gfx942", uncounted: true},
	{name: "write-backs that are not waited for", arch: "gfx90a", uncounted: true},
	{name: "cached inbox", arch: "gfx90a", inbox: true, of: "alltoall chunk"},
	{name: "release of one block for all", arch: "gfx942", wrap: func(m machine.Memory) machine.Memory { return oneRelease{m} }, of: "allreduce zerocopy"},
}

func TestPlanted(t *testing.T) {
	for _, p := range planted {
		t.Run(p.name+" "+p.arch, func(t *testing.T) {
			s := setting{arch: p.arch, user: memory.Coarse, wrap: p.wrap}
			if s.scratch = memory.Uncached; p.inbox {
				s.scratch = memory.Coarse
			}
			s.options = machine.Options{Steps: 3_000_000, UncountedWriteBacks: p.uncounted}
			s.plant = func(o *object) {
				if p.plant != nil {
					p.plant(o)
				}
			}
			for seed := range uint64(12) {
				err := under(t, 2, s, small(2), seed, func(x *collectivetest.Trial) bool {
					switch x.Count = 5003; {
					case packets.MatchString(x.Algorithm):
						x.Count = 1000
					case x.Algorithm == "shares" && strings.HasPrefix(x.String(), p.of): // so many that lanes use their slots again
						x.Count = 70_001
					case p.wrap != nil: // so many that all blocks have something to do
						x.Count = 30011
					}
					if p.of == "" {
						return !packets.MatchString(x.Algorithm)
					}
					return x.Type == kernel.Float32 && strings.HasPrefix(x.String(), p.of+" ")
				})
				if errors.Is(err, framework.ErrUnsupported) {
					t.Fatal(err)
				}
				if err != nil {
					t.Logf("seed %d: %.300v", seed, err)
					return
				}
			}
			t.Error("not found")
		})
	}
}
