package programdir

import (
	"fmt"
	"os"
	"path/filepath"
	"testing"
)

func TestGet(t *testing.T) {
	exe, err := os.Executable()
	if err != nil {
		t.Fatal(err)
	}
	if got, err := Get(); err != nil || got != filepath.Dir(exe) {
		t.Errorf("got %q, %v, expected %s", got, err, filepath.Dir(exe))
	}
	Set("/elsewhere")
	defer given.Store(nil)
	if got, err := Get(); err != nil || got != "/elsewhere" {
		t.Errorf("got %q, %v, expected what was set", got, err)
	}
}

func TestName(t *testing.T) {
	dir := t.TempDir()
	f, err := os.Open(dir)
	if err != nil {
		t.Fatal(err)
	}
	defer f.Close()
	open := fmt.Sprintf("/proc/self/fd/%d", f.Fd())
	for path, want := range map[string]string{
		open: dir, open + "/a/b": dir + "/a/b", "/a/b": "/a/b", "": "",
		"/proc/self/fd/99999/a": "/proc/self/fd/99999/a", "/proc/self/fdinfo/0": "/proc/self/fdinfo/0",
	} {
		if got := Name(path); got != want {
			t.Errorf("%q: got %q, expected %q", path, got, want)
		}
	}
}
