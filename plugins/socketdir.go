package plugins

import (
	"crypto/rand"
	"encoding/hex"
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"strings"
	"sync"

	"golang.org/x/sys/unix"

	"github.com/mscclpp-go/mscclpp/framework"
)

// socketPrefix starts the name of every socket folder; nameDigits hexadecimal digits follow.
const (
	socketPrefix = "mscclpp-plugin-"
	nameDigits   = 16
)

// maxSocketBase keeps the path of a socket (base, folder, file) within the 107 bytes that
// the kernel allows, and leaves room for the folder that older hosts and plugins add.
const maxSocketBase = 107 - len("/"+socketPrefix) - nameDigits - len("/plugin-dir4294967295") - len("/plugin4294967295")

// A socketDir is the private folder in which a plugin makes its gRPC socket, unless it
// calls Serve and needs none. It exists from just before the plugin is started until the
// host has connected. The host holds a lock on it meanwhile, which the kernel releases
// with the process, so that another host can see that a folder was left when host and
// plugin were killed in this time, and remove it.
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
		var name [nameDigits / 2]byte
		rand.Read(name[:])
		d := &socketDir{path: filepath.Join(socketBase(), socketPrefix+hex.EncodeToString(name[:]))}
		err := os.Mkdir(d.path, 0o700)
		if err != nil {
			return nil, fmt.Errorf("%w: folder for the plugin's socket: %w", framework.ErrUnavailable, err)
		}
		if d.lock = lockDir(d.path); d.lock != nil {
			return d, nil
		}
		// Another host found it abandoned before it was locked.
	}
	return nil, fmt.Errorf("%w: folder for the plugin's socket in %s: it is removed as fast as it is made", framework.ErrUnavailable, socketBase())
}

// lockDir locks a private folder of this user, or returns nil if it is none, or another
// process holds it or removed it.
func lockDir(path string) *os.File {
	f, err := openAt(unix.AT_FDCWD, path, unix.O_RDONLY|unix.O_DIRECTORY)
	if err != nil {
		return nil
	}
	var opened, named unix.Stat_t
	if unix.Flock(int(f.Fd()), unix.LOCK_EX|unix.LOCK_NB) == nil &&
		unix.Fstat(int(f.Fd()), &opened) == nil && unix.Lstat(path, &named) == nil &&
		opened.Ino == named.Ino && opened.Dev == named.Dev &&
		int(opened.Uid) == os.Geteuid() && opened.Mode&0o777 == 0o700 {
		return f
	}
	f.Close()
	return nil
}

// remove removes the folder with the sockets in it. It may be called again.
func (d *socketDir) remove() {
	d.once.Do(func() {
		removeSockets(d.lock, d.path)
		d.lock.Close()
	})
}

// removeSockets removes the sockets in an open folder and then the folder, which must be
// empty. Files that are no sockets are not ours: they stay, and so does their folder.
func removeSockets(dir *os.File, path string) {
	names, err := dir.Readdirnames(-1)
	if err != nil {
		return
	}
	for _, name := range names {
		var st unix.Stat_t
		if unix.Fstatat(int(dir.Fd()), name, &st, unix.AT_SYMLINK_NOFOLLOW) == nil && st.Mode&unix.S_IFMT == unix.S_IFSOCK {
			_ = unix.Unlinkat(int(dir.Fd()), name, 0)
		}
	}
	_ = unix.Rmdir(path) // ENOTEMPTY: see above
}

// sweep removes socket folders of this user whose host is dead.
func sweep() {
	base := socketBase()
	entries, err := os.ReadDir(base)
	if err != nil {
		return
	}
	for _, e := range entries {
		if !isSocketFolder(e.Name()) {
			continue
		}
		path := filepath.Join(base, e.Name())
		if lock := lockDir(path); lock != nil {
			removeSockets(lock, path)
			lock.Close()
		}
	}
}

// isSocketFolder reports whether newSocketDir may have made a folder of this name.
func isSocketFolder(name string) bool {
	digits, ok := strings.CutPrefix(name, socketPrefix)
	return ok && len(digits) == nameDigits && strings.Trim(digits, "0123456789abcdef") == ""
}

// removeOwnSocket removes the socket that this plugin made in the folder of its host, and
// the folder, if the host did not live to do so.
func removeOwnSocket() {
	socket := ownSocket()
	if socket == "" {
		return
	}
	if err := os.Remove(socket); err != nil && !errors.Is(err, os.ErrNotExist) {
		return
	}
	dir := filepath.Dir(socket)
	for range 2 { // an older host makes a folder in the folder
		if name := filepath.Base(dir); !isSocketFolder(name) && !strings.HasPrefix(name, "plugin-dir") {
			return
		}
		_ = unix.Rmdir(dir)
		dir = filepath.Dir(dir)
	}
}
