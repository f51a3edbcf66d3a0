package cuda

import (
	"errors"
	"os"
	"path/filepath"
	"strings"
	"testing"

	"github.com/mscclpp-go/mscclpp/framework"
)

// Without a driver every entry returns an error that says which library it looked for.
func TestNoDriver(t *testing.T) {
	missing := filepath.Join(t.TempDir(), "libcuda.so.1")
	t.Setenv(EnvLibrary, missing)
	_, err1 := Open(0)
	_, err2 := Count()
	_, err3 := Version()
	for _, err := range []error{err1, err2, err3} {
		if !errors.Is(err, framework.ErrUnavailable) || !strings.Contains(err.Error(), "no NVIDIA driver") || !strings.Contains(err.Error(), missing) {
			t.Errorf("%v: expected ErrUnavailable, no NVIDIA driver, and %s", err, missing)
		}
	}
}

func TestDefaultLibraryIsNamed(t *testing.T) {
	t.Setenv(EnvLibrary, "")
	n, err := Count()
	if err == nil {
		t.Logf("%d devices", n)
		return
	}
	if !errors.Is(err, framework.ErrUnavailable) {
		t.Errorf("%v: expected ErrUnavailable", err)
	}
	if strings.Contains(err.Error(), "no NVIDIA driver") && !strings.Contains(err.Error(), defaultLibrary) {
		t.Errorf("%v: does not name %s", err, defaultLibrary)
	}
}

// A library that is no driver is recognized by the function that it lacks.
func TestLibraryWithoutFunctions(t *testing.T) {
	for _, name := range []string{"libm.so.6", "libdl.so.2"} {
		t.Setenv(EnvLibrary, name)
		_, err := Open(0)
		if !errors.Is(err, framework.ErrUnavailable) || !strings.Contains(err.Error(), "cuInit") || !strings.Contains(err.Error(), "11.8") {
			t.Errorf("%s: %v: expected ErrUnavailable, cuInit and the version", name, err)
		}
	}
	text := filepath.Join(t.TempDir(), "text.so")
	if err := os.WriteFile(text, []byte("no library"), 0o600); err != nil {
		t.Fatal(err)
	}
	t.Setenv(EnvLibrary, text)
	if _, err := Count(); !errors.Is(err, framework.ErrUnavailable) {
		t.Errorf("%v: expected ErrUnavailable", err)
	}
}

func TestArchs(t *testing.T) {
	for _, c := range []struct {
		major, minor int
		want         string
	}{
		{7, 0, ""}, {8, 0, "sm_80"}, {8, 6, "sm_80"}, {8, 9, "sm_80"}, {9, 0, "sm_90 sm_80"}, {10, 0, "sm_90 sm_80"}, {12, 1, "sm_90 sm_80"},
	} {
		if got := archs(c.major, c.minor); got != c.want {
			t.Errorf("%d.%d: %q: expected %q", c.major, c.minor, got, c.want)
		}
	}
}

func TestBusAddresses(t *testing.T) {
	for in, want := range map[string]string{
		"0000:19:00.0": "0000:19:00.0", "00000000:9B:00.0": "0000:9b:00.0", "00010000:01:00.0": "00010000:01:00.0", "": "",
	} {
		if got := busAddress(in); got != want {
			t.Errorf("%q: %q: expected %q", in, got, want)
		}
	}
}

// The table names every function once, with its version, and never one that makes
// multicast objects.
func TestSymbols(t *testing.T) {
	seen := map[string]bool{}
	names := symbolNames()
	for _, n := range names {
		if seen[n] || !strings.HasPrefix(n, "cu") {
			t.Errorf("%s: twice, or not of the driver", n)
		}
		seen[n] = true
		if strings.Contains(n, "Multicast") {
			t.Errorf("%s: multicast is not to be made", n)
		}
	}
	for _, n := range []string{"cuMemAlloc_v2", "cuStreamWriteValue64_v2", "cuIpcOpenMemHandle_v2", "cuLaunchKernelEx"} {
		if !seen[n] {
			t.Errorf("%s is not looked up", n)
		}
	}
	text, err := os.ReadFile("symbols.h")
	if err != nil {
		t.Skip("no sources beside the test binary")
	}
	if n := strings.Count(string(text), "\nCUDA_SYMBOL("); n != len(names) {
		t.Errorf("%d names: expected the %d of symbols.h", len(names), n)
	}
}
