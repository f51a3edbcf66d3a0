package plugins

import (
	"os"
	"path/filepath"
	"slices"
	"testing"
)

// Files beside plugins are those of the folders where plugins are looked for, which no
// other user can change.
func TestBeside(t *testing.T) {
	root := t.TempDir()
	at := func(path string, mode os.FileMode) string {
		t.Helper()
		full := filepath.Join(root, path)
		if err := os.MkdirAll(filepath.Dir(full), 0o755); err != nil {
			t.Fatal(err)
		}
		if err := os.WriteFile(full, nil, 0o600); err != nil {
			t.Fatal(err)
		}
		if err := os.Chmod(full, mode); err != nil {
			t.Fatal(err)
		}
		return full
	}
	want := []string{
		at("first/b-sm_90.cubins", 0o644), at("first/c-sm_90.cubins", 0o644),
		at("pinned/a-sm_90.cubins", 0o644), at("builtin/a-sm_80.cubins", 0o444),
	}
	at("first/other.kernels", 0o644)
	at("first/.hidden-sm_90.cubins", 0o644)
	at("first/open-sm_90.cubins", 0o666)
	at("shared/d-sm_90.cubins", 0o644)
	if err := os.Chmod(filepath.Join(root, "shared"), 0o777); err != nil {
		t.Fatal(err)
	}
	if err := os.Symlink(want[0], filepath.Join(root, "first/link-sm_90.cubins")); err != nil {
		t.Fatal(err)
	}
	in := func(dir string) string { return filepath.Join(root, dir) }
	c := Catalog{
		Dirs: []string{in("first"), in("none"), in("shared"), in("first")}, BuiltIn: in("builtin"),
		Paths: map[string]Pinned{"x": {Path: in("pinned/plugin")}},
	}
	if got := c.Beside(".cubins"); !slices.Equal(got, want) {
		t.Errorf("%q, expected %q", got, want)
	}
}
