package verbs

import (
	"errors"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"sync"
	"testing"

	"github.com/mscclpp-go/mscclpp/framework/observe"
)

// The library without hardware that testdata/fake.c is, compiled once for each set of
// things that are wrong with it.
var fakes struct {
	sync.Mutex
	dir   string
	built map[string]string
}

func TestMain(m *testing.M) {
	dir, err := os.MkdirTemp("", "verbs-fake")
	if err != nil {
		panic(err)
	}
	fakes.dir, fakes.built = dir, map[string]string{}
	if observed, err = observe.Open(observe.Facts{Job: "verbs", Size: 1, Local: -1}); err != nil {
		panic(err)
	}
	os.Setenv(observe.EnvRegion, observed.Region())
	code := m.Run()
	os.RemoveAll(dir)
	os.Exit(code)
}

func compiler() string {
	if cc := os.Getenv("CC"); cc != "" {
		return cc
	}
	return "cc"
}

// fake returns the path of a library in which macros are defined.
func fake(t testing.TB, macros ...string) string {
	t.Helper()
	name := "fake-" + strings.Join(macros, "-") + ".so"
	fakes.Lock()
	defer fakes.Unlock()
	if path, ok := fakes.built[name]; ok {
		return path
	}
	path := filepath.Join(fakes.dir, name)
	args := []string{"-shared", "-fPIC", "-O1", "-Wall", "-Werror", "-o", path, "testdata/fake.c"}
	for _, m := range macros {
		args = append(args, "-D"+m)
	}
	if out, err := exec.Command(compiler(), args...).CombinedOutput(); err != nil {
		t.Fatalf("%s: %v\n%s", compiler(), err, out)
	}
	fakes.built[name] = path
	return path
}

// modes are both ways to signal.
var modes = map[string]Mode{"ib-host": Atomic, "ib-nonatomic": Immediate}

func transportOn(t testing.TB, library string, mode Mode, change ...func(*Config)) *Transport {
	t.Helper()
	c := Config{}.Defaults()
	c.Library = library
	for _, f := range change {
		f(&c)
	}
	name := "ib-host"
	if mode == Immediate {
		name = "ib-nonatomic"
	}
	tr, err := New(Setup{Name: name, Version: "1.0.0", Mode: mode}, c)
	if err != nil {
		t.Fatal(err)
	}
	return tr.(*Transport)
}

// recorded has the fake write down what it is asked to do, and returns the lines so far.
func recorded(t *testing.T) func() []string {
	t.Helper()
	path := filepath.Join(t.TempDir(), "log")
	t.Setenv("FAKE_VERBS_LOG", path)
	return func() []string {
		text, err := os.ReadFile(path)
		if err != nil && !errors.Is(err, os.ErrNotExist) {
			t.Fatal(err)
		}
		if len(text) == 0 {
			return nil
		}
		return strings.Split(strings.TrimSuffix(string(text), "\n"), "\n")
	}
}

func wantError(t *testing.T, err error, class error, words ...string) {
	t.Helper()
	if !errors.Is(err, class) {
		t.Fatalf("error %v: want class %v", err, class)
	}
	for _, w := range words {
		if !strings.Contains(err.Error(), w) {
			t.Errorf("error %q does not say %q", err, w)
		}
	}
}
