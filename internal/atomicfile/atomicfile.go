// Package atomicfile writes files that are there as a whole or not at all.
package atomicfile

import (
	"errors"
	"io"
	"io/fs"
	"os"
	"path/filepath"
	"syscall"

	"github.com/mscclpp-go/mscclpp/internal/ownfile"
)

// File writes beside the place of a file and moves it there, so that no reader sees half of
// it, and a full disk leaves what was there before. The file keeps its mode; a new one may
// be read by all users. Links, devices and pipes are written to: a move would put a file in
// their place, and a link of another user is an error. So is a pipe without a reader.
func File(name string, write func(io.Writer) error) error {
	mode := fs.FileMode(0o644)
	if info, err := os.Lstat(name); err == nil {
		if mode = info.Mode(); !mode.IsRegular() {
			return overwrite(name, write)
		}
	}
	// Behind a dot, and with another ending: patterns that list files of a kind pass it over.
	f, err := os.CreateTemp(filepath.Dir(name), "."+filepath.Base(name)+".*")
	if errors.Is(err, fs.ErrPermission) { // the folder is another user's, the file need not be
		return overwrite(name, write)
	}
	if err != nil {
		return err
	}
	err = errors.Join(write(f), f.Chmod(mode.Perm()), f.Close())
	if err == nil {
		err = os.Rename(f.Name(), name)
	}
	if err != nil {
		err = errors.Join(err, os.Remove(f.Name()))
	}
	return err
}

// Bytes is File with all that is to be in it.
func Bytes(name string, data []byte) error {
	return File(name, func(w io.Writer) error {
		_, err := w.Write(data)
		return err
	})
}

func overwrite(name string, write func(io.Writer) error) error {
	// Without a wait for a reader of a pipe.
	f, err := ownfile.Open(name, os.O_WRONLY|os.O_CREATE|os.O_TRUNC|syscall.O_NONBLOCK, 0o644)
	if err != nil {
		return err
	}
	return errors.Join(write(f), f.Close())
}
