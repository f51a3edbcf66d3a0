// Package layouttest compares structures that C++ and Go share.
package layouttest

import (
	"bytes"
	"encoding/json"
	"os"
	"os/exec"
	"path/filepath"
	"reflect"
	"strings"
	"testing"
)

// Struct is the layout of one C++ structure.
type Struct struct {
	Size    uintptr            `json:"size"`
	Offsets map[string]uintptr `json:"offsets"` // by the C++ name of the field
}

// Read reads the layouts that a C++ program printed, by the name of the structure.
func Read(t testing.TB, file string) map[string]Struct {
	t.Helper()
	data, err := os.ReadFile(file)
	if err != nil {
		t.Fatal(err)
	}
	var all map[string]Struct
	if err := json.Unmarshal(data, &all); err != nil {
		t.Fatalf("%s: %v", file, err)
	}
	return all
}

// Compare fails the test unless twin, a struct, has the layout of its C++ original:
// the same size, and every named field of either at the same offset in the other.
// Names are equal but for case and underscores.
func Compare(t testing.TB, name string, original Struct, twin any) {
	t.Helper()
	typ := reflect.TypeOf(twin)
	if typ.Size() != original.Size {
		t.Errorf("%s: %d bytes in Go, %d in C++", name, typ.Size(), original.Size)
	}
	fields := map[string]uintptr{}
	for field := range typ.Fields() {
		if field.Name != "_" {
			fields[plain(field.Name)] = field.Offset
		}
	}
	for field, offset := range original.Offsets {
		got, ok := fields[plain(field)]
		switch {
		case !ok:
			t.Errorf("%s.%s: missing in Go", name, field)
		case got != offset:
			t.Errorf("%s.%s: at byte %d in Go, at %d in C++", name, field, got, offset)
		}
		delete(fields, plain(field))
	}
	for field := range fields {
		t.Errorf("%s.%s: missing in C++", name, field)
	}
}

func plain(name string) string { return strings.ToLower(strings.ReplaceAll(name, "_", "")) }

// Build compiles a C++ program, which includes headers from the folder include alone, and
// returns where it is. It skips where there is no compiler.
func Build(t testing.TB, program, include string, flags ...string) string {
	t.Helper()
	// A result of a test is kept for as long as the files that the test itself has read are the same.
	headers, err := filepath.Glob(filepath.Join(include, "*", "*.h"))
	if err != nil || len(headers) == 0 {
		t.Fatalf("headers in %s: %v, %d", include, err, len(headers))
	}
	for _, f := range append(headers, program) {
		if _, err := os.ReadFile(f); err != nil {
			t.Fatal(err)
		}
	}
	bin := filepath.Join(t.TempDir(), "program")
	args := append([]string{"-Wall", "-Wextra", "-Werror", "-I" + include}, flags...)
	if out, err := exec.Command(compiler(t), append(args, program, "-o", bin)...).CombinedOutput(); err != nil {
		t.Fatalf("%s: %v\n%s", program, err, out)
	}
	return bin
}

// compiler is one for C++. It skips where there is none.
func compiler(t testing.TB) string {
	t.Helper()
	for _, name := range []string{"g++", "clang++-19", "clang++"} {
		if path, err := exec.LookPath(name); err == nil {
			return path
		}
	}
	t.Skip("needs a C++ compiler")
	return ""
}

// Regenerate compiles and runs the C++ program that prints layouts and fails the
// test unless it prints what file holds. It skips where there is no C++ compiler.
func Regenerate(t testing.TB, program, file, include string) {
	t.Helper()
	got, err := exec.Command(Build(t, program, include, "-std=c++11", "-Wno-invalid-offsetof")).Output()
	if err != nil {
		t.Fatal(err)
	}
	want, err := os.ReadFile(file)
	if err != nil {
		t.Fatal(err)
	}
	if !bytes.Equal(got, want) {
		t.Errorf("%s is not what %s prints now:\n%s", file, program, got)
	}
}
