package socketdir

import (
	"net"
	"os"
	"path/filepath"
	"testing"

	"golang.org/x/sys/unix"
)

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
	inUse, err := Make()
	if err != nil {
		t.Fatal(err)
	}
	defer inUse.Remove()
	abandoned := folder("mscclpp-plugin-0123456789abcdef", 0o700)
	socket(abandoned)
	withFile := folder("mscclpp-plugin-0000000000000000", 0o700)
	stays := []string{
		inUse.Path, file(withFile),
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
	Sweep()
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
	d, err := Make()
	if err != nil {
		t.Fatal(err)
	}
	path := filepath.Join(d.Path, "core")
	if err := os.WriteFile(path, nil, 0o600); err != nil {
		t.Fatal(err)
	}
	d.Remove()
	if _, err := os.Lstat(path); err != nil {
		t.Error(err)
	}
}
