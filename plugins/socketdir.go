package plugins

import (
	"crypto/rand"
	"encoding/hex"
	"fmt"
	"os"
	"path/filepath"
	"strings"
	"sync"

	"golang.org/x/sys/unix"

	"github.com/mscclpp-go/mscclpp/framework"
)

// socketPrefix starts the name of every socket folder.
const socketPrefix = "mscclpp-plugin-"

// maxSocketBase keeps the path of a socket (base, folder, go-plugin's folder, file)
// within the 107 bytes that the kernel allows.
const maxSocketBase = 107 - len("/"+socketPrefix+"0123456789abcdef") - len("/plugin-dir4294967295") - len("/plugin4294967295")

// A socketDir is the private folder in which a plugin makes its gRPC socket. It
// exists from the start of the plugin until the host has connected, a few
// milliseconds. The host holds a lock on it meanwhile, which the kernel releases
// with the process, so that another host can tell and remove what was left when
// host and plugin were killed in these milliseconds.
type socketDir struct {
	path string
	lock *os.File
	once sync.Once
}

// socketBase is where socket folders are made: on a local file system, short.
func socketBase() string {
	for _, dir := range []string{os.Getenv("XDG_RUNTIME_DIR"), os.TempDir()} {
		if dir != "" && len(dir) <= maxSocketBase && unix.Access(dir, unix.W_OK|unix.X_OK) == nil {
			return dir
		}
	}
	return "/tmp"
}

func newSocketDir() (*socketDir, error) {
	for range 8 {
		var name [8]byte
		rand.Read(name[:])
		d := &socketDir{path: filepath.Join(socketBase(), socketPrefix+hex.EncodeToString(name[:]))}
		err := os.Mkdir(d.path, 0o700)
		if err != nil {
			return nil, fmt.Errorf("%w: folder for the plugin's socket: %w", framework.ErrUnavailable, err)
		}
		if d.lock = lockDir(d.path); d.lock != nil {
			return d, nil
		}
		// Another host took it for left over before it was locked.
	}
	return nil, fmt.Errorf("%w: folder for the plugin's socket in %s: it is removed as fast as it is made", framework.ErrUnavailable, socketBase())
}

// lockDir locks a folder, or returns nil if another process holds it or removed it.
func lockDir(path string) *os.File {
	fd, err := unix.Open(path, unix.O_RDONLY|unix.O_DIRECTORY|unix.O_CLOEXEC|unix.O_NOFOLLOW, 0)
	if err != nil {
		return nil
	}
	f := os.NewFile(uintptr(fd), path)
	var opened, named unix.Stat_t
	if unix.Flock(fd, unix.LOCK_EX|unix.LOCK_NB) == nil &&
		unix.Fstat(fd, &opened) == nil && unix.Lstat(path, &named) == nil &&
		opened.Ino == named.Ino && opened.Dev == named.Dev && int(opened.Uid) == os.Geteuid() {
		return f
	}
	f.Close()
	return nil
}

// remove removes the folder and what is in it. It may be called again.
func (d *socketDir) remove() {
	d.once.Do(func() {
		os.RemoveAll(d.path)
		d.lock.Close()
	})
}

// sweep removes socket folders of this user whose host is dead.
func sweep() {
	left, err := filepath.Glob(filepath.Join(socketBase(), socketPrefix+"*"))
	if err != nil {
		return
	}
	for _, path := range left {
		if lock := lockDir(path); lock != nil {
			os.RemoveAll(path)
			lock.Close()
		}
	}
}

// isSocketFolder reports whether newSocketDir may have made the folder.
func isSocketFolder(path string) bool {
	return strings.HasPrefix(filepath.Base(path), socketPrefix)
}
