package python

import (
	"os"
	"strings"
	"testing"
)

// The plan language gives the plans of MSCCL++, and raises what it raises, on every Python.
func TestLanguage(t *testing.T) {
	if _, err := os.Stat("../plan/dsl/testdata/plans.sum"); err != nil { // the program reads it
		t.Fatal(err)
	}
	newest(t, "nothing else", anyPython)
	for _, p := range interpreters() {
		t.Run(p.name(), func(t *testing.T) {
			text, err := run(t, p, 0, nil, "-X", "dev", "-W", "error", "tests/language.py")
			if err != nil || !strings.HasSuffix(text, "the language is right\n") {
				t.Errorf("%v\n%s", err, text)
			}
		})
	}
}
