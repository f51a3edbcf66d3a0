package verbs

import (
	"fmt"
	"syscall"
)

// lockAdvice says what to do about an error of a call that locks memory, which registrations
// and, with many drivers, queues do; "" where nothing is known to help. Above the limit the
// kernel answers ENOMEM or EAGAIN, and EPERM where nothing at all may be locked.
func lockAdvice(e syscall.Errno) string {
	if e != syscall.ENOMEM && e != syscall.EAGAIN && e != syscall.EPERM {
		return ""
	}
	const memlock = 8
	var limit syscall.Rlimit
	limited := syscall.Getrlimit(memlock, &limit) == nil && limit.Cur != ^uint64(0)
	switch raise := fmt.Sprintf("; this process may lock %d bytes: raise ulimit -l, memlock in limits.conf, or LimitMEMLOCK of the service", limit.Cur); {
	case limited && e == syscall.EPERM:
		return raise + ", or give it the capability IPC_LOCK"
	case limited:
		return raise
	case e == syscall.EPERM:
		return "; this process may lock any number of bytes, so something else forbids it: look at its capabilities (IPC_LOCK) and at the rules of its container"
	}
	return ""
}

// queueAdvice is lockAdvice for queues, whose size is an option.
func queueAdvice(e syscall.Errno) string {
	if e == syscall.ENOMEM || e == syscall.EAGAIN {
		return lockAdvice(e) + "; the options queue_depth and receives make queues smaller, and queue_pairs fewer"
	}
	return lockAdvice(e)
}

// openAdvice says what to do about a device that cannot be opened.
func openAdvice(e syscall.Errno) string {
	if e == syscall.EACCES || e == syscall.EPERM {
		return "; expected to read and write /dev/infiniband/uverbs*: look at owner and mode of these files, and in a container at the devices that it is given"
	}
	return lockAdvice(e) // a device has memory of its own
}
