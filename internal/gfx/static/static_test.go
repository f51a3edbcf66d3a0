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
		for _, m := range check(objects[name]) {
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
		fmt.Fprintf(&b, "%s\n", name)
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
	}{
		{"the waits behind a write-back", "move-gfx942.co", func(o *object.Object) {
			waits := false
			for range 2 { // the compiler's, and that of the headers
				change(t, o, func(before, i *isa.Inst) bool {
					waits = before.Name == "buffer_wbl2" || waits && before.Name == "s_nop"
					return waits && i.Name == "s_waitcnt"
				}, nop)
			}
		}, "a write-back before it was not waited for"},
		{"a load that is not waited for", "move-gfx942.co", func(o *object.Object) {
			load := false // the wait between a load and an invalidation
			change(t, o, func(before, i *isa.Inst) bool {
				load = strings.Contains(before.Name, "_load_dword") && before.SC0
				return load && i.Name == "s_waitcnt" && o.Image[i.Addr+7]>>2 == 0x38
			}, nop)
		}, "a load before it"},
		{"half an invalidation", "move-gfx90a.co", func(o *object.Object) {
			change(t, o, func(before, i *isa.Inst) bool { return before.Name == "buffer_invl2" && i.Name == "buffer_wbinvl1_vol" }, nop)
		}, "behind buffer_invl2"},
		{"private memory", "move-gfx90a.co", func(o *object.Object) { o.Kernels[0].Private = 16 }, "16 bytes of private memory"},
		{"spills", "move-gfx90a.co", func(o *object.Object) { o.Kernels[0].VGPRSpills = 3 }, "3 vector registers"},
		{"registers", "move-gfx90a.co", func(o *object.Object) { o.Kernels[0].VGPRs = 257 }, "257 vector registers"},
		{"a stack", "move-gfx90a.co", func(o *object.Object) { o.Kernels[0].Dynamic = true }, "stack of unknown size"},
	} {
		o, err := object.Open(objecttest.Committed(t)[c.object])
		if err != nil {
			t.Fatal(err)
		}
		c.change(o)
		if got := strings.Join(check(o), "\n"); !strings.Contains(got, c.want) {
			t.Errorf("%s: %q: expected %q", c.name, got, c.want)
		}
	}
}

// Clang 19 made these objects of the headers before they had a wait of their own: each has a release behind whose write-back
// the addition of a signal comes at once.
func TestObjectsWithoutTheWait(t *testing.T) {
	for name, file := range objecttest.In(t, "internal/gfx/static/testdata") {
		o, err := object.Open(file)
		if err != nil {
			t.Fatalf("%s: %v", name, err)
		}
		mistakes := check(o)
		if len(mistakes) != 1 || !strings.Contains(mistakes[0], "_atomic_add_x2") || !strings.Contains(mistakes[0], "a write-back before it was not waited for") {
			t.Errorf("%s: %q: expected one signal behind a write-back", name, mistakes)
		}
	}
}
