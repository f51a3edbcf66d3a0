package plugins

import (
	"io"
	"net"
	"os"
	"path/filepath"
	"strings"
	"testing"

	"golang.org/x/sys/unix"
)

// withoutServe has all plugins of a test taken for ones that do not call Serve.
func withoutServe(t *testing.T) {
	before := callsServe
	callsServe = func(io.ReaderAt) bool { return false }
	t.Cleanup(func() { callsServe = before })
}

// TestSweep: of what is called like a socket folder, only abandoned socket folders of this
// user are removed, and of these only sockets.
func TestSweep(t *testing.T) {
	base, err := os.MkdirTemp("/tmp", "run")
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { os.RemoveAll(base) })
	t.Setenv("XDG_RUNTIME_DIR", base)
	folder := func(name string, mode os.FileMode) string {
		dir := filepath.Join(base, name)
		if err := os.MkdirAll(dir, 0o700); err != nil {
			t.Fatal(err)
		}
		if err := os.Chmod(dir, mode); err != nil {
			t.Fatal(err)
		}
		return dir
	}
	file := func(dir string) string {
		path := filepath.Join(dir, "thesis")
		if err := os.WriteFile(path, nil, 0o600); err != nil {
			t.Fatal(err)
		}
		return path
	}
	socket := func(dir string) string {
		l, err := net.ListenUnix("unix", &net.UnixAddr{Name: filepath.Join(dir, "s"), Net: "unix"})
		if err != nil {
			t.Fatal(err)
		}
		l.SetUnlinkOnClose(false)
		l.Close()
		return filepath.Join(dir, "s")
	}
	inUse, err := newSocketDir()
	if err != nil {
		t.Fatal(err)
	}
	defer inUse.remove()
	abandoned := folder("mscclpp-plugin-0123456789abcdef", 0o700)
	socket(abandoned)
	withFile := folder("mscclpp-plugin-0000000000000000", 0o700)
	stays := []string{
		inUse.path, file(withFile),
		file(folder("mscclpp-plugin-notes", 0o700)),
		folder("mscclpp-plugin-", 0o700),
		folder("mscclpp-plugin-0123456789ABCDEF", 0o700),
		folder("mscclpp-plugin-0123456789abcde", 0o700),
		folder("mscclpp-plugin-0123456789abcdef0", 0o700),
		socket(folder("mscclpp-plugin-1111111111111111", 0o755)), // not private: not ours
		file(folder("mscclpp-plugin-2222222222222222/plugin-dir1", 0o700)),
	}
	target := folder("target", 0o700)
	socket(target)
	link := filepath.Join(base, "mscclpp-plugin-3333333333333333")
	if err := os.Symlink(target, link); err != nil {
		t.Fatal(err)
	}
	stays = append(stays, link, filepath.Join(target, "s"))
	if os.Geteuid() == 0 {
		another := folder("mscclpp-plugin-4444444444444444", 0o700)
		if err := unix.Chown(another, 12345, 12345); err != nil {
			t.Fatal(err)
		}
		stays = append(stays, another)
	}
	sweep()
	for _, path := range stays {
		if _, err := os.Lstat(path); err != nil {
			t.Errorf("removed: %v", err)
		}
	}
	if _, err := os.Lstat(abandoned); err == nil {
		t.Errorf("%s is left", abandoned)
	}
}

// A file in the folder of a plugin's socket that is no socket is not removed with it.
func TestRemoveLeavesFiles(t *testing.T) {
	base := t.TempDir()
	t.Setenv("XDG_RUNTIME_DIR", "")
	t.Setenv("TMPDIR", base)
	d, err := newSocketDir()
	if err != nil {
		t.Fatal(err)
	}
	path := filepath.Join(d.path, "core")
	if err := os.WriteFile(path, nil, 0o600); err != nil {
		t.Fatal(err)
	}
	d.remove()
	if _, err := os.Lstat(path); err != nil {
		t.Error(err)
	}
}

// In a runtime folder with the longest path that is taken, a plugin starts, however
// many digits go-plugin's random names have.
func TestLongestSocketPath(t *testing.T) {
	base, err := os.MkdirTemp("/tmp", "")
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { os.RemoveAll(base) })
	longest := base + "/" + strings.Repeat("x", maxSocketBase-len(base)-1)
	if err := os.Mkdir(longest, 0o700); err != nil {
		t.Fatal(err)
	}
	t.Setenv("XDG_RUNTIME_DIR", longest)
	if got := socketBase(); got != longest {
		t.Fatalf("sockets are made in %s, expected %s", got, longest)
	}
	d, err := newSocketDir()
	if err != nil {
		t.Fatal(err)
	}
	defer d.remove()
	const room = len("/plugin4294967295")
	if n := len(d.path) + room; n > 107 {
		t.Errorf("the path of a socket may have %d bytes, expected at most 107", n)
	}
	t.Setenv("XDG_RUNTIME_DIR", longest+"x")
	if err := os.Mkdir(longest+"x", 0o700); err != nil {
		t.Fatal(err)
	}
	if got := socketBase(); got == longest+"x" {
		t.Errorf("sockets are made in a folder of %d bytes", len(got))
	}
	t.Setenv("XDG_RUNTIME_DIR", longest)
	withoutServe(t)
	for range 3 {
		c, err := Open(t.Context(), self(t, "listens"))
		if err != nil {
			t.Fatal(err)
		}
		if err := c.Shutdown(); err != nil {
			t.Error(err)
		}
	}
}
