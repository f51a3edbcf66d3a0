package static

import (
	"encoding/binary"
	"flag"
	"fmt"
	"maps"
	"os"
	"slices"
	"strings"
	"testing"

	"github.com/mscclpp-go/mscclpp/internal/gfx/isa"
	"github.com/mscclpp-go/mscclpp/internal/gfx/object"
	"github.com/mscclpp-go/mscclpp/internal/gfx/object/objecttest"
)

var update = flag.Bool("update", false, "rewrite testdata/resources.txt")

const table = "testdata/resources.txt"

// open reads all committed objects, in the order of their names.
func open(t *testing.T) (names []string, objects map[string]*object.Object) {
	t.Helper()
	objects = map[string]*object.Object{}
	for name, file := range objecttest.Committed(t) {
		o, err := object.Open(file)
		if err != nil {
			t.Fatalf("%s: %v", name, err)
		}
		objects[name] = o
	}
	return slices.Sorted(maps.Keys(objects)), objects
}

func TestCommitted(t *testing.T) {
	names, objects := open(t)
	for _, name := range names {
		mistakes, _ := Check(objects[name])
		for _, m := range mistakes {
			t.Errorf("%s: %s", name, m)
		}
	}
}

// Registers, memory of blocks and ordered instructions are those of the table: a change that is meant is written there by
// -update, and seen in its diff.
func TestResources(t *testing.T) {
	names, objects := open(t)
	var b strings.Builder
	for _, name := range names {
		o := objects[name]
		counts, err := Ordered(o)
		if err != nil {
			t.Fatal(err)
		}
		_, hasty := Check(o)
		fmt.Fprintf(&b, "%s\n  %d releases that do not wait for their write-back\n", name, len(hasty))
		for _, what := range slices.Sorted(maps.Keys(counts)) {
			fmt.Fprintf(&b, "  %d %s\n", counts[what], what)
		}
		for _, k := range o.Kernels {
			fmt.Fprintf(&b, "  %s: %d vector, %d scalar, %d of them in lanes, %d bytes for a block\n", k.Name, k.VGPRs, k.SGPRs, k.SGPRSpills, k.Group)
		}
	}
	if *update {
		if err := os.WriteFile(table, []byte(b.String()), 0o600); err != nil {
			t.Fatal(err)
		}
	}
	want, err := os.ReadFile(table)
	if err != nil {
		t.Fatal(err)
	}
	got, expected := strings.Split(b.String(), "\n"), strings.Split(string(want), "\n")
	for i := range max(len(got), len(expected)) {
		if i >= len(got) || i >= len(expected) || got[i] != expected[i] {
			t.Fatalf("%s, line %d: the objects have %q: go test ./internal/gfx/static -update writes the table", table, i+1, strings.Join(got[min(i, len(got)):min(i+1, len(got))], ""))
		}
	}
}

// change replaces the first instruction that is picked, with the one before it.
func change(t *testing.T, o *object.Object, pick func(before, i *isa.Inst) bool, word uint32) {
	t.Helper()
	for _, f := range o.Symbols {
		before := isa.Inst{Form: &isa.Form{}}
		for addr := f.Start; addr < f.Start+f.Size; {
			i, err := isa.Decode(o.Arch, o.Image[addr:o.Text.End], addr)
			if err != nil {
				t.Fatal(err)
			}
			if pick(&before, &i) {
				for n := range uint64(i.Size / 4) {
					binary.LittleEndian.PutUint32(o.Image[addr+4*n:], word)
				}
				return
			}
			before = i
			addr += uint64(i.Size)
		}
	}
	t.Fatal("nothing to change")
}

const nop = 0xbf800000

func TestMistakes(t *testing.T) {
	for _, c := range []struct {
		name, object string
		change       func(o *object.Object)
		want         string
		hasty        bool
	}{
		{"a write-back that is not waited for", "move-gfx942.co", func(o *object.Object) {
			change(t, o, func(before, i *isa.Inst) bool { return before.Name == "buffer_wbl2" && i.Name == "s_waitcnt" }, nop)
		}, "", true},
		{"a load that is not waited for", "move-gfx942.co", func(o *object.Object) {
			load := false // the wait between a load and an invalidation
			change(t, o, func(before, i *isa.Inst) bool {
				load = strings.Contains(before.Name, "_load_dword") && before.SC0
				return load && i.Name == "s_waitcnt" && o.Image[i.Addr+7]>>2 == 0x38
			}, nop)
		}, "a load before it", false},
		{"half an invalidation", "move-gfx90a.co", func(o *object.Object) {
			change(t, o, func(before, i *isa.Inst) bool { return before.Name == "buffer_invl2" && i.Name == "buffer_wbinvl1_vol" }, nop)
		}, "behind buffer_invl2", false},
		{"private memory", "move-gfx90a.co", func(o *object.Object) { o.Kernels[0].Private = 16 }, "16 bytes of private memory", false},
		{"spills", "move-gfx90a.co", func(o *object.Object) { o.Kernels[0].VGPRSpills = 3 }, "3 vector registers", false},
		{"registers", "move-gfx90a.co", func(o *object.Object) { o.Kernels[0].VGPRs = 257 }, "257 vector registers", false},
		{"a stack", "move-gfx90a.co", func(o *object.Object) { o.Kernels[0].Dynamic = true }, "stack of unknown size", false},
	} {
		o, err := object.Open(objecttest.Committed(t)[c.object])
		if err != nil {
			t.Fatal(err)
		}
		_, before := Check(o)
		c.change(o)
		mistakes, hasty := Check(o)
		if c.hasty {
			if len(hasty) != len(before)+1 {
				t.Errorf("%s: %d places, %d before: expected one more", c.name, len(hasty), len(before))
			}
			continue
		}
		if got := strings.Join(mistakes, "\n"); !strings.Contains(got, c.want) {
			t.Errorf("%s: %q: expected %q", c.name, got, c.want)
		}
	}
}
