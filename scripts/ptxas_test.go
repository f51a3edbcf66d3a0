package scripts_test

import (
	"errors"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"testing"
)

// ptxas runs the script with a python3 that is a script, and returns what it says and its
// exit status.
func ptxas(t *testing.T, python string, environment ...string) (stdout, stderr string, status int) {
	t.Helper()
	bin := t.TempDir()
	if err := os.WriteFile(filepath.Join(bin, "python3"), []byte("#!/bin/sh\n"+python+"\n"), 0o755); err != nil {
		t.Fatal(err)
	}
	c := exec.Command("./ptxas.sh")
	c.Env = append([]string{"PATH=" + bin + ":/usr/bin:/bin", "HOME=" + t.TempDir()}, environment...)
	var out, errs strings.Builder
	c.Stdout, c.Stderr = &out, &errs
	err := c.Run()
	var exit *exec.ExitError
	if err != nil && !errors.As(err, &exit) {
		t.Fatal(err)
	}
	return out.String(), errs.String(), c.ProcessState.ExitCode()
}

// Where the assembler cannot be had, the script says why, and what to do; an assembler
// with another checksum is never used.
func TestAssemblerIsFetched(t *testing.T) {
	const wheel = `case "$*" in
*--version*) exit 0 ;;
*"pip download"*) while [ $# -gt 1 ]; do shift; done; >"$1/x.whl" ;;
*zipfile*) while [ $# -gt 1 ]; do shift; done; mkdir -p "$1/nvidia/cuda_nvcc/bin"; echo other >"$1/nvidia/cuda_nvcc/bin/ptxas" ;;
esac`
	for name, c := range map[string]struct {
		python, out, errs string
		more              []string
		status            int
	}{
		"named":            {"exit 1", "/opt/ptxas\n", "", []string{"PTXAS=/opt/ptxas"}, 0},
		"no pip":           {"exit 1", "", "python3 has no pip", nil, 3},
		"no network":       {`case "$*" in *--version*) exit 0 ;; esac; echo no route >&2; exit 1`, "", "could not be fetched: no route; PTXAS=/path/to/ptxas", nil, 3},
		"another checksum": {wheel, "", "has another ptxas than expected: sha256 ", nil, 3},
	} {
		out, errs, status := ptxas(t, c.python, c.more...)
		if out != c.out || !strings.Contains(errs, c.errs) || status != c.status {
			t.Errorf("%s: status %d, %q, %q: expected %d, %q, %q", name, status, out, errs, c.status, c.out, c.errs)
		}
	}
}

// Only versions with a checksum are fetched.
func TestAssemblersHaveChecksums(t *testing.T) {
	out, err := exec.Command("./ptxas.sh", "11.8.89").CombinedOutput()
	var exit *exec.ExitError
	if !errors.As(err, &exit) || exit.ExitCode() != 2 || !strings.Contains(string(out), "11.8.89: expected 12.2.140, 12.9.86 or 13.5.37") {
		t.Errorf("%v: %s", err, out)
	}
}
