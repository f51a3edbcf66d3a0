package enginetest

import (
	"fmt"
	"net"
	"os"
	"strings"
	"sync"
	"testing"
	"time"
)

// feed collects what a running program prints.
type feed struct {
	mu   sync.Mutex
	text strings.Builder
	more chan struct{}
}

func (f *feed) Write(p []byte) (int, error) {
	f.mu.Lock()
	defer f.mu.Unlock()
	f.text.Write(p)
	select {
	case f.more <- struct{}{}:
	default:
	}
	return len(p), nil
}

func (f *feed) String() string {
	f.mu.Lock()
	defer f.mu.Unlock()
	return f.text.String()
}

// follow starts a program whose output can be read while it runs.
func (s *started) follow(t *testing.T) *feed {
	t.Helper()
	f := &feed{more: make(chan struct{}, 1)}
	s.Stdout, s.Stderr = f, f
	if err := s.Start(); err != nil {
		t.Fatal(err)
	}
	return f
}

// await waits until the program has printed something n times.
func (f *feed) await(t *testing.T, what string, n int) {
	t.Helper()
	bound := time.After(patience)
	for strings.Count(f.String(), what) < n {
		select {
		case <-f.more:
		case <-bound:
			t.Fatalf("%q did not come %d times:\n%s", what, n, f)
		}
	}
}

// member is a rank that waits, and the process that started it.
type member struct{ pid, rank, agent int }

// members waits until n ranks have reported themselves.
func (f *feed) members(t *testing.T, n int) []member {
	t.Helper()
	f.await(t, " agent ", n)
	var out []member
	for _, line := range strings.Split(f.String(), "\n") {
		var m member
		if _, err := fmt.Sscanf(line, "pid %d of rank %d agent %d", &m.pid, &m.rank, &m.agent); err == nil {
			out = append(out, m)
		}
	}
	if len(out) != n {
		t.Fatalf("%d ranks said who they are, expected %d:\n%s", len(out), n, f)
	}
	return out
}

func (f *feed) pids(t *testing.T, n int) []int {
	t.Helper()
	var out []int
	for _, m := range f.members(t, n) {
		out = append(out, m.pid)
	}
	return out
}

// gone waits until processes have ended.
func gone(t *testing.T, pids []int) {
	t.Helper()
	end := time.Now().Add(patience)
	for _, pid := range pids {
		for alive(pid) && time.Now().Before(end) {
			time.Sleep(10 * time.Millisecond)
		}
		if alive(pid) {
			t.Errorf("process %d still runs", pid)
		}
	}
}

// alive reports whether a process runs; one that only waits to be reaped does not.
func alive(pid int) bool {
	stat, err := os.ReadFile(fmt.Sprintf("/proc/%d/stat", pid))
	if err != nil {
		return false
	}
	_, after, _ := strings.Cut(string(stat), ") ")
	return !strings.HasPrefix(after, "Z")
}

func freePort(t *testing.T) int {
	t.Helper()
	l, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	defer l.Close()
	return l.Addr().(*net.TCPAddr).Port
}
