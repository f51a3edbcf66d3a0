package tcp

import (
	"net"
	"os"
	"sync"

	"golang.org/x/sys/unix"
)

// wire is a connection that has left Go's poller, and whose reads and writes wait in
// the system. Registered there, every packet would wake a thread that has nothing to
// do with it.
type wire struct {
	mu sync.RWMutex // read: a thread is inside; write: it is being closed
	fd int          // -1: closed
}

// newWire makes a wire of a connection. The caller closes the connection, which
// takes it out of the poller.
func newWire(conn *net.TCPConn) (*wire, error) {
	raw, err := conn.SyscallConn()
	if err != nil {
		return nil, err
	}
	w := &wire{fd: -1}
	gone := raw.Control(func(fd uintptr) {
		if w.fd, err = unix.FcntlInt(fd, unix.F_DUPFD_CLOEXEC, 0); err == nil {
			err = unix.SetNonblock(w.fd, false)
		}
	})
	switch {
	case gone != nil:
		return nil, gone
	case err != nil:
		w.drop()
		return nil, os.NewSyscallError("dup", err)
	}
	return w, nil
}

// use calls f with the descriptor, which stays open meanwhile.
func (w *wire) use(f func(fd int)) error {
	w.mu.RLock()
	defer w.mu.RUnlock()
	if w.fd < 0 {
		return net.ErrClosed
	}
	f(w.fd)
	return nil
}

// close hangs up, which ends what waits inside, and then gives the descriptor back.
func (w *wire) close() {
	_ = w.use(func(fd int) { _ = unix.Shutdown(fd, unix.SHUT_RDWR) })
	w.drop()
}

// drop gives the descriptor back when nobody is inside.
func (w *wire) drop() {
	w.mu.Lock()
	defer w.mu.Unlock()
	if w.fd >= 0 {
		unix.Close(w.fd)
	}
	w.fd = -1
}

// Name is the transport's name in configuration.
const Name = "tcp"

// How many slots a trigger can cite, and so how many handles a group has.
const (
	memories   = 512
	semaphores = 480
	handles    = memories + semaphores
)
