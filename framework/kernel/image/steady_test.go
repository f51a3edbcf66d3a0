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

// noting makes a compiler that notes the personality, the arguments and what it reads of each run but that of --version, and is clang then.
func noting(t *testing.T) (file, notes string) {
	t.Helper()
	real, err := exec.LookPath("clang++-19")
	if err != nil {
		t.Skip("needs clang++-19")
	}
	dir := t.TempDir()
	notes = filepath.Join(dir, "notes")
	script := fmt.Sprintf(`#!/bin/sh
case "$*" in *--version) exec %[1]s "$@" ;; *" -E"*) exec %[1]s "$@" ;; esac
cat > %[2]s/input
{ echo; cat /proc/self/personality; echo "${PWD##*/}" | sed 's/[0-9A-Z]/x/g'; printf '%%s\n' "$@"; cat %[2]s/input; } >> %[2]s/notes
exec %[1]s "$@" < %[2]s/input
`, real, dir)
	file = filepath.Join(dir, "clang++-19")
	if err := os.WriteFile(file, []byte(script), 0o700); err != nil { //nolint:gosec // it has to be executable
		t.Fatal(err)
	}
	return file, notes
}

// Clang orders by address in places. So its memory is at the same addresses in each run, and it is given the same bytes, wherever the
// sources are.
func TestCompilersHaveTheSameMemory(t *testing.T) {
	for _, target := range []string{"gfx942", "sm_90"} {
		var seen []string
		for range 2 { // in folders of their own
			opt := targets(t, target)
			opt.Jobs = 1
			file := project(t, addKernel)
			edit(t, file, `["f32", "u8"]`, `["u8"]`)
			var notes string
			opt.Compilers.GPU, notes = noting(t)
			if _, err := Build(t.Context(), spec(t, file), t.TempDir(), opt); err != nil {
				t.Fatal(err)
			}
			data, err := os.ReadFile(notes)
			if err != nil {
				t.Fatal(err)
			}
			if !bytes.HasPrefix(data, []byte("\n00040000\n")) {
				t.Errorf("%s: the personality is %.20q: expected addresses that are not random", target, data)
			}
			if bytes.Contains(data, []byte(filepath.Dir(file))) {
				t.Errorf("%s: the compiler reads the name of the folder of the sources", target)
			}
			seen = append(seen, string(data))
		}
		if seen[0] != seen[1] {
			t.Errorf("%s: the compiler was not run the same way in two folders:\n%s\n\n%s", target, seen[0], seen[1])
		}
	}
}

func TestCheckNamesWhereANewBuildDiffers(t *testing.T) {
	opt := targets(t, "gfx942")
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
	real, err := exec.LookPath("clang++-19")
	if err != nil {
		t.Skip("needs clang++-19")
	}
	spoiling := filepath.Join(t.TempDir(), "clang++-19")
	script := fmt.Sprintf("#!/bin/sh\n%s \"$@\" || exit\nfor out; do :; done\ncase \"$*\" in *--version | *\" -E\"*) exit ;; esac\nprintf X | dd of=\"$out\" bs=1 seek=%d conv=notrunc status=none\n", real, offset)
	if err := os.WriteFile(spoiling, []byte(script), 0o700); err != nil { //nolint:gosec // it has to be executable
		t.Fatal(err)
	}
	opt.Compilers.GPU = spoiling
	_, err = Check(t.Context(), s, good, opt)
	want := fmt.Sprintf("a new build differs from it in 1 of its %d bytes (new: %d), the first at %#x: add (", len(kept), len(kept), offset)
	if err == nil || !strings.Contains(err.Error(), want) {
		t.Errorf("%v: expected %q", err, want)
	}
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
