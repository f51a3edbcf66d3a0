package protocoltest

import (
	"fmt"
	"os"
	"strings"
	"time"

	"golang.org/x/sys/unix"

	"github.com/mscclpp-go/mscclpp/framework/transporttest"
)

// orphan kills the parent of the plugin, a shell, and holds the control socket as a process
// does that the host has forked.
func (s *suite) orphan(t transporttest.TB) {
	numbers, child, err := os.Pipe()
	if err != nil {
		t.Fatalf("make a pipe: %v", err)
	}
	defer numbers.Close()
	defer child.Close()
	h := s.startedBy(t, startMode{child: child})
	pid := 0
	_ = numbers.SetReadDeadline(time.Now().Add(startBound))
	if _, err := fmt.Fscan(numbers, &pid); err != nil {
		t.Fatalf("the shell has not said which process it started: %v%s", err, h.said())
	}
	plugin, err := unix.PidfdOpen(pid, 0)
	if err != nil {
		t.Fatalf("open process %d: %v", pid, err)
	}
	t.Cleanup(func() {
		_ = unix.PidfdSendSignal(plugin, unix.SIGKILL, nil, 0)
		unix.Close(plugin)
	})
	h.dial()
	h.configure(t, s.launcher)
	if err := h.cmd.Process.Kill(); err != nil {
		t.Fatalf("kill the parent: %v", err)
	}
	deadline := time.Now().Add(startBound) // a busy machine takes its time
	for parent(pid) == h.cmd.Process.Pid {
		if time.Now().After(deadline) {
			t.Fatalf("process %d is still the child of %d, which was killed", pid, h.cmd.Process.Pid)
		}
		select {
		case <-t.Context().Done():
		case <-time.After(time.Millisecond):
		}
	}
	_ = unix.PidfdSendSignal(plugin, unix.SIGTERM, nil, 0) // the kernel may have done so
	if !endsBy(plugin, time.Now().Add(h.limit)) {
		t.Errorf("its parent is dead, and SIGTERM has not ended the plugin after %v: want its end, for another process may hold the control socket", h.limit)
	}
}

// parent is the number of the parent of a process, 0 of one that is gone.
func parent(pid int) (n int) {
	stat, err := os.ReadFile(fmt.Sprintf("/proc/%d/stat", pid))
	if err != nil {
		return 0
	}
	text := string(stat)
	_, _ = fmt.Sscanf(text[strings.LastIndexByte(text, ')')+1:], " %c %d", new(rune), &n)
	return n
}

// endsBy waits for the end of a process.
func endsBy(process int, deadline time.Time) bool {
	for {
		left := time.Until(deadline)
		n, err := unix.Poll([]unix.PollFd{{Fd: int32(process), Events: unix.POLLIN}}, int(max(0, left.Milliseconds())))
		if n > 0 || err == nil || left <= 0 {
			return n > 0
		}
	}
}
