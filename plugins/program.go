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
	"syscall"

	"golang.org/x/sys/unix"

	"github.com/mscclpp-go/mscclpp/framework"
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
	folder, file, err := openBeside(spec.Path)
	switch {
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
	name := filepath.Base(real)
	// Without waiting for the writer of a pipe.
	f, err := openAt(int(dir.Fd()), name, unix.O_RDONLY|unix.O_NONBLOCK|unix.O_NOCTTY)
	if errors.Is(err, fs.ErrPermission) || errors.Is(err, unix.ENXIO) { // execution may still be permitted; a socket
		f, err = openAt(int(dir.Fd()), name, unix.O_PATH)
	}
	if err != nil {
		dir.Close()
		return nil, nil, err
	}
	return dir, f, nil
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

// sealedCopy copies a file into memory that nobody can change, and returns its sha256.
func sealedCopy(f *os.File) (*os.File, []byte, error) {
	const flags = unix.MFD_CLOEXEC | unix.MFD_ALLOW_SEALING
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

// descriptorPath is a path of an open file, whatever happens to its name.
func descriptorPath(f *os.File) string { return inheritedPath(int(f.Fd())) }

// inheritedPath is the path of an open file for the process that has the descriptor.
func inheritedPath(fd int) string { return fmt.Sprintf("/proc/self/fd/%d", fd) }

func (p *program) close() {
	p.folder.Close()
	if p.sealed != nil {
		p.sealed.Close()
	}
}

// owner returns the user who owns an open file or folder.
func owner(info fs.FileInfo) int {
	if st, ok := info.Sys().(*syscall.Stat_t); ok {
		return int(st.Uid)
	}
	return -1
}
