package object

import (
	"bytes"
	"strings"
	"testing"

	"github.com/mscclpp-go/mscclpp/internal/gfx/object/objecttest"
)

func TestCommitted(t *testing.T) {
	for name, file := range objecttest.Committed(t) {
		o, err := Open(file)
		if err != nil {
			t.Fatalf("%s: %v", name, err)
		}
		if !strings.HasSuffix(name, "-"+o.Arch+".co") || len(o.Kernels) == 0 {
			t.Errorf("%s: processor %s, %d kernels", name, o.Arch, len(o.Kernels))
		}
		for _, k := range o.Kernels {
			if k.Wave != 64 || k.ArgsSGPR < 0 || !k.BlockX || k.BlockY || k.BlockZ || k.ThreadNumbers != 1 || len(k.Args) == 0 || k.Args[0].Kind != "by_value" {
				t.Errorf("%s: %+v", name, k)
			}
			if k.FloatMode != 0xf0 { // round to nearest even, all denormals
				t.Errorf("%s: %s: float mode %#x", name, k.Name, k.FloatMode)
			}
			if got := o.Function(k.Entry); got != k.Name+"+0x0" {
				t.Errorf("%s: entry %#x is at %s", name, k.Entry, got)
			}
		}
	}
}

// Files that are cut off or changed are refused, and never crash the reader.
func TestDamaged(t *testing.T) {
	file := objecttest.Committed(t)["scale-f32-gfx942.co"]
	for n := 0; n < len(file); n += 7 {
		if o, err := Open(file[:n]); err == nil && len(o.Image) == 0 {
			t.Errorf("%d bytes were read as %+v", n, o)
		}
	}
	for i := range min(len(file), 3000) {
		changed := bytes.Clone(file)
		changed[i] ^= 0xff
		_, _ = Open(changed) // it may be a byte that does not matter
	}
	other := bytes.Clone(file)
	other[48] = 0x2c
	if _, err := Open(other); err == nil || !strings.Contains(err.Error(), "gfx90a or gfx942") {
		t.Errorf("another processor: %v", err)
	}
}

func TestNotes(t *testing.T) {
	for _, c := range []struct{ data, want string }{
		{"\x81\xa1a", "are left"},
		{"\x82\xa1a\x01\xa1a\x01", "has not been there"},
		{"\xc0", "type 0xc0"},
		{"\x80\x80", "behind the value"},
		{strings.Repeat("\x91", 20), "levels"},
		{"\xdc\xff\xff", "are left"},
		{"\xff", "type 0xff"},
	} {
		if _, err := decode([]byte(c.data)); err == nil || !strings.Contains(err.Error(), c.want) {
			t.Errorf("%q: %v: expected %q", c.data, err, c.want)
		}
	}
}

func FuzzNotes(f *testing.F) {
	f.Add([]byte("\x81\xaeamdhsa.kernels\x90"))
	f.Fuzz(func(_ *testing.T, data []byte) { _, _ = kernels(data) })
}
