package image

import (
	"bytes"
	"debug/elf"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"testing"
)

// codeOffset returns where in an object the code of a function is.
func codeOffset(t *testing.T, data []byte, name string) uint64 {
	t.Helper()
	f, err := elf.NewFile(bytes.NewReader(data))
	if err != nil {
		t.Fatal(err)
	}
	symbols, err := f.DynamicSymbols()
	if err != nil {
		t.Fatal(err)
	}
	for _, s := range symbols {
		if s.Name == name {
			section := f.Sections[s.Section]
			return section.Offset + s.Value - section.Addr
		}
	}
	t.Fatalf("no function %s", name)
	return 0
}

// unsteady makes a compiler that spoils a byte of the code of its first runs: to
// another value each time.
func unsteady(t *testing.T, offset uint64, runs int) string {
	t.Helper()
	real, err := exec.LookPath("clang++-19")
	if err != nil {
		t.Skip("no clang++-19")
	}
	dir := t.TempDir()
	script := fmt.Sprintf(`#!/bin/sh
%s "$@" || exit
for out; do :; done
case "$*" in *--version) exit ;; esac
echo >> %[2]s/runs
n=$(wc -l < %[2]s/runs)
[ "$n" -gt %d ] || printf "\\$(printf %%o "$n")" | dd of="$out" bs=1 seek=%d conv=notrunc status=none
`, real, dir, runs, offset)
	file := filepath.Join(dir, "clang++-19")
	if err := os.WriteFile(file, []byte(script), 0o700); err != nil { //nolint:gosec // it has to be executable
		t.Fatal(err)
	}
	return file
}

func TestUnsteadyCompiler(t *testing.T) {
	opt := targets(t, "gfx942")
	opt.Jobs = 1
	file := project(t, addKernel)
	edit(t, file, `["f32", "u8"]`, `["u8"]`)
	s, good := spec(t, file), t.TempDir()
	m, err := Build(t.Context(), s, good, opt)
	if err != nil {
		t.Fatal(err)
	}
	kept, err := load(good, m.Images[0])
	if err != nil {
		t.Fatal(err)
	}
	offset := codeOffset(t, kept, "add")
	with := func(runs int) Options {
		o := opt
		o.Compilers.GPU = unsteady(t, offset, runs)
		return o
	}

	t.Run("build takes what two agree on", func(t *testing.T) {
		m2, err := Build(t.Context(), s, t.TempDir(), with(1))
		if err != nil || m2.Images[0].SHA256 != m.Images[0].SHA256 {
			t.Errorf("%+v, %v: expected the image of the steady compiler", m2, err)
		}
	})
	t.Run("build gives up", func(t *testing.T) {
		_, err := Build(t.Context(), s, t.TempDir(), with(100))
		if err == nil || !strings.Contains(err.Error(), "5 builds are all different") || !strings.Contains(err.Error(), "add (") {
			t.Errorf("%v: expected an error that names the function", err)
		}
	})
	t.Run("check builds again", func(t *testing.T) {
		r, err := Check(t.Context(), s, good, with(2))
		if err != nil || len(r.Rebuilt) != 1 || len(r.Unsteady) != 1 || !strings.Contains(r.Unsteady[0], "add-u8-gfx942: 1 of its") {
			t.Errorf("%+v, %v: expected one image that was equal later", r, err)
		}
	})
	t.Run("check reports", func(t *testing.T) {
		_, err := Check(t.Context(), s, good, with(100))
		want := fmt.Sprintf("a new build differs from it in 1 of its %d bytes (new: %d), the first at %#x: add (", len(kept), len(kept), offset)
		if err == nil || !strings.Contains(err.Error(), want) {
			t.Errorf("%v: expected %q", err, want)
		}
	})
}

func TestDifference(t *testing.T) {
	for name, c := range map[string]struct {
		kind        Kind
		kept, built string
		want        string
	}{
		"line":   {PTX, "a\n\tb;\nc", "a\n\td;\nc", `from line 2 on: "b;", new: "d;"`},
		"lines":  {PTX, "a\nb", "a\nb\nc", "2 lines, new: 3"},
		"bytes":  {HSA, "abcdef", "abXdeYgh", "4 of its 6 bytes (new: 8), the first at 0x2"},
		"longer": {CPU, "abcd", "ab", "2 of its 4 bytes (new: 2), the first at 0x2"},
	} {
		if got := difference(c.kind, []byte(c.kept), []byte(c.built)); got != c.want {
			t.Errorf("%s: %q, expected %q", name, got, c.want)
		}
	}
}

// The layout of arguments in a header is kept for each image, whatever the target, and is brought
// up to date when the image itself is.
func TestManifestKeepsTheLayout(t *testing.T) {
	opt := targets(t, "x86-64-v2,sm_90")
	file, dir := project(t, addKernel), t.TempDir()
	layouts := func() map[string]bool {
		m, err := Build(t.Context(), spec(t, file), dir, opt)
		if err != nil {
			t.Fatal(err)
		}
		set, err := Open(os.DirFS(dir))
		if err != nil {
			t.Fatal(err)
		}
		all := map[string]bool{}
		for i, info := range set.Infos() {
			if info.Layout != m.Images[i].Layout {
				t.Errorf("%s: layout %q, the manifest says %q", info.ID, info.Layout, m.Images[i].Layout)
			}
			all[info.Layout] = true
		}
		return all
	}
	handles := layouts()
	edit(t, filepath.Join(filepath.Dir(file), "args.h"), "#pragma once", "#pragma once\n// mscclpp:layout")
	marked := layouts()
	edit(t, filepath.Join(filepath.Dir(file), "args.h"), "uint64_t count;", "uint64_t count, more;")
	changed := layouts()
	for _, l := range []map[string]bool{handles, marked, changed} {
		if len(l) != 1 || l[""] {
			t.Fatalf("layouts %v: expected one for all images", l)
		}
	}
	for l := range changed {
		if marked[l] || handles[l] {
			t.Errorf("%v, %v, %v: expected them to differ", handles, marked, changed)
		}
	}
	edit(t, filepath.Join(dir, ManifestFile), `"layout": "`, `"layout": "x`)
	if _, err := Check(t.Context(), spec(t, file), dir, opt); err == nil || !strings.Contains(err.Error(), "arguments have layout") {
		t.Errorf("%v: expected the check to find the wrong layout", err)
	}
}
