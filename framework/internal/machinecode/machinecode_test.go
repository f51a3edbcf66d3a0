package machinecode_test

import (
	"archive/zip"
	"bytes"
	"crypto/sha256"
	"encoding/hex"
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"

	"github.com/mscclpp-go/mscclpp/framework"
	"github.com/mscclpp-go/mscclpp/framework/internal/machinecode"
	"github.com/mscclpp-go/mscclpp/framework/internal/machinecode/cubintest"
)

func ptx(name string) []byte {
	return []byte(".version 7.8\n.target sm_90\n.visible .entry " + name + "(\n\t.param .align 8 .b8 " + name + "_param_0[2584]\n)\n.maxntid 512, 1, 1\n{\nret;\n}\n")
}

func sum(data []byte) string {
	s := sha256.Sum256(data)
	return hex.EncodeToString(s[:])
}

// container writes the code of some texts for a chip and returns the path.
func container(t *testing.T, dir, name, chip string, number int, texts ...[]byte) string {
	t.Helper()
	b := machinecode.Bundle{Chip: chip, Assembler: "none"}
	for i, text := range texts {
		code, use := cubintest.Object(text, number)
		if err := b.Add(fmt.Sprintf("set/image%d", i), sum(text), code, use); err != nil {
			t.Fatal(err)
		}
	}
	var out bytes.Buffer
	if err := b.Write(&out); err != nil {
		t.Fatal(err)
	}
	path := filepath.Join(dir, name+"-"+chip+machinecode.Extension)
	if err := os.WriteFile(path, out.Bytes(), 0o644); err != nil {
		t.Fatal(err)
	}
	return path
}

func TestInspect(t *testing.T) {
	for _, chip := range []int{80, 90, 100, 120} {
		code, _ := cubintest.Object(append(ptx("b"), ptx("a")...), chip)
		o, err := machinecode.Inspect(code)
		if err != nil || o.Chip != chip || o.Exact || !slices.Equal(o.Kernels, []string{"a", "b"}) {
			t.Errorf("%d: %+v, %v", chip, o, err)
		}
	}
	program, err := os.ReadFile("/proc/self/exe")
	if err != nil {
		t.Fatal(err)
	}
	for name, data := range map[string][]byte{"a program": program, "PTX": ptx("a"), "nothing": nil, "a beginning": []byte("\x7fELF")} {
		if _, err := machinecode.Inspect(data); !errors.Is(err, framework.ErrInvalid) {
			t.Errorf("%s: %v: want ErrInvalid", name, err)
		}
	}
}

// A GPU gets code of its own generation: of its own chip, else of the newest older one.
func TestFit(t *testing.T) {
	dir, text := t.TempDir(), ptx("k")
	var files []string
	for _, c := range []struct {
		chip   string
		number int
	}{{"sm_80", 80}, {"sm_86", 86}, {"sm_90", 90}, {"sm_100", 100}, {"sm_103", 103}, {"sm_120", 120}} {
		files = append(files, container(t, dir, "x", c.chip, c.number, text))
	}
	for capability, want := range map[[2]int]string{
		{8, 0}: "sm_80", {8, 6}: "sm_86", {8, 9}: "sm_86", {9, 0}: "sm_90", {10, 0}: "sm_100", {10, 1}: "sm_100", {10, 3}: "sm_103",
		{12, 0}: "sm_120", {12, 1}: "sm_120", {7, 5}: "", {11, 0}: "", {13, 0}: "",
	} {
		l, err := machinecode.Open(files, capability[0], capability[1])
		if err != nil {
			t.Fatal(err)
		}
		found, err := l.Find(sum(text))
		switch {
		case err != nil:
			t.Errorf("%v: %v", capability, err)
		case want == "" && (found != nil || !l.Empty()):
			t.Errorf("%v: %+v: want none", capability, found)
		case want != "" && (found == nil || found.Chip != want || found.ID != "set/image0"):
			t.Errorf("%v: %+v: want %s", capability, found, want)
		}
	}
}

// Code for one chip alone runs on that one, and comes before code that others run as well.
func TestFitExactly(t *testing.T) {
	dir, text := t.TempDir(), ptx("k")
	code, use := cubintest.Object(text, 90)
	code[49] |= 0x08 // e_flags: sm_90a
	b := machinecode.Bundle{Chip: "sm_90a", Assembler: "none"}
	if err := b.Add("exact", sum(text), code, use); err != nil {
		t.Fatal(err)
	}
	var out bytes.Buffer
	if err := b.Write(&out); err != nil {
		t.Fatal(err)
	}
	exact := filepath.Join(dir, "x-sm_90a.cubins")
	if err := os.WriteFile(exact, out.Bytes(), 0o644); err != nil {
		t.Fatal(err)
	}
	plain := container(t, dir, "x", "sm_90", 90, text)
	for minor, want := range []string{"sm_90a", "sm_90"} {
		l, err := machinecode.Open([]string{plain, exact}, 9, minor)
		if err != nil {
			t.Fatal(err)
		}
		if found, err := l.Find(sum(text)); err != nil || found == nil || found.Chip != want {
			t.Errorf("9.%d: %+v, %v: want %s", minor, found, err, want)
		}
	}
	if b := (machinecode.Bundle{Chip: "sm_90"}); b.Add("exact", sum(text), code, use) == nil {
		t.Error("code for sm_90a is taken for sm_90")
	}
}

// The text that an image has now is what counts: code of an older one is not found.
func TestStaleCodeIsNotFound(t *testing.T) {
	path := container(t, t.TempDir(), "x", "sm_90", 90, ptx("k"))
	l, err := machinecode.Open([]string{path}, 9, 0)
	if err != nil {
		t.Fatal(err)
	}
	for _, sha := range []string{sum(append(ptx("k"), '\n')), ""} {
		if found, err := l.Find(sha); found != nil || err != nil {
			t.Errorf("%q: %+v, %v: want none", sha, found, err)
		}
	}
}

// Wherever a bit has changed, there is either what was written, or an error, once, and then
// none: never other code.
func TestDamage(t *testing.T) {
	dir, text := t.TempDir(), ptx("k")
	path := container(t, dir, "x", "sm_90", 90, text)
	whole, err := os.ReadFile(path)
	if err != nil {
		t.Fatal(err)
	}
	want, _ := cubintest.Object(text, 90)
	check := func(what string) {
		t.Helper()
		l, err := machinecode.Open([]string{path}, 9, 0)
		if err != nil {
			if !l.Empty() || !strings.Contains(err.Error(), path) {
				t.Errorf("%s: %v: want the file to be named, and nothing of it to be used", what, err)
			}
			return
		}
		found, err := l.Find(sum(text))
		if found != nil && !bytes.Equal(found.Bytes, want) {
			t.Errorf("%s: other code is found", what)
		}
		if err != nil {
			if again, err := l.Find(sum(text)); again != nil || err != nil {
				t.Errorf("%s: the second time %+v, %v: want none", what, again, err)
			}
		}
	}
	for at := 0; at < len(whole); at += 5 {
		data := bytes.Clone(whole)
		data[at] ^= 0x41
		if err := os.WriteFile(path, data, 0o644); err != nil {
			t.Fatal(err)
		}
		check(fmt.Sprintf("byte %d", at))
	}
	for _, n := range []int{0, 1, len(whole) / 2, len(whole) - 1} {
		if err := os.WriteFile(path, whole[:n], 0o644); err != nil {
			t.Fatal(err)
		}
		check(fmt.Sprintf("%d bytes", n))
	}
}

func TestWrongContainers(t *testing.T) {
	dir, text := t.TempDir(), ptx("k")
	zipped := func(name, file, content string) string {
		var out bytes.Buffer
		z := zip.NewWriter(&out)
		w, err := z.CreateHeader(&zip.FileHeader{Name: file, Method: zip.Store})
		if err == nil {
			_, err = w.Write([]byte(content))
		}
		if err = errors.Join(err, z.Close()); err != nil {
			t.Fatal(err)
		}
		path := filepath.Join(dir, name)
		if err := os.WriteFile(path, out.Bytes(), 0o644); err != nil {
			t.Fatal(err)
		}
		return path
	}
	renamed := filepath.Join(dir, "y-sm_90.cubins")
	if err := os.Rename(container(t, dir, "x", "sm_80", 80, text), renamed); err != nil {
		t.Fatal(err)
	}
	for path, want := range map[string]string{
		filepath.Join(dir, "none-sm_90.cubins"):                              "no such file",
		zipped("a-sm_90.cubins", "x", ""):                                    "manifest.json is missing",
		zipped("b-sm_90.cubins", "manifest.json", `{"format": 2}`):           "format 2, expected 1",
		zipped("c-sm_90.cubins", "manifest.json", `{`):                       "manifest.json",
		zipped("d-sm_90.cubins", "manifest.json", `{"format":1,"chip":"x"}`): `chip "x": expected a name such as sm_90`,
		renamed: "its manifest says sm_80, expected the chip of its name",
	} {
		l, err := machinecode.Open([]string{path}, 9, 0)
		if err == nil || !strings.Contains(err.Error(), want) || !l.Empty() {
			t.Errorf("%s: %v: want %q", path, err, want)
		}
	}
}

func TestRefused(t *testing.T) {
	dir, text := t.TempDir(), ptx("k")
	files := []string{container(t, dir, "x", "sm_90", 90, text), container(t, dir, "y", "sm_90", 90, text)}
	l, err := machinecode.Open(files, 9, 0)
	if err != nil {
		t.Fatal(err)
	}
	for _, path := range append(files, "") {
		found, err := l.Find(sum(text))
		if err != nil || (found == nil) != (path == "") || found != nil && found.Path != path {
			t.Fatalf("%+v, %v: want that of %q", found, err, path)
		}
		if found != nil {
			l.Refuse(found, sum(text))
		}
	}
}

func TestCovers(t *testing.T) {
	dir := t.TempDir()
	files := []string{container(t, dir, "x", "sm_90", 90, ptx("a"), ptx("b")), container(t, dir, "x", "sm_120", 120, ptx("a"))}
	got, err := machinecode.Covers(files, []string{sum(ptx("a")), sum(ptx("b")), sum(ptx("c"))})
	if err != nil || got["sm_90"] != 2 || got["sm_120"] != 1 || len(got) != 2 {
		t.Errorf("%v, %v", got, err)
	}
}

func FuzzContainer(f *testing.F) {
	b := machinecode.Bundle{Chip: "sm_90", Assembler: "none"}
	code, use := cubintest.Object(ptx("k"), 90)
	if err := b.Add("k", sum(ptx("k")), code, use); err != nil {
		f.Fatal(err)
	}
	var out bytes.Buffer
	if err := b.Write(&out); err != nil {
		f.Fatal(err)
	}
	f.Add(out.Bytes())
	f.Fuzz(func(t *testing.T, data []byte) {
		path := filepath.Join(t.TempDir(), "x-sm_90.cubins")
		if err := os.WriteFile(path, data, 0o600); err != nil {
			t.Fatal(err)
		}
		l, _ := machinecode.Open([]string{path}, 9, 0)
		if found, _ := l.Find(sum(ptx("k"))); found != nil {
			if _, err := machinecode.Inspect(found.Bytes); err != nil {
				t.Errorf("code that is none: %v", err)
			}
		}
		_, _ = machinecode.Inspect(data)
	})
}
