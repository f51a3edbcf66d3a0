package bootstrap

import (
	"fmt"
	"net"
	"syscall"
	"testing"
	"time"

	"golang.org/x/sys/unix"

	"github.com/mscclpp-go/mscclpp/framework"
	"github.com/mscclpp-go/mscclpp/internal/promise"
)

// drop makes the kernel throw away what arrives for a connection, as if the cable
// were cut: no acknowledgment leaves either.
func drop(t *testing.T, conn *net.TCPConn) {
	t.Helper()
	raw, err := conn.SyscallConn()
	if err != nil {
		t.Fatal(err)
	}
	filter := []unix.SockFilter{{Code: unix.BPF_RET | unix.BPF_K, K: 0}}
	program := unix.SockFprog{Len: 1, Filter: &filter[0]}
	err = raw.Control(func(fd uintptr) {
		if e := unix.SetsockoptSockFprog(int(fd), unix.SOL_SOCKET, unix.SO_ATTACH_FILTER, &program); e != nil {
			t.Error(e)
		}
	})
	if err != nil {
		t.Fatal(err)
	}
}

// A host that goes silent is dead after the bound, and named.
func TestSilentHost(t *testing.T) {
	t.Parallel()
	const victim = 1
	ranks := joinAll(t, 3, func(c *Config) {
		c.HostID, c.missed = fmt.Sprint("host ", c.Rank), 2
	})
	cut := time.Now()
	for r, b := range ranks {
		b.mu.Lock()
		for l := range b.links {
			if r == victim || l.Peer == victim {
				drop(t, l.Conn)
			}
		}
		b.mu.Unlock()
	}
	watch := promise.Begin()
	for _, r := range []int{0, 2} {
		select {
		case <-ranks[r].Failed():
		case <-time.After(patience):
			t.Fatalf("rank %d has not noticed", r)
		}
		if err := wantError(ranks[r].Err(), framework.ErrPeer, victim, "silent"); err != nil {
			t.Error(err)
		}
	}
	if err := watch.Kept(10 * time.Second); err != nil {
		t.Error("the silence was noticed ", err)
	}
	if d := time.Since(cut); d < 2*time.Second {
		t.Errorf("dead after %v, expected at least 2s of silence", d)
	}
}

// A stopped process on another host is not dead: its kernel still answers.
func TestStoppedProcessIsNotDead(t *testing.T) {
	t.Parallel()
	b, children := startJob(t, "leave", 2, func(c *Config) { c.missed, c.HostID = 2, "here" },
		func(int) []string { return []string{EnvHostID + "=there"} })
	children[1].expect("joined")
	if b.SameHost(1) {
		t.Fatal("the test needs two hosts")
	}
	if err := children[1].Process.Signal(syscall.SIGSTOP); err != nil {
		t.Fatal(err)
	}
	select {
	case <-b.Failed():
		t.Errorf("a stopped process was taken for dead: %v", b.Err())
	case <-time.After(3700 * time.Millisecond): // well over the bound of this test
	}
	if err := children[1].Process.Signal(syscall.SIGCONT); err != nil {
		t.Fatal(err)
	}
	fmt.Fprintln(children[1].stdin)
	_, err := b.Recv(bounded(t, patience), 1, 1)
	if e := wantError(err, framework.ErrPeer, 1, "left"); e != nil {
		t.Error(e)
	}
}

func TestSilenceWhilePeerDoesNotRead(t *testing.T) {
	bound := 10 * time.Second
	for _, c := range []struct {
		q    quiet
		dead bool
	}{
		{quiet{since: 9 * time.Second, window: 1}, false},
		{quiet{since: 11 * time.Second, window: 1}, true},
		{quiet{since: 11 * time.Second, probe: 4 * time.Second}, false},
		{quiet{since: 13 * time.Second, probe: 4 * time.Second}, true},
		{quiet{since: 11 * time.Second, probe: time.Second}, true},
		{quiet{}, false},
	} {
		if got := c.q.dead(bound); got != c.dead {
			t.Errorf("%+v: dead is %v, expected %v", c.q, got, c.dead)
		}
	}
}
