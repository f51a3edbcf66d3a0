package plugins

import (
	"errors"
	"fmt"
	"io/fs"
	"os"
	"path/filepath"
	"strings"

	"golang.org/x/sys/unix"
)

// mostLinks is how many symbolic links a path may lead through, as in the kernel.
const mostLinks = 40

// A destination is what a path leads to.
type destination struct {
	path   string   // without links
	folder *os.File // that contains it; nil for "/"
	target *os.File // opened with O_PATH

	// objection says that another user may lead the path elsewhere: that user owns a link on
	// it, or can exchange what is in a folder on it. Folders that hold links count too.
	objection error
}

func (d *destination) close() {
	if d.folder != nil {
		d.folder.Close()
	}
	if d.target != nil {
		d.target.Close()
	}
}

// follow opens what a path leads to. Each folder on the way is opened from the one before and
// looked at as it was opened, and links are followed here, so that an exchange in between
// changes nothing.
func follow(path string) (*destination, error) {
	abs, err := filepath.Abs(path)
	if err != nil {
		return nil, err
	}
	d, rest, links := &destination{}, components(abs), 0
	if err := d.restart(); err != nil {
		return nil, err
	}
	for len(rest) > 0 {
		name := rest[0]
		rest = rest[1:]
		next, err := d.step(name)
		if err != nil {
			d.close()
			return nil, err
		}
		if next == "" {
			continue
		}
		if links++; links > mostLinks {
			d.close()
			return nil, &fs.PathError{Op: "open", Path: path, Err: unix.ELOOP}
		}
		if filepath.IsAbs(next) {
			if err := d.restart(); err != nil {
				return nil, err
			}
		}
		rest = append(components(next), rest...)
	}
	return d, nil
}

// components are the names in a path. Those of the folder itself are none.
func components(path string) []string {
	var out []string
	for name := range strings.SplitSeq(path, "/") {
		if name != "" && name != "." {
			out = append(out, name)
		}
	}
	return out
}

// restart begins at the root.
func (d *destination) restart() error {
	d.close()
	d.folder, d.path = nil, "/"
	var err error
	d.target, err = openAt(unix.AT_FDCWD, "/", unix.O_PATH|unix.O_DIRECTORY)
	return err
}

// step goes on to a name in the folder that has been reached. If that is a link it stays, and
// returns where the link leads.
func (d *destination) step(name string) (link string, err error) {
	if d.objection == nil {
		d.objection = distrustAbove(d.target, d.path)
	}
	path := filepath.Join(d.path, name) // a ".." is not part of a path that has no links
	next, err := openAt(int(d.target.Fd()), name, unix.O_PATH)
	if err != nil {
		return "", &fs.PathError{Op: "open", Path: path, Err: errors.Unwrap(err)}
	}
	info, err := next.Stat()
	if err == nil && info.Mode()&fs.ModeSymlink != 0 {
		defer next.Close()
		if d.objection == nil {
			d.objection = foreign(info, path)
		}
		return readLink(next)
	}
	if err != nil {
		next.Close()
		return "", err
	}
	if d.folder != nil {
		d.folder.Close()
	}
	d.path, d.folder, d.target = path, d.target, next
	return "", nil
}

// readLink returns where an open link leads.
func readLink(f *os.File) (string, error) {
	b := make([]byte, unix.PathMax)
	n, err := unix.Readlinkat(int(f.Fd()), "", b)
	if err == nil && (n == 0 || n == len(b)) {
		err = unix.ENAMETOOLONG
	}
	if err != nil {
		return "", &fs.PathError{Op: "readlink", Path: f.Name(), Err: err}
	}
	return string(b[:n]), nil
}

// trustedFolder opens a folder, and objects if another user may put programs there: into
// the folder itself, or in its place. A folder that is objected to is open nevertheless, to
// list what is rejected.
func trustedFolder(dir string) (f *os.File, objection, err error) {
	d, err := follow(dir)
	if err != nil {
		return nil, nil, err
	}
	defer d.close()
	if f, err = openAt(int(d.target.Fd()), ".", unix.O_RDONLY|unix.O_DIRECTORY); err != nil {
		return nil, nil, fmt.Errorf("%s: %w", d.path, errors.Unwrap(err))
	}
	if objection = d.objection; objection == nil {
		objection = distrust(f, d.path)
	}
	return f, objection, nil
}

// distrustFolder objects to a file that another user may exchange, or put others beside.
func (d *destination) distrustFolder() error {
	if d.objection != nil || d.folder == nil {
		return d.objection
	}
	return distrust(d.folder, filepath.Dir(d.path))
}
