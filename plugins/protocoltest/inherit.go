package protocoltest

import (
	"fmt"
	"os"
	"path/filepath"

	"golang.org/x/sys/unix"

	"github.com/mscclpp-go/mscclpp/framework/transporttest"
	"github.com/mscclpp-go/mscclpp/plugins/internal/environ"
)

// inherited opens what the plugin gets behind the control socket, in the order of its
// descriptors. The caller closes it.
func (s *launcher) inherited(t transporttest.TB, h *host, m startMode) []*os.File {
	pair, err := unix.Socketpair(unix.AF_UNIX, unix.SOCK_STREAM|unix.SOCK_CLOEXEC, 0)
	if err != nil {
		t.Fatalf("make a connection: %v", err)
	}
	ours, theirs := os.NewFile(uintptr(pair[0]), "connection"), os.NewFile(uintptr(pair[1]), "connection")
	if m.connected {
		h.conn = ours
		t.Cleanup(func() { ours.Close() })
		h.cmd.Env = append(h.cmd.Env, fmt.Sprint(environ.ConnectionKey, "=", connectionFD))
	} else {
		ours.Close()
	}
	path, err := filepath.EvalSymlinks(s.program.Path)
	if err != nil {
		t.Fatalf("start %s: %v", s.program.Path, err)
	}
	folder, err := os.Open(filepath.Dir(path))
	if err != nil {
		t.Fatalf("start %s: %v", s.program.Path, err)
	}
	files := []*os.File{theirs, folder}
	if m.copied {
		files = append(files, copyOf(t, path))
		h.cmd.Path = fmt.Sprintf("/proc/self/fd/%d", copyFD)
	}
	return files
}

// copyOf is a copy of a program that can be executed, in memory.
func copyOf(t transporttest.TB, path string) *os.File {
	data, err := os.ReadFile(path)
	if err != nil {
		t.Fatalf("read %s: %v", path, err)
	}
	fd, err := unix.MemfdCreate("plugin", unix.MFD_CLOEXEC)
	if err != nil {
		t.Fatalf("make a memfd: %v", err)
	}
	writable := os.NewFile(uintptr(fd), "plugin")
	defer writable.Close()
	if _, err := writable.Write(data); err != nil {
		t.Fatalf("copy %s: %v", path, err)
	}
	// A file that is open for writing cannot be executed.
	readable, err := os.Open(fmt.Sprintf("/proc/self/fd/%d", fd))
	if err != nil {
		t.Fatalf("copy %s: %v", path, err)
	}
	return readable
}
