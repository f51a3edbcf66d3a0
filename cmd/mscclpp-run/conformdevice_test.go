package main

import (
	"os"
	"path/filepath"
	"strings"
	"testing"
)

// The suite itself passes on the toy of examples/vendor-device, in scripts/vendor-test.sh.
func TestConformOfDevices(t *testing.T) {
	dir := t.TempDir()
	write := func(name string, mode os.FileMode) string {
		path := filepath.Join(dir, name)
		if err := os.WriteFile(path, []byte("not a shared object"), 0o600); err != nil {
			t.Fatal(err)
		}
		if err := os.Chmod(path, mode); err != nil {
			t.Fatal(err)
		}
		return path
	}
	garbage, wide := write("garbage.so", 0o644), write("wide.so", 0o666)
	for _, c := range []struct {
		args []string
		code int
		want string
	}{
		{[]string{"--device", garbage, "--plugin", "/x"}, 2, "neither --plugin nor --transport"},
		{[]string{"--device", garbage, "--format", "json"}, 2, "expected table"},
		{[]string{"--device", garbage, "--run", "("}, 2, "--run"},
		{[]string{"--device", garbage}, 1, "not a shared object"},
		{[]string{"--device", wide}, 1, "every user may write"},
		{[]string{"--device", filepath.Join(dir, "none.so")}, 1, "none.so"},
		{[]string{"--device", "acme", "--plugin", "/x"}, 2, "with a slash"},
		{[]string{"--device", garbage, "--list", "--kernels", "x"}, 2, "--kernels beside --list"},
		{[]string{"--plugin", "/x", "--option", "a=b"}, 2, "--option beside a transport"},
	} {
		if _, stderr, code := conformRun(t, c.args...); code != c.code || !strings.Contains(stderr, c.want) {
			t.Errorf("conform %q: exit code %d, %q: expected %d with %q", c.args, code, stderr, c.code, c.want)
		}
	}
	lines, stderr, code := conformRun(t, "--device", "./any", "--list", "--run", "^share/")
	if code != 0 || len(lines) < 5 || !strings.HasPrefix(lines[0], "share/") {
		t.Errorf("exit code %d, %q, lines %q: expected the tests of shares", code, stderr, lines)
	}
}
