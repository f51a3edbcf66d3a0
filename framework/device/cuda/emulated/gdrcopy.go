package emulated

import (
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"strings"
	"testing"
)

const gdrcopyName = "libgdrapi.so.2"

// GDRCopy returns the path of the library of GDRCopy that belongs to a driver, whose path
// Build or Library has returned. It reads the environment at each call; EnvWithout may name
// gdr_version, gdr_open, gdr_pin_buffer and gdr_map.
func GDRCopy(driver string) string { return filepath.Join(filepath.Dir(driver), gdrcopyName) }

// envGDRCopyLog names the file to which the library adds a line for each call that does
// something: open, pin ADDRESS BYTES, map, unmap, unpin, close, or what is wrong with it.
const envGDRCopyLog = "CUDA_EMULATED_GDRCOPY_LOG"

// GDRCopyCalls has the library of GDRCopy write down what this process asks of it while a test
// runs. It returns the lines so far.
func GDRCopyCalls(t testing.TB) func() []string {
	t.Helper()
	path := filepath.Join(t.TempDir(), "gdrcopy")
	t.Setenv(envGDRCopyLog, path)
	return func() []string {
		text, err := os.ReadFile(path)
		if err != nil && !errors.Is(err, os.ErrNotExist) {
			t.Fatal(err)
		}
		return strings.FieldsFunc(string(text), func(r rune) bool { return r == '\n' })
	}
}

// GDRCopyLeft says what such calls did wrong, or have left open or pinned or mapped.
func GDRCopyLeft(calls []string) error {
	left := map[string]int{}
	for _, c := range calls {
		name, _, _ := strings.Cut(c, " ")
		switch {
		case name == "pin":
			left[name]++
		case c == "open" || c == "map":
			left[c]++
		case c == "close":
			left["open"]--
		case c == "unpin" || c == "unmap":
			left[strings.TrimPrefix(c, "un")]--
		default:
			return fmt.Errorf("GDRCopy was asked for: %s", c)
		}
	}
	for what, n := range left {
		if n != 0 {
			return fmt.Errorf("GDRCopy: %d times %s without the opposite: %q", n, what, calls)
		}
	}
	return nil
}
