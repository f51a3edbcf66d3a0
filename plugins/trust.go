package plugins

import (
	"errors"
	"fmt"
	"io/fs"
	"os"
	"syscall"

	"golang.org/x/sys/unix"
)

// Permission bits of others.
const (
	groupWrite = 0o020
	otherWrite = 0o002
)

// distrustAbove objects to a folder in which another user may exchange what is on the way to a
// plugin. Where the sticky bit is set, as in /tmp, all users may add and none may exchange. A group
// that root lets write is the administrator's decision.
func distrustAbove(f *os.File, path string) error {
	info, err := f.Stat()
	if err != nil {
		return err
	}
	if err := foreign(info, path); err != nil || info.Mode()&fs.ModeSticky != 0 {
		return err
	}
	if owner(info) == 0 && info.Mode()&otherWrite == 0 {
		return nil
	}
	return shared(info, path)
}

// distrust objects to a file, or a folder with plugins, that another user may change.
func distrust(f *os.File, path string) error {
	info, err := f.Stat()
	if err != nil {
		return err
	}
	if err := foreign(info, path); err != nil {
		return err
	}
	return shared(info, path)
}

// foreign objects to another user's file or folder.
func foreign(info fs.FileInfo, path string) error {
	user := owner(info)
	if user == 0 || user == os.Geteuid() || user == ownerOf("/proc/thread-self/exe") || user == ownerOf("/") {
		return nil // "/": in a user namespace, root has another number
	}
	return fmt.Errorf("%s belongs to user %d, expected %d or root", path, user, os.Geteuid())
}

// shared objects to a file or folder into which others than its owner may write. A group
// with the number of the owner is the owner's own.
func shared(info fs.FileInfo, path string) error {
	perm := info.Mode().Perm()
	st, ok := info.Sys().(*syscall.Stat_t)
	if perm&otherWrite != 0 {
		return fmt.Errorf("every user may write to %s: expected mode %#o", path, perm&^(groupWrite|otherWrite))
	}
	if perm&groupWrite != 0 && (!ok || st.Gid != 0 && st.Gid != st.Uid) {
		return fmt.Errorf("group %d may write to %s: expected mode %#o", st.Gid, path, perm&^groupWrite)
	}
	return nil
}

// ownerOf returns the user who owns what is under a path, -1 if unknown.
func ownerOf(path string) int {
	info, err := os.Stat(path)
	if err != nil {
		return -1
	}
	return owner(info)
}

// owner returns the user who owns an open file or folder.
func owner(info fs.FileInfo) int {
	if st, ok := info.Sys().(*syscall.Stat_t); ok {
		return int(st.Uid)
	}
	return -1
}

// openAt opens a name in a folder. A link is not followed.
func openAt(dir int, name string, flags int) (*os.File, error) {
	for {
		fd, err := unix.Openat(dir, name, flags|unix.O_NOFOLLOW|unix.O_CLOEXEC, 0)
		switch {
		case errors.Is(err, unix.EINTR):
		case err != nil:
			return nil, &fs.PathError{Op: "open", Path: name, Err: err}
		default:
			return os.NewFile(uintptr(fd), name), nil
		}
	}
}
