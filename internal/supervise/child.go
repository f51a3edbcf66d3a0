package supervise

import (
	"errors"
	"sync"
	"syscall"
	"unsafe"

	"golang.org/x/sys/unix"
)

// How a child has changed: the Code of a Change. The numbers are those of Waitid
// (CLD_EXITED and so on), which the package unix does not name.
const (
	Running = 0 // it has not changed
	Exited  = 1
	Killed  = 2
	Dumped  = 3
	Stopped = 5
	Taken   = -1 // it has ended, and other code of this process has taken its status
)

// TakenText says for people what Taken means.
const TakenText = "has ended, and how is unknown: other code of this process waits for all children (waitpid(-1), or SIGCHLD is ignored) and took its exit status"

// Change is a change of a child's state.
type Change struct {
	Code   int
	Status int // of exit, or the number of the signal
}

// Child is a child process in a group of its own, named by a descriptor. Its number may
// belong to another process as soon as any code of this process has reaped it: a library
// cannot know whether its host waits for all children.
type Child struct {
	PID int

	mu sync.Mutex // held while the descriptor is used for a signal, or closed
	fd int        // -1: closed, or the kernel has none
	// numbered: the kernel gave no descriptor, so the number has to do until Reap.
	numbered bool
}

// NewChild takes over what SysProcAttr.PidFD got when the process was started.
func NewChild(pid, fd int) *Child { return &Child{PID: pid, fd: fd, numbered: fd < 0} }

// Wait waits for a change of the kinds in options (WEXITED, WSTOPPED), which remains to be
// seen again; the child is not reaped. With WNOHANG it does not wait.
func (c *Child) Wait(options int) Change {
	for {
		info, err := c.waitid(options | unix.WNOWAIT)
		switch {
		case errors.Is(err, unix.EINTR):
			continue
		case err != nil:
			return Change{Code: Taken}
		case info.Signo == 0:
			return Change{Code: Running}
		}
		// The package unix names the first three words only. The layout of the others for
		// SIGCHLD is the same on all 64-bit Linux: pid, uid, status from byte 16.
		return Change{int(info.Code), int(*(*int32)(unsafe.Add(unsafe.Pointer(&info), 24)))}
	}
}

// Noted makes Wait report a stop that it has reported no longer.
func (c *Child) Noted() { _, _ = c.waitid(unix.WSTOPPED | unix.WNOHANG) }

// Reap reaps the child, and waits for its end. Its group can still be killed where the
// kernel knows groups by descriptor (Linux 6.9).
func (c *Child) Reap() {
	for {
		if _, err := c.waitid(unix.WEXITED); !errors.Is(err, unix.EINTR) {
			break
		}
	}
	c.mu.Lock()
	defer c.mu.Unlock()
	c.numbered = false
}

func (c *Child) waitid(options int) (info unix.Siginfo, err error) {
	c.mu.Lock()
	fd, numbered := c.fd, c.numbered
	c.mu.Unlock()
	switch {
	case numbered:
		err = unix.Waitid(unix.P_PID, c.PID, &info, options, nil)
	case fd < 0:
		err = unix.ECHILD
	default:
		err = unix.Waitid(unix.P_PIDFD, fd, &info, options, nil)
	}
	return info, err
}

// Signal sends a signal to the child's group, and never to another process.
func (c *Child) Signal(s syscall.Signal) error {
	c.mu.Lock()
	defer c.mu.Unlock()
	switch {
	case c.numbered:
		return unix.Kill(-c.PID, s)
	case c.fd < 0:
		return unix.ESRCH
	}
	err := unix.PidfdSendSignal(c.fd, s, nil, unix.PIDFD_SIGNAL_PROCESS_GROUP)
	if !errors.Is(err, unix.EINVAL) {
		return err
	}
	// Before Linux 6.9 a group has no name but its number, which is ours as long as the
	// child is there, dead or alive.
	if err := unix.PidfdSendSignal(c.fd, 0, nil, 0); err != nil {
		return err
	}
	return unix.Kill(-c.PID, s)
}

// Close gives the descriptor back. No call of Wait may be running.
func (c *Child) Close() {
	c.mu.Lock()
	defer c.mu.Unlock()
	if c.fd >= 0 {
		unix.Close(c.fd)
	}
	c.fd, c.numbered = -1, false
}
