package plugins

import (
	"crypto/sha256"
	"crypto/subtle"
	"encoding/hex"
	"errors"
	"fmt"
	"io"
	"io/fs"
	"os"
	"syscall"

	"golang.org/x/sys/unix"

	"github.com/mscclpp-go/mscclpp/framework"
)

// examined is a program file that was looked at before it is executed.
type examined struct {
	path string
	file *os.File // nil unless its contents were checked
	info fs.FileInfo
}

// examine looks at the program file without running it.
func examine(spec Spec) (*examined, error) {
	fail := func(reason Reason, err error) (*examined, error) {
		return nil, &StartError{Name: spec.Name, Path: spec.Path, Reason: reason, Err: err}
	}
	info, err := os.Stat(spec.Path)
	switch {
	case errors.Is(err, fs.ErrNotExist):
		return fail(Missing, fmt.Errorf("not found: %w", err))
	case err != nil:
		return fail(NotExecutable, err)
	case !info.Mode().IsRegular():
		return fail(NotExecutable, fmt.Errorf("is a %s, expected a program", typeOf(info.Mode())))
	case info.Mode().Perm()&0o111 == 0 || unix.Access(spec.Path, unix.X_OK) != nil:
		return fail(NotExecutable, fmt.Errorf("has mode %v, expected permission to execute", info.Mode().Perm()))
	}
	e := &examined{path: spec.Path, info: info}
	if spec.SHA256 == "" {
		return e, nil
	}
	want, err := hex.DecodeString(spec.SHA256)
	if err != nil || len(want) != sha256.Size {
		return nil, fmt.Errorf("%w: plugin %s: sha256 %q: expected 64 hexadecimal digits", framework.ErrInvalid, spec.Name, spec.SHA256)
	}
	if e.file, err = os.Open(spec.Path); err != nil {
		return fail(Checksum, fmt.Errorf("cannot be read to compare its checksum: %w", err))
	}
	hash := sha256.New()
	e.info, err = e.file.Stat()
	if err == nil {
		_, err = io.Copy(hash, e.file)
	}
	if err != nil {
		e.close()
		return fail(Checksum, fmt.Errorf("cannot be read to compare its checksum: %w", err))
	}
	if seen := hash.Sum(nil); subtle.ConstantTimeCompare(seen, want) != 1 {
		e.close()
		return fail(Checksum, fmt.Errorf("has sha256 %x, expected %x", seen, want))
	}
	return e, nil
}

// unchanged compares the file under the path, which is being executed, with the one
// whose contents were checked.
func (e *examined) unchanged() error {
	if e.file == nil {
		return nil
	}
	now, err := os.Stat(e.path)
	if err != nil {
		return err
	}
	a, aok := e.info.Sys().(*syscall.Stat_t)
	b, bok := now.Sys().(*syscall.Stat_t)
	if !aok || !bok || a.Dev != b.Dev || a.Ino != b.Ino || a.Size != b.Size || a.Mtim != b.Mtim || a.Ctim != b.Ctim {
		return errors.New("was exchanged while it was started")
	}
	return nil
}

func (e *examined) close() {
	if e.file != nil {
		e.file.Close()
	}
}
