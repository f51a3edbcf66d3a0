package plugins

import (
	"crypto/subtle"
	"encoding/hex"
	"fmt"
	"os"
	"path/filepath"

	"golang.org/x/sys/unix"

	"github.com/mscclpp-go/mscclpp/framework"
)

// OpenLibrary opens a shared object that this process is going to load. The result is a copy in sealed memory, so
// the process loads the bytes that were checked. sha256, in hexadecimal, is the checksum of the copy, "" for any.
//
// The rules are those for plugins, and hold with and without a checksum, since the object gets all rights of the process: the
// file and everything that leads to it belong to the user or to root, and no other user may write there. A process that has
// more rights than its user, by its mode or by capabilities of its file, gets none: the user has chosen the path.
func OpenLibrary(path, sha256 string) (*os.File, error) {
	f, err := openLibrary(path, sha256)
	if err != nil {
		return nil, fmt.Errorf("shared object %s: %w", path, err)
	}
	return f, nil
}

func openLibrary(path, sum string) (*os.File, error) {
	if !filepath.IsAbs(path) {
		return nil, fmt.Errorf("%w: expected an absolute path", framework.ErrInvalid)
	}
	if raised() {
		return nil, fmt.Errorf("%w: this process has more rights than its user (set-user-ID, or capabilities): it loads none that a user names", framework.ErrUnsupported)
	}
	d, err := follow(path)
	if err != nil {
		return nil, fmt.Errorf("%w: %w", framework.ErrUnavailable, err)
	}
	defer d.close()
	if objection := d.distrustFolder(); objection != nil {
		return nil, fmt.Errorf("%w: it would run with all rights of this process: %w", framework.ErrInvalid, objection)
	}
	if d.folder == nil {
		return nil, fmt.Errorf("%w: is a folder, expected a file", framework.ErrInvalid)
	}
	file, err := openIn(d.folder, filepath.Base(d.path))
	if err != nil {
		return nil, fmt.Errorf("%w: %w", framework.ErrUnavailable, err)
	}
	defer file.Close()
	info, err := file.Stat()
	if err != nil {
		return nil, fmt.Errorf("%w: %w", framework.ErrUnavailable, err)
	}
	if !info.Mode().IsRegular() {
		return nil, fmt.Errorf("%w: is a %s, expected a file", framework.ErrInvalid, typeOf(info.Mode()))
	}
	if objection := distrust(file, d.path); objection != nil {
		return nil, fmt.Errorf("%w: it would run with all rights of this process: %w", framework.ErrInvalid, objection)
	}
	return checkedCopy(file, sum)
}

// checkedCopy copies a file into sealed memory, if it has the checksum.
func checkedCopy(file *os.File, sum string) (*os.File, error) {
	sealed, seen, err := sealedCopy(file)
	if err != nil {
		return nil, fmt.Errorf("%w: cannot be copied: %w", framework.ErrUnavailable, err)
	}
	want, err := hex.DecodeString(sum)
	if err != nil || len(want) != 0 && len(want) != len(seen) {
		sealed.Close()
		return nil, fmt.Errorf("%w: sha256 %q: expected 64 hexadecimal digits", framework.ErrInvalid, sum)
	}
	if len(want) != 0 && subtle.ConstantTimeCompare(seen, want) != 1 {
		sealed.Close()
		return nil, fmt.Errorf("%w: has sha256 %x, expected %x", framework.ErrInvalid, seen, want)
	}
	return sealed, nil
}

// atSecure is AT_SECURE of getauxval(3).
const atSecure = 23

// raised reports whether the process got rights that its user does not have when it was started. If the system does not say,
// it has not: then its user numbers tell.
var raised = func() bool {
	if os.Getuid() != os.Geteuid() || os.Getgid() != os.Getegid() {
		return true
	}
	vector, err := unix.Auxv()
	if err != nil {
		return false
	}
	for _, entry := range vector {
		if entry[0] == atSecure {
			return entry[1] != 0
		}
	}
	return false
}
