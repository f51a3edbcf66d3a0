package tcp

import (
	"io"
	"net"
	"runtime"
	"syscall"
	"unsafe"

	"golang.org/x/sys/unix"
)

// readAhead is how much of a stream is read beside the data of a put, which goes
// straight to where it belongs. It bounds what is copied twice.
const readAhead = 8 << 10

// reader reads a stream into memory that the caller names. What one call of the
// system finds behind that is kept for the next.
type reader struct {
	raw        syscall.RawConn
	ahead      []byte
	begin, end int // of what is kept

	into []byte        // of the call that is under way
	vec  [2]unix.Iovec // its ranges
	got  uintptr
	why  syscall.Errno
	read func(fd uintptr) bool
}

func newReader(conn *net.TCPConn) (*reader, error) {
	raw, err := conn.SyscallConn()
	if err != nil {
		return nil, err
	}
	r := &reader{raw: raw, ahead: make([]byte, readAhead)}
	r.read = r.attempt // made once: it would be an allocation in every call
	return r, nil
}

// full fills b.
func (r *reader) full(b []byte) error {
	n := copy(b, r.ahead[r.begin:r.end])
	r.begin += n
	for b = b[n:]; len(b) > 0; {
		// Nothing is kept now.
		r.into, r.begin, r.end = b, 0, 0
		if err := r.raw.Read(r.read); err != nil {
			return err
		}
		switch {
		case r.why != 0:
			return r.why
		case r.got == 0:
			return io.EOF
		}
		n := min(int(r.got), len(b))
		b, r.end = b[n:], int(r.got)-n
	}
	r.into = nil
	return nil
}

// attempt is one call of the system; false: nothing has come yet.
func (r *reader) attempt(fd uintptr) bool {
	for {
		r.vec[0].Base = unsafe.SliceData(r.into)
		r.vec[0].SetLen(min(len(r.into), 1<<30))
		r.vec[1].Base = unsafe.SliceData(r.ahead)
		r.vec[1].SetLen(len(r.ahead))
		if len(r.into) > 1<<30 {
			r.vec[1].SetLen(0)
		}
		r.got, _, r.why = syscall.Syscall(syscall.SYS_READV, fd, uintptr(unsafe.Pointer(&r.vec[0])), uintptr(len(r.vec)))
		runtime.KeepAlive(r)
		switch r.why {
		case syscall.EINTR:
		case syscall.EAGAIN:
			return false
		default:
			return true
		}
	}
}
