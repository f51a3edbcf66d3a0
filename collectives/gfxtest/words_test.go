package gfxtest

import (
	"encoding/binary"
	"strings"
	"testing"
	"unsafe"

	"github.com/mscclpp-go/mscclpp/internal/gfx/machine"
	"github.com/mscclpp-go/mscclpp/internal/gfx/memory"
	"github.com/mscclpp-go/mscclpp/internal/gfx/object/objecttest"
)

// word is not on a stack, which may move.
var word uint64

// The kernels by which streams of device hip store words and wait for them: a wait ends with the word, in the cyclic order of
// numbers, and not before.
func TestWords(t *testing.T) {
	for _, arch := range []string{"gfx942", "gfx90a"} {
		p, err := machine.Load(objecttest.Committed(t)["word-"+arch+".co"])
		if err != nil {
			t.Fatal(err)
		}
		for _, c := range []struct {
			before, stored, awaited uint64
			ends                    bool
		}{{0, 7, 7, true}, {1<<64 - 2, 3, 1, true}, {9, 7, 7, true}, {0, 6, 7, false}, {1<<64 - 2, 1<<64 - 1, 1, false}} {
			word = c.before
			at := uint64(uintptr(unsafe.Pointer(&word)))
			r := &memory.Regions{}
			if err := r.Add(memory.Region{Start: at, End: at + 8, Owner: memory.Host, Kind: memory.HostKind}); err != nil {
				t.Fatal(err)
			}
			launch := func(device int, kernel string, value uint64) *machine.Launch {
				args := binary.LittleEndian.AppendUint64(binary.LittleEndian.AppendUint64(nil, at), value)
				return &machine.Launch{Device: device, Program: p, Kernel: kernel, Grid: 1, Block: 1, Args: args}
			}
			m := machine.New(memory.NewCaches(r, 2, *shapes[arch]), machine.Options{Seed: c.stored, Weak: true, Steps: 20_000})
			err := m.Run(launch(0, "mscclpp_hip_wait", c.awaited), launch(1, "mscclpp_hip_word", c.stored))
			if c.ends && err != nil || !c.ends && (err == nil || !strings.Contains(err.Error(), "no end")) {
				t.Errorf("%s, %d behind %d, waiting for %d: %v", arch, c.stored, c.before, c.awaited, err)
			}
			if word != c.stored {
				t.Errorf("%s: the word is %d: expected %d", arch, word, c.stored)
			}
		}
	}
}
