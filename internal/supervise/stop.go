package supervise

import (
	"runtime"
	"syscall"

	"golang.org/x/sys/unix"
)

// StopSelf stops this process, as Ctrl-Z would without a handler of its signal. It
// returns when the process goes on.
func StopSelf() {
	// The thread itself has to take the signal: one to the process may go to another thread,
	// and until that wakes up this one runs on.
	runtime.LockOSThread()
	defer runtime.UnlockOSThread()
	_ = unix.Tgkill(unix.Getpid(), unix.Gettid(), syscall.SIGSTOP)
}
