package check_test

import (
	"context"
	"errors"
	"path/filepath"
	"slices"
	"strconv"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/mscclpp-go/mscclpp/framework"
	"github.com/mscclpp-go/mscclpp/framework/kernel/check"
)

// build compiles testdata/NAME.cc, for all modes at once where that is possible.
func build(t *testing.T, name string, modes ...check.Mode) map[string]string {
	t.Helper()
	p := check.Program{Source: filepath.Join("testdata", name+".cc")}
	var (
		wg  sync.WaitGroup
		mu  sync.Mutex
		all = map[string]string{}
	)
	for _, m := range modes {
		wg.Go(func() {
			bin, err := p.Build(t.Context(), m)
			mu.Lock()
			defer mu.Unlock()
			switch {
			case errors.Is(err, framework.ErrUnavailable):
				all[m.Name] = ""
			case err != nil:
				t.Errorf("%s: %v", m.Name, err)
			default:
				all[m.Name] = bin
			}
		})
	}
	wg.Wait()
	if t.Failed() {
		t.FailNow()
	}
	for m, bin := range all {
		if bin == "" {
			t.Skipf("needs clang-19 and libclang-rt-19-dev: mode %s", m)
		}
	}
	return all
}

func run(t *testing.T, bin string, m check.Mode, args ...string) check.Result {
	t.Helper()
	ctx, cancel := context.WithTimeout(t.Context(), time.Minute)
	defer cancel()
	r, err := check.Run(ctx, bin, m, args...)
	if err != nil {
		t.Fatal(err)
	}
	return r
}

func TestRightKernelsPassInEveryMode(t *testing.T) {
	bins := build(t, "planted", check.Modes...)
	for _, m := range check.Modes {
		if r := run(t, bins[m.Name], m); r.Exit != 0 {
			t.Errorf("%s: exit code %d\n%s", m.Name, r.Exit, head(r.Output))
		}
	}
}

// Every planted bug is found by at least one mode, and by the mode that was made for
// its kind.
func TestEveryPlantedBugIsFound(t *testing.T) {
	bins := build(t, "planted", check.Modes...)
	list := run(t, bins["plain"], check.Plain, "--bugs")
	found := map[string][]string{}
	for _, line := range strings.Split(strings.TrimSpace(list.Output), "\n") {
		number, rest, _ := strings.Cut(line, "\t")
		test, name, _ := strings.Cut(rest, "\t")
		if test == "" {
			continue
		}
		for _, m := range check.Modes {
			r := run(t, bins[m.Name], m, "--test", test, "--bug", number)
			if r.Exit == 0 {
				continue
			}
			found[name] = append(found[name], m.Name)
			if m.Name == check.Plain.Name && r.Exit > check.ExitBarrier {
				continue // memory was damaged: the plain run may end in any way
			}
			if !slices.Contains([]int{check.ExitDeadlock, check.ExitWrong, check.ExitBarrier, check.ExitRace, check.ExitMemory, 1, -1}, r.Exit) {
				t.Errorf("%s, %s: exit code %d\n%s", name, m.Name, r.Exit, head(r.Output))
			}
		}
		t.Logf("%-48s %v", name, found[name])
		if len(found[name]) == 0 {
			t.Errorf("bug %s (%s) was found by no mode", number, name)
		}
	}
	if len(found) < 13 {
		t.Errorf("%d bugs were planted, expected at least 13", len(found))
	}
	for name, mode := range map[string]check.Mode{
		"signal is not a release":                 check.Races,
		"wait is not an acquire":                  check.Races,
		"grid barrier arrives relaxed":            check.Races,
		"no barrier before signal":                check.Seeds,
		"overwrites what the peer still reads":    check.Seeds,
		"second flag of LL16 unchecked":           check.Seeds,
		"head not atomic":                         check.Seeds,
		"commit word before payload":              check.Seeds,
		"copy rounded up to 16 bytes":             check.Memory,
		"wrong peer":                              check.Plain,
		"a block returns before the grid barrier": check.Plain,
	} {
		if !slices.Contains(found[name], mode.Name) {
			t.Errorf("%s: not found by %s", name, mode.Name)
		}
	}
}

func TestDeadlockNamesThreadsAndPlaces(t *testing.T) {
	bins := build(t, "planted", check.Plain)
	r := run(t, bins["plain"], check.Plain, "--test", "exchange", "--bug", "5")
	if r.Exit != check.ExitDeadlock {
		t.Fatalf("exit code %d, expected a deadlock\n%s", r.Exit, head(r.Output))
	}
	for _, want := range []string{"rank 0 block 0 thread 0 at ", "planted.cc:", "expects 1, has seen 0", "barrier, 7 of 8 threads"} {
		if !strings.Contains(r.Output, want) {
			t.Errorf("no %q in:\n%s", want, head(r.Output))
		}
	}
}

// The seed that a failure names fails again, in the same way.
func TestSeedsReplay(t *testing.T) {
	bins := build(t, "planted", check.Seeds)
	first := run(t, bins["seeds"], check.Seeds, "--test", "ring", "--bug", "24")
	_, rest, ok := strings.Cut(first.Output, "(seed ")
	if first.Exit == 0 || !ok {
		t.Fatalf("exit code %d, no seed in:\n%s", first.Exit, head(first.Output))
	}
	seed, _, _ := strings.Cut(rest, ")")
	if _, err := strconv.Atoi(seed); err != nil {
		t.Fatal(err)
	}
	again := run(t, bins["seeds"], check.Plain, "--test", "ring", "--bug", "24", "--seed", seed)
	if again.Exit != first.Exit || again.Output != first.Output {
		t.Errorf("seed %s: exit code %d\n%s\nexpected %d\n%s", seed, again.Exit, head(again.Output), first.Exit, head(first.Output))
	}
}

func TestUnknownOptionsAndTests(t *testing.T) {
	bins := build(t, "planted", check.Plain)
	for _, args := range [][]string{{"--test", "none"}, {"--speed", "9"}, {"--seeds"}} {
		if r := run(t, bins["plain"], check.Plain, args...); r.Exit != 2 {
			t.Errorf("%q: exit code %d, expected 2", args, r.Exit)
		}
	}
}

func head(s string) string {
	if len(s) > 2000 {
		return s[:2000] + "…"
	}
	return s
}
