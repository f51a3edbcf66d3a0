// Package socketdir makes the private folders in which plugins that do not inherit their
// connection make a socket, and removes those that were left.
package socketdir

import (
	"crypto/rand"
	"encoding/hex"
	"fmt"
	"os"
	"path/filepath"
	"strings"
	"sync"

	"golang.org/x/sys/unix"
)

// prefix starts the name of every socket folder; nameDigits hexadecimal digits follow.
const (
	prefix     = "mscclpp-plugin-"
	nameDigits = 16
)

// MaxBase keeps the path of a socket (base, folder, file) within the 107 bytes that
// the kernel allows, and leaves room for the folder that older hosts and plugins add.
const MaxBase = 107 - len("/"+prefix) - nameDigits - len("/plugin-dir4294967295") - len("/plugin4294967295")

// A Dir is the private folder in which a plugin makes its gRPC socket, unless it
// calls Serve and needs none. It exists from just before the plugin is started until the
// host has connected. The host holds a lock on it meanwhile, which the kernel releases
// with the process, so that another host can see that a folder was left when host and
// plugin were killed in this time, and remove it.
type Dir struct {
	Path string
	lock *os.File
	once sync.Once
}

// Base is where socket folders are made: on a local file system, short.
func Base() string {
	for _, dir := range []string{os.Getenv("XDG_RUNTIME_DIR"), os.TempDir()} {
		if dir != "" && len(dir) <= MaxBase && unix.Access(dir, unix.W_OK|unix.X_OK) == nil {
			return dir
		}
	}
	return "/tmp"
}

// Make makes a folder.
func Make() (*Dir, error) {
	for range 8 {
		var name [nameDigits / 2]byte
		rand.Read(name[:])
		d := &Dir{Path: filepath.Join(Base(), prefix+hex.EncodeToString(name[:]))}
		err := os.Mkdir(d.Path, 0o700)
		if err != nil {
			return nil, fmt.Errorf("folder for the plugin's socket: %w", err)
		}
		if d.lock = lockDir(d.Path); d.lock != nil {
			return d, nil
		}
		// Another host found it abandoned before it was locked.
	}
	return nil, fmt.Errorf("folder for the plugin's socket in %s: it is removed as fast as it is made", Base())
}

// lockDir locks a private folder of this user, or returns nil if it is none, or another
// process holds it or removed it.
func lockDir(path string) *os.File {
	fd, err := unix.Open(path, unix.O_RDONLY|unix.O_DIRECTORY|unix.O_NOFOLLOW|unix.O_CLOEXEC, 0)
	if err != nil {
		return nil
	}
	f := os.NewFile(uintptr(fd), path)
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

// Remove removes the folder with the sockets in it. It may be called again.
func (d *Dir) Remove() {
	d.once.Do(func() {
		removeSockets(d.lock, d.Path)
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

// Sweep removes socket folders of this user whose host is dead.
func Sweep() {
	base := Base()
	entries, err := os.ReadDir(base)
	if err != nil {
		return
	}
	for _, e := range entries {
		if !Made(e.Name()) {
			continue
		}
		path := filepath.Join(base, e.Name())
		if lock := lockDir(path); lock != nil {
			removeSockets(lock, path)
			lock.Close()
		}
	}
}

// Made reports whether Make may have made a folder of this name.
func Made(name string) bool {
	digits, ok := strings.CutPrefix(name, prefix)
	return ok && len(digits) == nameDigits && strings.Trim(digits, "0123456789abcdef") == ""
}
