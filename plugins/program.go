package plugins

import (
	"crypto/sha256"
	"crypto/subtle"
	"debug/buildinfo"
	"encoding/hex"
	"errors"
	"fmt"
	"io"
	"io/fs"
	"os"
	"path/filepath"

	"golang.org/x/sys/unix"

	"github.com/mscclpp-go/mscclpp/framework"
	"github.com/mscclpp-go/mscclpp/internal/filelimit"
)

// module is the path of this module, as builds of Go record it.
const module = "github.com/mscclpp-go/mscclpp"

// A program is the file of a plugin, opened before it is executed.
type program struct {
	path   string   // as the caller named it
	folder *os.File // that contains the file; a plugin finds its kernels there
	sealed *os.File // copy of a pinned file, which nobody can change; nil for any file
	serves bool     // it calls Serve, and needs no folder for a socket
}

// openProgram looks at the program file without running it. The contents of a pinned file
// are copied while they are hashed, and the copy is executed: whatever happens to the file
// or to the folders above it, the plugin is what was hashed.
func openProgram(spec Spec) (*program, error) {
	fail := func(reason Reason, err error) (*program, error) {
		return nil, &StartError{Name: spec.Name, Path: spec.Path, Reason: reason, Err: err}
	}
	folder, file, err := openNamed(spec.Path, spec.SHA256)
	switch {
	case errors.As(err, new(*untrusted)):
		return fail(Checksum, err)
	case errors.Is(err, fs.ErrNotExist):
		return fail(Missing, fmt.Errorf("not found: %w", err))
	case err != nil:
		return fail(NotExecutable, err)
	}
	defer file.Close()
	p := &program{path: spec.Path, folder: folder}
	if err := executable(file); err != nil {
		p.close()
		return fail(NotExecutable, err)
	}
	p.serves = callsServe(file)
	if spec.SHA256 == "" {
		return p, nil
	}
	want, err := hex.DecodeString(spec.SHA256)
	if err != nil || len(want) != sha256.Size {
		p.close()
		return nil, fmt.Errorf("%w: plugin %s: sha256 %q: expected 64 hexadecimal digits", framework.ErrInvalid, spec.Name, spec.SHA256)
	}
	var seen []byte
	if p.sealed, seen, err = sealedCopy(file); err != nil {
		p.close()
		return fail(Checksum, fmt.Errorf("cannot be copied to compare its checksum: %w", err))
	}
	if subtle.ConstantTimeCompare(seen, want) != 1 {
		p.close()
		return fail(Checksum, fmt.Errorf("has sha256 %x, expected %x", seen, want))
	}
	return p, nil
}

// openNamed opens a file and the folder that contains it. Where there is a checksum the folder
// must be one that others cannot change.
func openNamed(path, sha256 string) (folder, file *os.File, err error) {
	if sha256 != "" {
		return openTrusted(path)
	}
	return openBeside(path)
}

// notStarted says why a file that is named is not started.
func notStarted(path, sha256 string) error {
	folder, file, err := openNamed(path, sha256)
	if err != nil {
		return err
	}
	defer folder.Close()
	defer file.Close()
	return executable(file)
}

// openBeside opens a file and the folder that contains it, whatever links lead there.
func openBeside(path string) (folder, file *os.File, err error) {
	real, err := filepath.EvalSymlinks(path)
	if err != nil {
		return nil, nil, err
	}
	dir, err := openAt(unix.AT_FDCWD, filepath.Dir(real), unix.O_PATH|unix.O_DIRECTORY)
	if err != nil {
		return nil, nil, err
	}
	if file, err = openIn(dir, filepath.Base(real)); err != nil {
		dir.Close()
		return nil, nil, err
	}
	return dir, file, nil
}

// openIn opens a file of an open folder.
func openIn(dir *os.File, name string) (*os.File, error) {
	// Without waiting for the writer of a pipe.
	f, err := openAt(int(dir.Fd()), name, unix.O_RDONLY|unix.O_NONBLOCK|unix.O_NOCTTY)
	if errors.Is(err, fs.ErrPermission) || errors.Is(err, unix.ENXIO) { // execution may still be permitted; a socket
		f, err = openAt(int(dir.Fd()), name, unix.O_PATH)
	}
	return f, err
}

// openTrusted is openBeside for a pinned file. Its checksum does not cover the kernels beside
// it, so nobody else may exchange the folder that contains them, or put others there.
func openTrusted(path string) (folder, file *os.File, err error) {
	d, err := follow(path)
	if err != nil {
		return nil, nil, err
	}
	if objection := d.distrustFolder(); objection != nil {
		d.close()
		return nil, nil, &untrusted{objection}
	}
	if d.folder == nil {
		d.close()
		return nil, nil, &fs.PathError{Op: "open", Path: path, Err: unix.EISDIR}
	}
	d.target.Close()
	if file, err = openIn(d.folder, filepath.Base(d.path)); err != nil {
		d.folder.Close()
		return nil, nil, err
	}
	return d.folder, file, nil
}

// untrusted is the error of a pinned file in a folder that another user may change.
type untrusted struct{ objection error }

func (u *untrusted) Error() string {
	return "has a sha256, which does not cover the kernels beside it: " + u.objection.Error()
}

func (u *untrusted) Unwrap() error { return u.objection }

// executable says why an open file is not started.
func executable(f *os.File) error {
	info, err := f.Stat()
	if err != nil {
		return err
	}
	if !info.Mode().IsRegular() {
		return fmt.Errorf("is a %s, expected a program", typeOf(info.Mode()))
	}
	noexec, why := mountedNoexec(f), unix.Access(descriptorPath(f), unix.X_OK)
	if info.Mode().Perm()&0o111 != 0 && noexec != "" {
		return errors.New(noexec)
	}
	if info.Mode().Perm()&0o111 == 0 || why != nil {
		return fmt.Errorf("has mode %#o: expected permission to execute", info.Mode().Perm())
	}
	return nil
}

// stNoexec is ST_NOEXEC of statvfs(3), which golang.org/x/sys does not have.
const stNoexec = 8

// mountedNoexec objects to a file system from which nothing may be executed.
var mountedNoexec = func(f *os.File) string {
	var st unix.Statfs_t
	if unix.Fstatfs(int(f.Fd()), &st) != nil || st.Flags&stNoexec == 0 {
		return ""
	}
	return noexecText
}

const noexecText = "is on a file system that is mounted noexec: expected one from which programs may be executed"

// typeOf is the word for what is no regular file.
func typeOf(m fs.FileMode) string {
	switch {
	case m.IsDir():
		return "folder"
	case m&fs.ModeNamedPipe != 0:
		return "pipe"
	case m&fs.ModeSocket != 0:
		return "socket"
	}
	return "device"
}

// callsServe reports whether a program was built from this module, which a vendor's
// plugin in Go is for the sake of Serve. If it does not call Serve after all, it is at a
// loss for the folder that other plugins get; go-plugin then takes the one for temporary
// files.
var callsServe = func(f io.ReaderAt) bool {
	info, err := buildinfo.Read(f)
	if err != nil {
		return false
	}
	if info.Main.Path == module {
		return true
	}
	for _, d := range info.Deps {
		if d.Path == module {
			return true
		}
	}
	return false
}

// sealedCopy copies a file into sealed memory, and returns its sha256.
func sealedCopy(f *os.File) (*os.File, []byte, error) {
	const flags = unix.MFD_CLOEXEC | unix.MFD_ALLOW_SEALING
	if info, err := f.Stat(); err != nil {
		return nil, nil, err
	} else if err := filelimit.Check(uint64(info.Size())); err != nil {
		return nil, nil, err
	}
	fd, err := unix.MemfdCreate("mscclpp-plugin", flags|unix.MFD_EXEC)
	if errors.Is(err, unix.EINVAL) { // Linux before 6.3
		fd, err = unix.MemfdCreate("mscclpp-plugin", flags)
	}
	if err != nil {
		return nil, nil, fmt.Errorf("memory for the program: %w", err)
	}
	to := os.NewFile(uintptr(fd), "mscclpp-plugin")
	hash := sha256.New()
	_, err = io.Copy(io.MultiWriter(to, hash), f)
	if err == nil {
		_, err = unix.FcntlInt(to.Fd(), unix.F_ADD_SEALS, unix.F_SEAL_WRITE|unix.F_SEAL_GROW|unix.F_SEAL_SHRINK|unix.F_SEAL_SEAL)
	}
	if err == nil { // a descriptor that can be written cannot be executed
		var read *os.File
		if read, err = os.Open(descriptorPath(to)); err == nil {
			to.Close()
			return read, hash.Sum(nil), nil
		}
	}
	to.Close()
	return nil, nil, err
}

// descriptorPath is a path of an open file, whatever happens to its name. It is that of this thread: where the main one
// has ended, the path of the process leads to nothing.
func descriptorPath(f *os.File) string { return fmt.Sprintf("/proc/thread-self/fd/%d", f.Fd()) }

// inheritedPath is the path of an open file for the process that has the descriptor.
func inheritedPath(fd int) string { return fmt.Sprintf("/proc/self/fd/%d", fd) }

func (p *program) close() {
	p.folder.Close()
	if p.sealed != nil {
		p.sealed.Close()
	}
}
