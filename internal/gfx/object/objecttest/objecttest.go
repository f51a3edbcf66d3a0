// Package objecttest has the code objects of this tree, for tests of what reads them.
package objecttest

import (
	"compress/gzip"
	"io"
	"maps"
	"os"
	"path/filepath"
	"strings"
	"testing"

	"github.com/klauspost/compress/zstd"
)

// folders have committed code objects, seen from the root of the tree.
var folders = []string{"collectives/image", "collectives/internal/scaling/image", "framework/kernel/actor/image", "framework/device/hip/image", "plan/image", "inference/image", "inference/moe/image"}

// Committed returns the committed code objects by name, such as "move-gfx942.co".
func Committed(t testing.TB) map[string][]byte {
	t.Helper()
	found := map[string][]byte{}
	for _, folder := range folders {
		maps.Copy(found, In(t, folder))
	}
	return found
}

// In returns the code objects of a folder of this tree by name.
func In(t testing.TB, folder string) map[string][]byte {
	t.Helper()
	names, err := filepath.Glob(filepath.Join(root(t), folder, "*-gfx*.co.*"))
	if err != nil || len(names) == 0 {
		t.Fatalf("%s: no code objects: %v", folder, err)
	}
	found := map[string][]byte{}
	for _, name := range names {
		found[strings.TrimSuffix(filepath.Base(name), filepath.Ext(name))] = expand(t, name)
	}
	return found
}

// root is the nearest folder above the test's with a go.mod.
func root(t testing.TB) string {
	t.Helper()
	dir, err := os.Getwd()
	if err != nil {
		t.Fatal(err)
	}
	for {
		if _, err := os.Stat(filepath.Join(dir, "go.mod")); err == nil {
			return dir
		}
		if dir == filepath.Dir(dir) {
			t.Fatal("no go.mod above the folder of the test")
		}
		dir = filepath.Dir(dir)
	}
}

// expand reads a file that is compressed, in either way.
func expand(t testing.TB, name string) []byte {
	t.Helper()
	f, err := os.Open(name)
	if err != nil {
		t.Fatal(err)
	}
	defer f.Close()
	var r io.Reader
	if filepath.Ext(name) == ".zst" {
		var z *zstd.Decoder
		if z, err = zstd.NewReader(f, zstd.WithDecoderConcurrency(1)); err == nil {
			defer z.Close()
		}
		r = z
	} else {
		r, err = gzip.NewReader(f)
	}
	if err != nil {
		t.Fatalf("%s: %v", name, err)
	}
	b, err := io.ReadAll(r)
	if err != nil {
		t.Fatalf("%s: %v", name, err)
	}
	return b
}
