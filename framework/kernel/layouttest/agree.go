package layouttest

import (
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"reflect"
	"strings"
	"testing"
	"unicode"
)

// Source is C++ code that has structures and constants of Go's.
type Source struct {
	Headers   []string
	Namespace string
	Include   []string // the folders where headers are
}

// Twin is a structure of Go with the one of C++ that it is for.
type Twin struct {
	Name string // in C++
	Go   any

	// Fields are the names in C++ of the fields to compare; nil: of all, those of embedded structures too, as C++ spells
	// them: ResidualOut is residual_out.
	Fields map[string]string
}

// value is one that both have.
type value struct {
	name       string
	expression string // in C++
	want       uint64
}

// Agree fails the test unless a C++ compiler gives the originals the sizes and offsets, and expressions in C++ the values, that Go has. It
// skips where there is no compiler.
func Agree(t testing.TB, s Source, twins []Twin, constants map[string]uint64) {
	t.Helper()
	var all []value
	for expression, want := range constants {
		all = append(all, value{expression, expression, want})
	}
	for _, x := range twins {
		typ := reflect.TypeOf(x.Go)
		all = append(all, value{x.Name, "sizeof(" + x.Name + ")", uint64(typ.Size())})
		for field, original := range x.names(t) {
			f, _ := typ.FieldByName(field)
			all = append(all, value{x.Name + "." + original, "offsetof(" + x.Name + ", " + original + ")", offset(typ, f.Index)})
		}
	}
	var program strings.Builder
	for _, h := range s.Headers {
		fmt.Fprintf(&program, "#include %q\n", h)
	}
	fmt.Fprintf(&program, "#include <stdio.h>\nusing namespace %s;\nint main() {\n", s.Namespace)
	for _, c := range all {
		fmt.Fprintf(&program, "  printf(\"%%llu\\n\", static_cast<unsigned long long>(%s));\n", c.expression)
	}
	got := strings.Fields(run(t, program.String()+"}\n", s.Include))
	if len(got) != len(all) {
		t.Fatalf("%d values, expected %d", len(got), len(all))
	}
	for i, c := range all {
		if got[i] != fmt.Sprint(c.want) {
			t.Errorf("%s: %s in C++, %d in Go", c.name, got[i], c.want)
		}
	}
}

// names are the fields to compare, by the name in Go.
func (x Twin) names(t testing.TB) map[string]string {
	typ := reflect.TypeOf(x.Go)
	if x.Fields != nil {
		for field := range x.Fields {
			if _, ok := typ.FieldByName(field); !ok {
				t.Fatalf("%s has no field %s", x.Name, field)
			}
		}
		return x.Fields
	}
	names := map[string]string{}
	for _, f := range reflect.VisibleFields(typ) {
		if !f.Anonymous && f.Name != "_" {
			names[f.Name] = snake(f.Name)
		}
	}
	return names
}

// offset is where a field begins that may be one of an embedded structure.
func offset(typ reflect.Type, index []int) (at uint64) {
	for i := range index {
		at += uint64(typ.FieldByIndex(index[:i+1]).Offset)
	}
	return at
}

// run compiles and runs a program.
func run(t testing.TB, program string, include []string) string {
	t.Helper()
	flags := []string{"-std=c++17", "-Wno-invalid-offsetof"}
	for _, folder := range include {
		flags = append(flags, "-I"+folder)
		// A result of a test is kept for as long as the files that the test itself has read are the same.
		for _, pattern := range []string{"*.h", "*/*.h"} {
			headers, err := filepath.Glob(filepath.Join(folder, pattern))
			for _, h := range headers {
				if _, err = os.ReadFile(h); err != nil {
					break
				}
			}
			if err != nil {
				t.Fatal(err)
			}
		}
	}
	dir := t.TempDir()
	file, bin := filepath.Join(dir, "layout.cc"), filepath.Join(dir, "layout")
	if err := os.WriteFile(file, []byte(program), 0o600); err != nil {
		t.Fatal(err)
	}
	if text, err := exec.Command(compiler(t), append(flags, file, "-o", bin)...).CombinedOutput(); err != nil {
		t.Fatalf("%v\n%s", err, text)
	}
	text, err := exec.Command(bin).Output()
	if err != nil {
		t.Fatal(err)
	}
	return string(text)
}

// snake is a name as C++ has it: ResidualOut is residual_out, NoteIDs note_ids.
func snake(name string) string {
	var out []rune
	letters := []rune(name)
	for i, r := range letters {
		if unicode.IsUpper(r) && i > 0 && (unicode.IsLower(letters[i-1]) || i+1 < len(letters) && unicode.IsLower(letters[i+1]) && letters[i+1] != 's') {
			out = append(out, '_')
		}
		out = append(out, unicode.ToLower(r))
	}
	return string(out)
}
