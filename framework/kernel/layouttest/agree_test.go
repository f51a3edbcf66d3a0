package layouttest

import (
	"fmt"
	"os"
	"path/filepath"
	"slices"
	"testing"
)

// recorder keeps the failures of a test that has to fail.
type recorder struct {
	testing.TB
	failures []string
}

func (r *recorder) Errorf(format string, a ...any) {
	r.failures = append(r.failures, fmt.Sprintf(format, a...))
}
func (r *recorder) Helper() {}

type base struct{ First uint32 }

type shifted struct {
	base
	_         uint32
	NoteIDs   uint64
	LastOfAll uint32
}

// A difference of a size, an offset or a value is found; what is the same is not.
func TestAgree(t *testing.T) {
	dir := t.TempDir()
	header := "#include <stdint.h>\n#include <stddef.h>\nnamespace n {\nstruct Base { uint32_t first; };\nstruct Same : Base { uint32_t pad; uint64_t note_ids; uint32_t last_of_all; };\n" +
		"struct Moved : Base { uint32_t last_of_all; uint64_t note_ids; };\nconstexpr int kMost = 3;\n}\n"
	if err := os.WriteFile(filepath.Join(dir, "h.h"), []byte(header), 0o600); err != nil {
		t.Fatal(err)
	}
	s := Source{Headers: []string{"h.h"}, Namespace: "n", Include: []string{dir}}
	r := &recorder{TB: t}
	Agree(r, s, []Twin{{Name: "Same", Go: shifted{}}}, map[string]uint64{"kMost": 3})
	if len(r.failures) != 0 {
		t.Errorf("the same: %q", r.failures)
	}
	Agree(r, s, []Twin{{Name: "Moved", Go: shifted{}}, {Name: "Same", Go: shifted{}, Fields: map[string]string{"First": "last_of_all"}}}, map[string]uint64{"kMost": 4})
	slices.Sort(r.failures)
	want := []string{"Moved.last_of_all: 4 in C++, 16 in Go", "Moved: 16 in C++, 24 in Go", "Same.last_of_all: 16 in C++, 0 in Go", "kMost: 3 in C++, 4 in Go"}
	if !slices.Equal(r.failures, want) {
		t.Errorf("%q, expected %q", r.failures, want)
	}
}
