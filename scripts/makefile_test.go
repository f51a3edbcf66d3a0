package scripts_test

import (
	"io/fs"
	"os"
	"os/exec"
	"path/filepath"
	"regexp"
	"slices"
	"strings"
	"testing"
)

// list returns the words of a variable of the Makefile.
func list(t *testing.T, name string) []string {
	t.Helper()
	text, err := os.ReadFile("../Makefile")
	if err != nil {
		t.Fatal(err)
	}
	joined := strings.ReplaceAll(string(text), "\\\n", " ")
	found := regexp.MustCompile(`(?m)^` + name + ` *= (.*)$`).FindStringSubmatch(joined)
	if found == nil {
		t.Fatalf("the Makefile has no variable %s", name)
	}
	return strings.Fields(found[1])
}

// testsOf returns the folders that have a test of each name.
func testsOf(t *testing.T) map[string][]string {
	t.Helper()
	declared := regexp.MustCompile(`(?m)^func (Test\w+)\(`)
	out := map[string][]string{}
	err := filepath.WalkDir("..", func(path string, d fs.DirEntry, err error) error {
		if err != nil || d.IsDir() || !strings.HasSuffix(path, "_test.go") {
			return err
		}
		text, err := os.ReadFile(path)
		for _, m := range declared.FindAllSubmatch(text, -1) {
			out[string(m[1])] = append(out[string(m[1])], "."+strings.TrimPrefix(filepath.ToSlash(filepath.Dir(path)), ".."))
		}
		return err
	})
	if err != nil {
		t.Fatal(err)
	}
	return out
}

// A test that is renamed or moved leaves no name behind by which it was left out of the
// race detector, or run by itself: it would be in no stage of CI, or in the wrong one.
func TestListsOfTests(t *testing.T) {
	have := testsOf(t)
	for _, name := range append(list(t, "UNRACED"), list(t, "ALONE")...) {
		if len(have[name]) == 0 {
			t.Errorf("the Makefile names %s: there is no such test", name)
		}
	}
	timed := list(t, "TIMED")
	var used []string
	for _, name := range list(t, "ALONE") {
		if folders := have[name]; len(folders) != 1 || !slices.Contains(timed, folders[0]) {
			t.Errorf("%s is a test of %v: expected one of the packages %v, where it runs", name, folders, timed)
		} else {
			used = append(used, folders[0])
		}
	}
	for _, p := range timed {
		if !slices.Contains(used, p) {
			t.Errorf("%s has no test that runs alone", p)
		}
	}
}

// The race detector runs what starts goroutines, in itself or in its tests, and leaves out what has none.
func TestRacedPackages(t *testing.T) {
	out, err := exec.CommandContext(t.Context(), "./raced.sh").Output()
	if err != nil {
		t.Fatal(err)
	}
	var have []string
	for _, p := range strings.Fields(string(out)) {
		have = append(have, strings.TrimPrefix(p, "github.com/mscclpp-go/mscclpp"))
	}
	for _, p := range []string{"", "/collectives", "/collectives/devicetest", "/framework/bootstrap", "/framework/comm", "/framework/proxy", "/framework/hook",
		"/plugins", "/launch", "/transports/shm", "/transports/tcp", "/transports/internal/verbs", "/internal/supervise"} {
		if !slices.Contains(have, p) {
			t.Errorf("%s has goroutines, and is not raced", p)
		}
	}
	for _, p := range []string{"/bench/stats", "/collectives/internal/inter/placement", "/collectives/image", "/launch/enginetest"} {
		if slices.Contains(have, p) {
			t.Errorf("%s has no goroutines that the race detector sees, and is raced", p)
		}
	}
}
