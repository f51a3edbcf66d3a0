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

// A machine that cannot have torch passes its stage, says so, and proves nothing; where it is required that is a failure.
func TestTorchIsOptional(t *testing.T) {
	if out, code := runPoor(t, "0", ".", "./torch-test.sh"); code != 0 || !strings.Contains(out, "no Python 3.11") || !strings.Contains(out, "NOT run") {
		t.Errorf("code %d, %q: expected success that says what is missing", code, out)
	}
	first, _ := runPoor(t, "0", ".", "./torch-venv.sh", "--state")
	second, _ := runPoor(t, "0", ".", "./torch-venv.sh", "--state")
	if !strings.HasPrefix(first, "none at ") || first == second {
		t.Errorf("states %q and %q: expected two that differ", first, second)
	}
	t.Setenv("TORCH_REQUIRED", "1")
	if out, code := runPoor(t, "0", ".", "./torch-test.sh"); code != 77 {
		t.Errorf("code %d, %q: expected 77", code, out)
	}
}

// Without NVRTC its test alone is left out, which the script says; where torch is required that is a failure, and so is a compiler that is not the expected one.
func TestNVRTCIsOptional(t *testing.T) {
	dir := t.TempDir()
	script, err := os.ReadFile("torch-test.sh")
	if err != nil {
		t.Fatal(err)
	}
	write := func(name, text string) {
		if err := os.WriteFile(filepath.Join(dir, "scripts", name), []byte(text), 0o700); err != nil {
			t.Fatal(err)
		}
	}
	if err := os.Mkdir(filepath.Join(dir, "scripts"), 0o700); err != nil {
		t.Fatal(err)
	}
	write("torch-test.sh", string(script))
	write("torch-venv.sh", "#!/bin/sh\necho /venv\n")
	write("go", "#!/bin/sh\necho \"$@\"\n")
	t.Setenv("GO", filepath.Join(dir, "scripts/go"))
	for _, c := range []struct {
		nvrtc, required string
		code            int
		run             bool
	}{{"echo /nvrtc.so", "", 0, true}, {"exit 3", "", 0, false}, {"exit 3", "1", 3, false}, {"exit 1", "", 1, false}} {
		write("nvrtc.sh", "#!/bin/sh\n"+c.nvrtc+"\n")
		t.Setenv("TORCH_REQUIRED", c.required)
		out, code := runPoor(t, "0", dir, "scripts/torch-test.sh")
		said := strings.Contains(out, "TestNVRTC is NOT run")
		if code != c.code || strings.Contains(out, "|NVRTC ./python") != c.run || said != (code == 0 && !c.run) {
			t.Errorf("%+v: code %d, %q", c, code, out)
		}
	}
}
