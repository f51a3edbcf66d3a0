// Package ownfile opens files in folders into which other users may write, such as those
// for temporary files, without doing what these users have prepared there.
package ownfile

import (
	"errors"
	"fmt"
	"io/fs"
	"os"
	"path/filepath"

	"golang.org/x/sys/unix"
)

// mostLinks is how many links the kernel follows, too.
const mostLinks = 40

// Open is os.OpenFile, but follows a link in the place of the file only if it belongs to
// this user or to root: another user's would have us write where that user cannot.
func Open(path string, flags int, perm fs.FileMode) (*os.File, error) {
	at, name := unix.AT_FDCWD, path
	defer func() { closeFolder(at) }()
	for range mostLinks {
		fd, err := openat(at, name, flags|unix.O_NOFOLLOW, perm)
		if err == nil {
			return os.NewFile(uintptr(fd), path), nil
		}
		target := ""
		if errors.Is(err, unix.ELOOP) {
			target, err = readLink(at, name)
		}
		if err != nil {
			return nil, &fs.PathError{Op: "open", Path: path, Err: err}
		}
		if !filepath.IsAbs(target) {
			parent, err := openat(at, filepath.Dir(name), unix.O_PATH|unix.O_DIRECTORY, 0)
			if err != nil {
				return nil, &fs.PathError{Op: "open", Path: path, Err: err}
			}
			closeFolder(at)
			at = parent
		}
		name = target
	}
	return nil, &fs.PathError{Op: "open", Path: path, Err: unix.ELOOP}
}

func closeFolder(fd int) {
	if fd != unix.AT_FDCWD {
		unix.Close(fd)
	}
}

func openat(at int, name string, flags int, perm fs.FileMode) (int, error) {
	for {
		fd, err := unix.Openat(at, name, flags|unix.O_CLOEXEC, uint32(perm.Perm()))
		if !errors.Is(err, unix.EINTR) {
			return fd, err
		}
	}
}

// readLink returns where a link of this user or of root leads.
func readLink(at int, name string) (string, error) {
	fd, err := openat(at, name, unix.O_PATH|unix.O_NOFOLLOW, 0)
	if err != nil {
		return "", err
	}
	defer unix.Close(fd)
	var st unix.Stat_t
	if err := unix.Fstat(fd, &st); err != nil {
		return "", err
	}
	if !own(&st) {
		return "", fmt.Errorf("%w: it is a link of user %d: expected a file, or a link of user %d", fs.ErrPermission, st.Uid, os.Geteuid())
	}
	target := make([]byte, unix.PathMax)
	n, err := unix.Readlinkat(fd, "", target)
	if err != nil {
		return "", err
	}
	return string(target[:n]), nil
}

func own(st *unix.Stat_t) bool { return st.Uid == 0 || int(st.Uid) == os.Geteuid() }

// Cache returns a folder of this module in the user's cache, or without one among the
// temporary files, and makes it. No other user can write to it.
func Cache(names ...string) (string, error) {
	base, err := os.UserCacheDir()
	first := "mscclpp-go"
	if err != nil {
		base, first = os.TempDir(), fmt.Sprintf("mscclpp-go-%d", os.Geteuid())
	}
	return folder(base, append([]string{first}, names...)...)
}

// Folder makes a folder, with those above it, and objects if other users can write to it.
func Folder(path string) error {
	_, err := folder(filepath.Dir(path), filepath.Base(path))
	return err
}

// folder makes folders below base, each in the one before.
func folder(base string, names ...string) (string, error) {
	if err := os.MkdirAll(base, 0o755); err != nil {
		return "", err
	}
	at, err := openat(unix.AT_FDCWD, base, unix.O_PATH|unix.O_DIRECTORY, 0)
	if err != nil {
		return "", &fs.PathError{Op: "open", Path: base, Err: err}
	}
	defer func() { unix.Close(at) }()
	path := base
	for _, name := range names {
		path = filepath.Join(path, name)
		if err := unix.Mkdirat(at, name, 0o755); err != nil && !errors.Is(err, unix.EEXIST) {
			return "", &fs.PathError{Op: "mkdir", Path: path, Err: err}
		}
		next, err := openat(at, name, unix.O_PATH|unix.O_DIRECTORY|unix.O_NOFOLLOW, 0)
		if err != nil {
			return "", fmt.Errorf("%w: expected a folder of user %d that is no link", &fs.PathError{Op: "open", Path: path, Err: err}, os.Geteuid())
		}
		unix.Close(at)
		at = next
		var st unix.Stat_t
		if err := unix.Fstat(at, &st); err != nil {
			return "", &fs.PathError{Op: "stat", Path: path, Err: err}
		}
		// The user's own group has the user's number.
		if !own(&st) || st.Mode&0o002 != 0 || st.Mode&0o020 != 0 && st.Gid != 0 && st.Gid != st.Uid {
			return "", fmt.Errorf("%w: folder %s belongs to user %d and has mode %#o: expected user %d, and that nobody else can write to it",
				fs.ErrPermission, path, st.Uid, st.Mode&0o777, os.Geteuid())
		}
	}
	return path, nil
}

// Lock waits until no other process has the file locked.
func Lock(path string) (unlock func(), err error) {
	f, err := Open(path, unix.O_CREAT|unix.O_RDWR, 0o600)
	if err != nil {
		return nil, fmt.Errorf("lock: %w", err)
	}
	for {
		if err = unix.Flock(int(f.Fd()), unix.LOCK_EX); !errors.Is(err, unix.EINTR) {
			break
		}
	}
	if err != nil {
		f.Close()
		return nil, fmt.Errorf("lock %s: %w", path, err)
	}
	return func() { f.Close() }, nil
}
