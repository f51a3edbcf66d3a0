package main

import (
	"errors"
	"io"
	"io/fs"
	"os"
	"path/filepath"
	"syscall"
)

// writeFile writes beside the place of a file and moves it there, so that nobody sees half
// of it, and a full disk leaves what was there before. Links, devices and pipes are written
// to: a move would put a file in their place.
func writeFile(name string, write func(io.Writer) error) (err error) {
	mode := fs.FileMode(0o644)
	if info, err := os.Lstat(name); err == nil {
		if mode = info.Mode(); !mode.IsRegular() {
			return overwrite(name, write)
		}
	}
	f, err := os.CreateTemp(filepath.Dir(name), ".*."+filepath.Base(name))
	if errors.Is(err, fs.ErrPermission) { // the folder is another user's, the file need not be
		return overwrite(name, write)
	}
	if err != nil {
		return err
	}
	defer func() {
		if err != nil {
			err = errors.Join(err, os.Remove(f.Name()))
		}
	}()
	if err := errors.Join(write(f), f.Chmod(mode.Perm()), f.Close()); err != nil {
		return err
	}
	return os.Rename(f.Name(), name)
}

func overwrite(name string, write func(io.Writer) error) error {
	// Without a wait for somebody to read a pipe.
	f, err := os.OpenFile(name, os.O_WRONLY|os.O_CREATE|os.O_TRUNC|syscall.O_NONBLOCK, 0o644)
	if err != nil {
		return err
	}
	return errors.Join(write(f), f.Close())
}
