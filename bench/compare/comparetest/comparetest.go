// Package comparetest makes a test binary the programs that a comparison starts.
package comparetest

import (
	"io"
	"os"
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

// Runner is one whose launcher is the test binary. All processes that the test starts are
// told the mode.
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
