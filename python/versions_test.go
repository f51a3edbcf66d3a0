package python

import (
	"os"
	"path/filepath"
	"strings"
	"testing"
)

// Every file compiles on every Python that is here, is in the language of the oldest, and names nothing of the standard library that one of
// them lacks: also files, and lines, that no other test runs there.
func TestVersions(t *testing.T) {
	last := newest(t, "nothing else", anyPython)
	wrong := filepath.Join(t.TempDir(), "wrong.py")
	const program = `import os
import os.path as p
from ctypes import no_such
def f(x):
    try:
        pass
    finally:
        while x:
            break
        for i in x:
            return os.neither
    return p.join, p.nor, (lambda os: os.anything)
`
	if err := os.WriteFile(wrong, []byte(program), 0o600); err != nil {
		t.Fatal(err)
	}
	for _, p := range interpreters() {
		t.Run(p.name(), func(t *testing.T) {
			if text, err := run(t, p, 0, nil, "tests/versions.py"); err != nil || !strings.HasSuffix(text, " files are right\n") {
				t.Errorf("%v\n%s", err, text)
			}
			if text, err := run(t, p, 0, []string{"PYTHONPATH=../python" + string(filepath.ListSeparator) + "tests"}, "tests/importing.py"); err != nil {
				t.Errorf("%v\n%s", err, text)
			}
		})
	}
	text, err := run(t, last, 0, nil, "tests/versions.py", wrong)
	if err != nil {
		t.Errorf("%v\n%s", err, text)
	}
	for _, want := range []string{":3: ctypes has no no_such", ":11: Return leaves a finally block", ":12: p has no nor"} {
		if !strings.Contains(text, want) {
			t.Errorf("%q is missing:\n%s", want, text)
		}
	}
	if strings.Count(text, "\n") != 3 { // nothing of os, whose name the lambda has for something else
		t.Errorf("it finds more or less than 3 faults:\n%s", text)
	}
}
