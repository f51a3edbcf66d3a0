// Package comparetest makes a test binary the programs that a comparison starts, and checks
// committed results.
package comparetest

import (
	"fmt"
	"io"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"

	"github.com/mscclpp-go/mscclpp/bench/compare"
)

const variable = "COMPARE_FAKE"

// Main runs the tests; or fake, in a process that a comparison has started.
func Main(m *testing.M, fake func(mode string, args []string)) {
	if mode := os.Getenv(variable); mode != "" {
		fake(mode, os.Args[1:])
		os.Exit(0)
	}
	os.Exit(m.Run())
}

// Runner is one whose launcher is the test binary. All processes that the test starts get
// the mode by a variable.
func Runner(t *testing.T, mode string) compare.Runner {
	t.Helper()
	t.Setenv(variable, mode)
	t.Setenv("GORACE", "atexit_sleep_ms=0") // a second at the end of each of many children
	self, err := os.Executable()
	if err != nil {
		t.Fatal(err)
	}
	return compare.Runner{Launcher: self, Out: t.TempDir(), Repetitions: 3, Log: io.Discard}
}

// Committed checks that README.md in a folder of docs/results is the output of summarize for its
// other files. It also checks that summarize writes nothing if one is missing or not whole.
func Committed(t *testing.T, name string, summarize func(compare.Runner) error) {
	folder := filepath.Join("..", "..", "..", "docs", "results", name)
	raw, err := filepath.Glob(filepath.Join(folder, "*.jsonl"))
	if err != nil || len(raw) == 0 {
		t.Fatalf("%q, %v: expected raw output", raw, err)
	}
	r := compare.Runner{Out: t.TempDir(), Again: true, Log: io.Discard}
	here := func(file string) string { return filepath.Join(r.Out, filepath.Base(file)) }
	for _, file := range append(raw, filepath.Join(folder, "machine.json")) {
		write(t, here(file), read(t, file))
	}
	if err := summarize(r); err != nil {
		t.Fatal(err)
	}
	if read(t, here("README.md")) != read(t, filepath.Join(folder, "README.md")) {
		t.Errorf("docs/results/%[1]s/README.md is not what the other files there give: run `go run ./bench/cmd/compare-%[1]s -summarize`", name)
	}
	refuses := func(what, want string) {
		t.Helper()
		write(t, here("README.md"), "of an earlier run")
		if err := summarize(r); err == nil || !strings.Contains(err.Error(), want) {
			t.Errorf("%s: %v, expected %q", what, err, want)
		}
		if text := read(t, here("README.md")); text != "of an earlier run" {
			t.Errorf("%s: the summary was replaced by\n%.200s", what, text)
		}
	}
	for _, file := range raw {
		whole := read(t, file)
		lines := slices.Collect(strings.Lines(whole))
		write(t, here(file), whole[:len(whole)-9])
		refuses("a line that breaks off", fmt.Sprintf("%s:%d: ", here(file), len(lines)))
		write(t, here(file), strings.Join(slices.Delete(lines, 1, 2), ""))
		refuses("a line less", here(file)+":")
		if err := os.Remove(here(file)); err != nil {
			t.Fatal(err)
		}
		refuses("no raw output", here(file)+": no such file")
		write(t, here(file), whole)
	}
	if err := os.Remove(here("machine.json")); err != nil {
		t.Fatal(err)
	}
	refuses("no facts", here("machine.json")+": no such file")
}

func read(t *testing.T, file string) string {
	t.Helper()
	text, err := os.ReadFile(file)
	if err != nil {
		t.Fatal(err)
	}
	return string(text)
}

func write(t *testing.T, file, text string) {
	t.Helper()
	if err := os.WriteFile(file, []byte(text), 0o644); err != nil {
		t.Fatal(err)
	}
}
