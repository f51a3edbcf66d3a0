package supervise

import (
	"bytes"
	"os"
	"strconv"
	"syscall"
	"time"

	"golang.org/x/sys/unix"
)

// KillChildren kills and reaps all children of this process, those that they leave
// included, and waits at most bound for their end. Without children it costs one
// system call.
func KillChildren(bound time.Duration) {
	deadline := time.Now().Add(bound)
	for {
		pid, err := syscall.Wait4(-1, nil, syscall.WNOHANG, nil)
		switch {
		case err == syscall.EINTR || pid > 0 && err == nil:
			continue
		case err != nil:
			return // no children
		}
		left := children()
		if len(left) == 0 || time.Now().After(deadline) {
			return
		}
		for _, pid := range left {
			syscall.Kill(pid, syscall.SIGKILL)
		}
		for _, pid := range left {
			awaitEnd(pid, time.Until(deadline))
		}
	}
}

// awaitEnd waits until a child has ended, or for the bound.
func awaitEnd(pid int, bound time.Duration) {
	fd, err := unix.PidfdOpen(pid, 0)
	if err != nil {
		return
	}
	defer unix.Close(fd)
	poll := []unix.PollFd{{Fd: int32(fd), Events: unix.POLLIN}}
	for end := time.Now().Add(bound); ; {
		_, err := unix.Poll(poll, int(max(1, time.Until(end).Milliseconds())))
		if err != unix.EINTR || time.Now().After(end) {
			return
		}
	}
}

// children lists the children of this process that live.
func children() []int {
	var out []int
	self := os.Getpid()
	Each(func(pid int, s Stat) {
		if s.Parent == self && !s.Ended {
			out = append(out, pid)
		}
	})
	return out
}

// Stat is the state of a process, from /proc.
type Stat struct {
	State   byte // 'Z' for a zombie, 'T' for one that is stopped
	Parent  int
	Group   int
	Exiting bool // it gives back what it has, or has done so
	Ended   bool // all of its threads have: a zombie whose first thread ended before others is still there, with its files
}

// Each calls f for every process that can be seen.
func Each(f func(pid int, s Stat)) {
	dir, err := os.Open("/proc")
	if err != nil {
		return
	}
	defer dir.Close()
	names, _ := dir.Readdirnames(-1)
	for _, name := range names {
		pid, err := strconv.Atoi(name)
		if err != nil {
			continue
		}
		if s, ok := Of(pid); ok { // else it has ended meanwhile
			f(pid, s)
		}
	}
}

// Of returns what /proc says about one process, and whether there is one.
func Of(pid int) (Stat, bool) {
	data, err := os.ReadFile("/proc/" + strconv.Itoa(pid) + "/stat")
	if err != nil {
		return Stat{}, false
	}
	return parseStat(data)
}

// parseStat reads one /proc/PID/stat. The name in parentheses may contain anything,
// so fields are counted from the last parenthesis.
func parseStat(data []byte) (Stat, bool) {
	fields := bytes.Fields(data[bytes.LastIndexByte(data, ')')+1:])
	if len(fields) < 3 {
		return Stat{}, false
	}
	parent, err1 := strconv.Atoi(string(fields[1]))
	group, err2 := strconv.Atoi(string(fields[2]))
	s := Stat{State: fields[0][0], Parent: parent, Group: group, Exiting: fields[0][0] == 'Z'}
	if len(fields) > 6 {
		const exiting = 1 << 2 // PF_EXITING
		flags, _ := strconv.ParseUint(string(fields[6]), 10, 64)
		s.Exiting = s.Exiting || flags&exiting != 0
	}
	s.Ended = s.State == 'Z'
	if len(fields) > 17 {
		threads, _ := strconv.Atoi(string(fields[17]))
		s.Ended = s.Ended && threads <= 1
	}
	return s, err1 == nil && err2 == nil
}
