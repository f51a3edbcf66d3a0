package image

import (
	"bytes"
	"math/rand/v2"
	"os"
	"path/filepath"
	"strings"
	"testing"
)

// Files come back as they were, whatever compresses them; equal images have equal files, or checks would find differences.
func TestPack(t *testing.T) {
	image := make([]byte, 300_000)
	random := rand.New(rand.NewPCG(1, 2))
	for i := range image {
		image[i] = byte(random.UintN(4))
	}
	copy(image[200_000:], image[:100_000])
	sizes := map[string]int{}
	for _, name := range []string{"a.co.zst", "a.ptx.gz", "a.so"} {
		packed, err := pack(name, image)
		if err != nil {
			t.Fatalf("%s: %v", name, err)
		}
		again, err := pack(name, image)
		if err != nil || !bytes.Equal(again, packed) {
			t.Errorf("%s: two files of one image differ: %v", name, err)
		}
		got, err := unpack(name, packed)
		if err != nil || !bytes.Equal(got, image) {
			t.Errorf("%s: another image came back: %v", name, err)
		}
		sizes[name] = len(packed)
	}
	if 3*sizes["a.co.zst"] > 2*sizes["a.ptx.gz"]+1000 {
		t.Errorf("%v bytes: expected that a repetition far behind costs nothing in .zst", sizes)
	}
}

// A spec says how its PTX is compressed. Code objects, and images that are not compressed, have one form.
func TestCompressionOfPTX(t *testing.T) {
	for compression, ending := range map[string]string{"": ".ptx.gz", `"compression": "gzip",`: ".ptx.gz", `"compression": "zstd",`: ".ptx.zst"} {
		s, err := ReadSpec(writeSpec(t, `{`+compression+` "families": [{"name": "a", "sources": ["x"]}]}`))
		if err != nil {
			t.Fatal(err)
		}
		for arch, want := range map[string]string{"sm_90": ending, "gfx942": ".co.zst", "x86-64-v3": ".so"} {
			targets, err := s.ParseTargets(arch)
			if err != nil {
				t.Fatal(err)
			}
			if got := s.units(targets)[0].file(); got != "a-"+arch+want {
				t.Errorf("%q, %s: %s, expected the ending %s", compression, arch, got, want)
			}
		}
	}
}

// Damaged files, and those that expand to more than an image has, are errors.
func TestUnpackRefuses(t *testing.T) {
	for _, name := range []string{"a.zst", "a.gz"} {
		if _, err := unpack(name, []byte("not compressed")); err == nil {
			t.Errorf("%s: other bytes were expanded", name)
		}
		packed, err := pack(name, make([]byte, maxImage+1))
		if err != nil {
			t.Fatal(err)
		}
		if _, err := unpack(name, packed); err == nil || !strings.Contains(err.Error(), "expands to more than") {
			t.Errorf("%s: %v: expected that it expands to more than an image has", name, err)
		}
		if _, err := unpack(name, packed[:len(packed)/2]); err == nil {
			t.Errorf("%s: half a file was expanded", name)
		}
	}
}

// An image whose file is compressed in the way of before is not compiled again: its file gets the ending that it has now.
func TestRename(t *testing.T) {
	dir := t.TempDir()
	image := []byte("an image")
	before, err := pack("k.co.gz", image)
	if err != nil {
		t.Fatal(err)
	}
	if err := os.WriteFile(filepath.Join(dir, "k.co.gz"), before, 0o600); err != nil {
		t.Fatal(err)
	}
	img := Image{File: "k.co.gz"}
	data, err := load(dir, img)
	if err != nil {
		t.Fatal(err)
	}
	if err := img.rename(dir, "k.co.zst", data); err != nil {
		t.Fatal(err)
	}
	if got, err := load(dir, img); err != nil || !bytes.Equal(got, image) || img.File != "k.co.zst" {
		t.Errorf("%s: %q, %v", img.File, got, err)
	}
	if _, err := os.Stat(filepath.Join(dir, "k.co.gz")); !os.IsNotExist(err) {
		t.Errorf("the file of before is there: %v", err)
	}
}
