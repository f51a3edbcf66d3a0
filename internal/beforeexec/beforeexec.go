// Package beforeexec lets tests kill a process that has been forked, and has not executed its
// program yet. Its parent cannot see the difference at once: the pipe by which a failure of
// exec is reported ends when the process does, as it ends when exec succeeds.
package beforeexec

import (
	"bufio"
	"bytes"
	"errors"
	"fmt"
	"os"
	"os/exec"
	"os/signal"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"golang.org/x/sys/unix"
)

// program is the variable that makes a process of this test binary a killer.
const program = "MSCCLPP_TEST_KILLS_BEFORE_EXEC_OF"

// bound is how long a killer waits: less than the kernel lets a lease hold up an exec
// (/proc/sys/fs/lease-break-time).
const bound = 30 * time.Second

// The killer is a process of its own, because a program in Go may stand still while it forks.
func init() {
	path := os.Getenv(program)
	if path == "" {
		return
	}
	if err := killer(path); err != nil {
		fmt.Fprintln(os.Stderr, err)
		os.Exit(1)
	}
	os.Exit(0)
}

// Kill kills the next child of this process that is about to execute the file. It returns as
// soon as that is certain; await returns when it has happened. The file must not be open, or
// run, anywhere else. No other child may be started meanwhile.
func Kill(t *testing.T, path string) (await func()) {
	t.Helper()
	c := exec.Command("/proc/self/exe")
	c.Args, c.Env = []string{"killer"}, append(os.Environ(), program+"="+path)
	var said bytes.Buffer
	c.Stderr = &said
	out, err := c.StdoutPipe()
	if err == nil {
		err = c.Start()
	}
	if err != nil {
		t.Fatal(err)
	}
	ready, _ := bufio.NewReader(out).ReadString('\n')
	ended := make(chan error, 1)
	go func() { ended <- c.Wait() }()
	t.Cleanup(func() { _ = c.Process.Kill() })
	switch strings.TrimSpace(ready) {
	case "ready":
	case "unsupported":
		t.Skip("the file system has no leases (fcntl F_SETLEASE), which hold up an exec")
	default:
		t.Fatalf("the killer: %v: %s", <-ended, &said)
	}
	return func() {
		t.Helper()
		if err := <-ended; err != nil {
			t.Fatalf("the killer: %v: %s", err, &said)
		}
	}
}

// killer holds up the exec of a file by a lease, and kills the child of its parent that waits
// there.
func killer(path string) error {
	file, err := os.Open(path)
	if err != nil {
		return err
	}
	defer file.Close() // exec goes on
	opened := make(chan os.Signal, 1)
	signal.Notify(opened, unix.SIGIO)
	_, err = unix.FcntlInt(file.Fd(), unix.F_SETLEASE, unix.F_WRLCK)
	switch {
	case errors.Is(err, unix.EINVAL):
		fmt.Println("unsupported")
		return nil
	case err != nil:
		return fmt.Errorf("lease of %s: %w", path, err)
	}
	fmt.Println("ready")
	select {
	case <-opened: // the kernel asks for the lease back
	case <-time.After(bound):
		return fmt.Errorf("nothing has executed %s within %v", path, bound)
	}
	child := forked(os.Getppid())
	if child == 0 {
		return fmt.Errorf("process %d has no child that waits for exec", os.Getppid())
	}
	fd, err := unix.PidfdOpen(child, 0)
	if err != nil {
		return err
	}
	defer unix.Close(fd)
	if err := unix.PidfdSendSignal(fd, unix.SIGKILL, nil, 0); err != nil {
		return err
	}
	_, err = unix.Poll([]unix.PollFd{{Fd: int32(fd), Events: unix.POLLIN}}, int(bound.Milliseconds()))
	for errors.Is(err, unix.EINTR) {
		_, err = unix.Poll([]unix.PollFd{{Fd: int32(fd), Events: unix.POLLIN}}, int(bound.Milliseconds()))
	}
	return err
}

// forked is a child that still has its parent's memory, and with it the command line; 0 if
// there is none.
func forked(parent int) int {
	line, err := os.ReadFile(fmt.Sprintf("/proc/%d/cmdline", parent))
	if err != nil {
		return 0
	}
	mine := []byte(fmt.Sprintf("\nPPid:\t%d\n", parent))
	all, _ := filepath.Glob("/proc/[0-9]*")
	for _, dir := range all {
		status, err := os.ReadFile(dir + "/status")
		if err != nil || !bytes.Contains(status, mine) {
			continue
		}
		if its, err := os.ReadFile(dir + "/cmdline"); err == nil && bytes.Equal(its, line) {
			pid := 0
			_, _ = fmt.Sscan(filepath.Base(dir), &pid)
			return pid
		}
	}
	return 0
}
