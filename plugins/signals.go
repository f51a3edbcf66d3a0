package plugins

import (
	"os"
	"os/signal"
	"path/filepath"
	"runtime"
	"time"

	"golang.org/x/sys/unix"
)

// jobSignals are those that a resource manager or a terminal sends to every process of a
// job: the rank may want to finish, and needs its transports to.
var jobSignals = make(chan os.Signal, 4)

// init prepares a process that is a plugin for what may happen before Serve: job signals
// do not end it from here on. It also keeps main, and with it Serve, on the first thread:
// the kernel asks that thread which signal the process gets when its host dies.
func init() {
	if os.Getenv(cookieKey) == cookieValue {
		signal.Notify(jobSignals, unix.SIGTERM, unix.SIGINT)
		runtime.LockOSThread()
	}
}

// outliveJobSignals ignores job signals. The process gets a termination signal from the kernel when
// the host is dead, and then ends. The parent tells the two apart.
func outliveJobSignals() {
	host := os.Getppid()
	// A log line after the death of the host must not kill the process before it has
	// cleaned up.
	signal.Ignore(unix.SIGPIPE)
	go func() {
		for range jobSignals {
			if os.Getppid() != host {
				endSoon()
			}
		}
	}()
	if unix.Gettid() != os.Getpid() {
		return // Serve is not called by main: the death of the host kills
	}
	// Up to here the death of the host has killed, for a plugin that hangs before Serve
	// sees nothing else.
	_ = unix.Prctl(unix.PR_SET_PDEATHSIG, uintptr(unix.SIGTERM), 0, 0, 0)
	if os.Getppid() != host { // died between the two
		endSoon()
	}
	// A program that is executed as a descriptor is called by its number.
	_ = os.WriteFile("/proc/self/comm", []byte(filepath.Base(os.Args[0])), 0)
	runtime.UnlockOSThread()
}

// endSoon ends the process whose host is dead, if the end of the control socket does not,
// which lets the transport clean up first.
func endSoon() {
	time.AfterFunc(2*closeBound, func() {
		removeOwnSocket()
		os.Exit(0)
	})
}
