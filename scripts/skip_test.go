package scripts_test

import (
	"errors"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"testing"
)

// poor is a folder for PATH with the programs of every system, but without ip, and with an
// id that names the given user.
func poor(t *testing.T, user string) string {
	t.Helper()
	bin := t.TempDir()
	for _, name := range []string{"awk", "bash", "cat", "cksum", "date", "dirname", "git", "grep", "head", "mktemp", "rm", "sed", "tail", "timeout"} {
		path, err := exec.LookPath(name)
		if err != nil {
			t.Skipf("%s is not installed", name)
		}
		if err := os.Symlink(path, filepath.Join(bin, name)); err != nil {
			t.Fatal(err)
		}
	}
	if err := os.WriteFile(filepath.Join(bin, "id"), []byte("#!/bin/sh\necho "+user+"\n"), 0o700); err != nil {
		t.Fatal(err)
	}
	return bin
}

func runPoor(t *testing.T, user, dir, script string, args ...string) (out string, code int) {
	t.Helper()
	c := exec.CommandContext(t.Context(), script, args...)
	c.Dir, c.Env = dir, append(os.Environ(), "PATH="+poor(t, user))
	text, err := c.CombinedOutput()
	var exit *exec.ExitError
	if err != nil && !errors.As(err, &exit) {
		t.Fatal(err)
	}
	return string(text), c.ProcessState.ExitCode()
}

// A check that cannot run says what is missing, by a code that no success has.
func TestSkippedIsNoSuccess(t *testing.T) {
	for _, script := range []string{"./netns-test.sh", "./scaling-check.sh"} {
		for user, want := range map[string]string{"1000": "skipped: needs root", "0": "skipped: ip is not installed"} {
			if out, code := runPoor(t, user, ".", script); code != 77 || !strings.Contains(out, want) {
				t.Errorf("%s as user %s: code %d, %q: expected 77 and %q", script, user, code, out, want)
			}
		}
	}
}
