package verbs

import (
	"strings"
	"syscall"
	"testing"

	"github.com/mscclpp-go/mscclpp/framework"
	"github.com/mscclpp-go/mscclpp/framework/memfd"
)

const rlimitMemlock = 8

// mayLock has this process lock so many bytes at most, during a test.
func mayLock(t *testing.T, bytes uint64) {
	t.Helper()
	var was syscall.Rlimit
	if err := syscall.Getrlimit(rlimitMemlock, &was); err != nil {
		t.Fatal(err)
	}
	if err := syscall.Setrlimit(rlimitMemlock, &syscall.Rlimit{Cur: min(was.Cur, bytes), Max: was.Max}); err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { _ = syscall.Setrlimit(rlimitMemlock, &was) })
}

// A refused registration says what to raise, and so does a queue, for which the kernel locks
// memory as well.
func TestMemlock(t *testing.T) {
	mayLock(t, 1<<16)
	m, err := memfd.New("test", 4096, memfd.Options{})
	if err != nil {
		t.Fatal(err)
	}
	defer m.Close()
	for _, x := range []struct {
		macro string
		words []string
	}{
		{"REGISTER_ERRNO=12", []string{"fake0", "4096 bytes", "cannot allocate memory"}},
		{"REGISTER_ERRNO=11", []string{"fake0", "4096 bytes", "temporarily unavailable"}},
		{"REGISTER_ERRNO=1", []string{"fake0", "4096 bytes", "not permitted", "IPC_LOCK"}},
	} {
		_, err = transportOn(t, fake(t, x.macro), Atomic).Register(t.Context(), segment(m))
		wantError(t, err, framework.ErrUnavailable, append(x.words, "may lock 65536 bytes", "ulimit -l", "memlock", "LimitMEMLOCK")...)
	}
	for _, x := range []struct {
		macro string
		words []string
	}{
		{"CQ_ERRNO=12", []string{"queue of completions for 300 requests", "cannot allocate memory", "queue_depth"}},
		{"RECV_CQ_ERRNO=12", []string{"queue of receptions for 200 requests", "cannot allocate memory", "receives"}},
		{"QP_ERRNO=12", []string{"queue pair for 300 requests", "cannot allocate memory", "queue_pairs"}},
		{"QP_ERRNO=11", []string{"queue pair for 300 requests", "temporarily unavailable", "queue_depth"}},
		{"QP_ERRNO=1", []string{"queue pair for 300 requests", "not permitted", "IPC_LOCK"}},
	} {
		tr := transportOn(t, fake(t, x.macro), Immediate, func(c *Config) { c.QueueDepth, c.Receives = 300, 200 })
		_, err := tr.Listen(t.Context(), linkConfig(0))
		wantError(t, err, framework.ErrUnavailable, append(x.words, "fake0", "may lock 65536 bytes", "ulimit -l", "memlock", "LimitMEMLOCK")...)
	}
}

// A failure that no limit explains is not blamed on one.
func TestAdviceFits(t *testing.T) {
	mayLock(t, 1<<16)
	for _, e := range []syscall.Errno{syscall.EINVAL, syscall.EFAULT, syscall.ENODEV} {
		if a := lockAdvice(e) + queueAdvice(e) + openAdvice(e); a != "" {
			t.Errorf("%v: %q: expected no advice", e, a)
		}
	}
	if a := openAdvice(syscall.EACCES); strings.Contains(a, "ulimit") {
		t.Errorf("a file that may not be opened: %q", a)
	}
}
