// Package static looks at code objects without running them: at resources that kernels must not use, and at the
// instructions that make memory visible, which have to stand in the order of LLVM's memory model.
package static

import (
	"fmt"
	"strings"

	"github.com/mscclpp-go/mscclpp/internal/gfx/isa"
	"github.com/mscclpp-go/mscclpp/internal/gfx/object"
)

// check returns the mistakes of an object.
//
// One of them is a write-back behind which a store or a branch comes without s_waitcnt vmcnt(0). LLVM's memory model has that
// wait in every release, and its version 19 removes it where no load or store of the wave is on its way: it does not count
// write-backs. So the headers have a wait of their own.
func check(o *object.Object) (mistakes []string) {
	for _, k := range o.Kernels {
		mistakes = append(mistakes, resources(&k)...)
	}
	for _, f := range o.Symbols {
		mistakes = append(mistakes, function(o, f).mistakes...)
	}
	return mistakes
}

// maxVGPRs is how many vector registers a wave may have where two waves share the unit that executes them: with more,
// blocks of 512 threads still fit, and with more than twice as many they do not.
const maxVGPRs = 256

func resources(k *object.Kernel) (mistakes []string) {
	add := func(bad bool, format string, args ...any) {
		if bad {
			mistakes = append(mistakes, k.Name+": "+fmt.Sprintf(format, args...))
		}
	}
	add(k.Private != 0, "%d bytes of private memory: expected none", k.Private)
	add(k.Dynamic, "a stack of unknown size")
	add(k.VGPRSpills != 0, "%d vector registers are kept in memory", k.VGPRSpills)
	add(k.AGPRs != 0, "%d accumulation registers: the interpreter has none", k.AGPRs)
	add(k.VGPRs > maxVGPRs, "%d vector registers: expected at most %d", k.VGPRs, maxVGPRs)
	add(k.Wave != 64, "waves of %d", k.Wave)
	add(len(k.Args) == 0 || k.Args[0].Kind != "by_value" || k.Args[0].Size > 4096, "arguments %+v: expected one struct of at most 4096 bytes", k.Args)
	return mistakes
}

// scan is the state of a function while its instructions are looked at in their order.
type scan struct {
	o        *object.Object
	f        object.Symbol
	released bool // a write-back was not waited for yet
	loaded   bool // a load or an atomic operation was not waited for yet
	half     bool // buffer_invl2 has to be followed by buffer_wbinvl1_vol
	mistakes []string
}

func function(o *object.Object, f object.Symbol) *scan {
	s := &scan{o: o, f: f}
	for addr := f.Start; addr < f.Start+f.Size; {
		i, err := isa.Decode(o.Arch, o.Image[addr:o.Text.End], addr)
		if err != nil {
			s.mistakes = append(s.mistakes, err.Error())
			return s
		}
		s.look(&i)
		addr += uint64(i.Size)
	}
	return s
}

func (s *scan) fail(i *isa.Inst, text string) {
	s.mistakes = append(s.mistakes, fmt.Sprintf("%s+%#x: %s: %s", s.f.Name, i.Addr-s.f.Start, i.String(), text))
}

func (s *scan) look(i *isa.Inst) {
	if i.NT {
		s.fail(i, "a store or load that passes the caches: expected none")
	}
	if s.half && i.Name != "buffer_wbinvl1_vol" {
		s.fail(i, "expected buffer_wbinvl1_vol behind buffer_invl2")
	}
	s.half = false
	switch {
	case i.Name == "s_waitcnt":
		if vector, _, _ := i.Counts(); vector == 0 {
			s.released, s.loaded = false, false
		}
	case i.Name == "buffer_wbl2":
		s.released = true
	case i.Format == isa.MUBUF:
		s.half = i.Name == "buffer_invl2"
		if s.loaded {
			s.fail(i, "a load before it was not waited for: expected s_waitcnt vmcnt(0)")
		}
	case i.Format == isa.Flat || i.Format == isa.Global:
		s.memory(i)
	case strings.HasPrefix(i.Name, "s_branch"), strings.HasPrefix(i.Name, "s_cbranch"), i.Name == "s_setpc_b64", i.Name == "s_endpgm":
		s.waited(i)
		s.loaded = false // by another way, a wait may come before an invalidation
	}
}

// waited notes, once, that a write-back was not waited for.
func (s *scan) waited(i *isa.Inst) {
	if s.released {
		s.fail(i, "a write-back before it was not waited for: expected s_waitcnt vmcnt(0)")
	}
	s.released = false
}

func (s *scan) memory(i *isa.Inst) {
	if strings.Contains(i.Name, "_load_") {
		s.loaded = true
		return
	}
	s.waited(i)
	s.loaded = s.loaded || strings.Contains(i.Name, "_atomic_")
}

// Ordered counts the instructions that make memory visible, in a fixed order: they should not become fewer unseen.
func Ordered(o *object.Object) (counts map[string]int, err error) {
	counts = map[string]int{}
	for _, f := range o.Symbols {
		for addr := f.Start; addr < f.Start+f.Size; {
			i, err := isa.Decode(o.Arch, o.Image[addr:o.Text.End], addr)
			if err != nil {
				return nil, err
			}
			addr += uint64(i.Size)
			switch {
			case i.Format == isa.MUBUF:
				counts[i.String()]++
			case i.SC1 && strings.Contains(i.Name, "_atomic_"):
				counts["atomics for the system"]++
			case i.SC0 && i.SC1 && strings.Contains(i.Name, "_load_"):
				counts["loads for the system"]++
			case i.SC0 && i.SC1:
				counts["stores for the system"]++
			}
		}
	}
	return counts, nil
}
