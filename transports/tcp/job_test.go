package tcp_test

import (
	"bytes"
	"errors"
	"fmt"
	"net"
	"os"
	"os/exec"
	"path/filepath"
	"regexp"
	"slices"
	"strconv"
	"strings"
	"sync"
	"syscall"
	"testing"
	"time"
	"unsafe"

	"golang.org/x/sys/unix"

	"github.com/mscclpp-go/mscclpp/internal/promise"
)

// deathBound is how long a job may go on without one of its ranks. On a quiet machine it takes a
// tenth of that.
const deathBound = 10 * time.Second

// host is one of the two that a job takes this machine for: a launcher with one rank.
type host struct {
	cmd          *exec.Cmd
	out, errs    bytes.Buffer
	ended        chan struct{}
	err          error // how, once it has
	rank, plugin int
	streams      []int // descriptors of the rank that its plugin has as well
}

// programs returns the folder of the launcher and the plugin.
func programs(t *testing.T) string {
	t.Helper()
	dir, err := build()
	if err != nil {
		t.Fatal(err)
	}
	return dir
}

// build makes them once for all tests. TestMain removes the folder, whose name is in built.
var build = sync.OnceValues(func() (string, error) {
	dir, err := os.MkdirTemp("", "mscclpp-tcp-test-")
	if err != nil {
		return "", err
	}
	built = dir
	for out, program := range map[string]string{"mscclpp-run": "../../cmd/mscclpp-run", "plugins/mscclpp-transport-tcp": "./cmd/mscclpp-transport-tcp"} {
		if text, err := exec.Command("go", "build", "-tags=grpcnotrace", "-o", filepath.Join(dir, out), program).CombinedOutput(); err != nil {
			return "", fmt.Errorf("build %s: %w\n%s", program, err, text)
		}
	}
	return dir, nil
})

var built string

// bench starts two hosts of a rank each that measure all-reduces over tcp, and go when the test does.
func bench(t *testing.T, dir string, env []string, args ...string) [2]*host {
	t.Helper()
	secret := filepath.Join(t.TempDir(), "secret")
	if err := os.WriteFile(secret, []byte(strings.Repeat("5a", 32)), 0o600); err != nil {
		t.Fatal(err)
	}
	port := reserved(t)
	var hosts [2]*host
	for i := range hosts {
		h := &host{ended: make(chan struct{})}
		all := append([]string{"-N", "2", "--node-rank", strconv.Itoa(i), "--master-addr", "127.0.0.1", "--master-port", strconv.Itoa(port),
			"--transports", "tcp", "--log-level", "none", "-n", "1", "bench", "allreduce"}, args...)
		h.cmd = exec.Command(filepath.Join(dir, "mscclpp-run"), all...)
		h.cmd.Env = append(append(os.Environ(), "MSCCLPP_SECRET_FILE="+secret, fmt.Sprintf("MSCCLPP_BOOTSTRAP__HOST_ID=host-%d", i)), env...)
		h.cmd.Stdout, h.cmd.Stderr = &h.out, &h.errs
		if err := h.cmd.Start(); err != nil {
			t.Fatal(err)
		}
		go func() { h.err = h.cmd.Wait(); close(h.ended) }()
		t.Cleanup(func() {
			_ = h.cmd.Process.Signal(syscall.SIGTERM) // ends its rank as well
			<-h.ended
		})
		hosts[i] = h
	}
	return hosts
}

// startJob starts two ranks that reduce over tcp until the test ends them, and waits until both
// drive sockets that their plugins have made.
func startJob(t *testing.T, dir string) [2]*host {
	t.Helper()
	hosts := bench(t, dir, nil, "--bytes", "256K", "--iters", "10000000")
	for i, h := range hosts {
		for deadline := time.Now().Add(time.Minute); !h.busy(); time.Sleep(10 * time.Millisecond) {
			select {
			case <-h.ended:
				t.Fatalf("host %d ended early:\n%s", i, h.errs.String())
			default:
			}
			if time.Now().After(deadline) {
				t.Fatalf("host %d has rank %d with streams %v after a minute", i, h.rank, h.streams)
			}
		}
	}
	return hosts
}

// reserved returns a port of the loopback that is this test's until it ends: rank 0 of a job can
// listen there, because the socket that holds it does not, and no process that asks for any port
// gets it.
func reserved(t *testing.T) int {
	t.Helper()
	fd, err := unix.Socket(unix.AF_INET, unix.SOCK_STREAM|unix.SOCK_CLOEXEC, 0)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { _ = unix.Close(fd) })
	if err := unix.SetsockoptInt(fd, unix.SOL_SOCKET, unix.SO_REUSEADDR, 1); err != nil {
		t.Fatal(err)
	}
	if err := unix.Bind(fd, &unix.SockaddrInet4{Addr: [4]byte{127, 0, 0, 1}}); err != nil {
		t.Fatal(err)
	}
	at, err := unix.Getsockname(fd)
	if err != nil {
		t.Fatal(err)
	}
	return at.(*unix.SockaddrInet4).Port
}

// A port that is reserved is in use for a process that does not ask to share it, and for the next
// that reserves one, and the job can listen there, one at a time.
func TestReservedPort(t *testing.T) {
	port := reserved(t)
	address := net.JoinHostPort("127.0.0.1", strconv.Itoa(port))
	d := net.Dialer{LocalAddr: &net.TCPAddr{IP: net.IPv4(127, 0, 0, 1), Port: port}}
	if c, err := d.Dial("tcp", address); !errors.Is(err, unix.EADDRINUSE) {
		t.Errorf("a connection from a port that is reserved: %v, %v", c, err)
	}
	if other := reserved(t); other == port {
		t.Errorf("port %d is reserved twice", port)
	}
	for range 2 { // also once more, where a job has ended
		l, err := net.Listen("tcp", address)
		if err != nil {
			t.Fatalf("the job cannot listen: %v", err)
		}
		if second, err := net.Listen("tcp", address); err == nil {
			second.Close()
			t.Error("two jobs listen at one port")
		}
		l.Close()
	}
}

// busy looks for the rank, its plugin, and the streams that both have; and whether the
// rank has worked for a while.
func (h *host) busy() bool {
	h.rank = child(h.cmd.Process.Pid, "bench")
	h.plugin = child(h.rank, "mscclpp-transport-tcp")
	if h.rank == 0 || h.plugin == 0 || processorTime(h.rank) < 10 {
		return false
	}
	theirs := make(map[string]bool)
	for _, inode := range sockets(h.plugin) {
		theirs[inode] = true
	}
	h.streams = h.streams[:0]
	for fd, inode := range sockets(h.rank) {
		if theirs[inode] {
			h.streams = append(h.streams, fd)
		}
	}
	slices.Sort(h.streams)     // the first one was duplicated first
	return len(h.streams) == 4 // the default of the option
}

// child returns a descendant whose command line has a word, or 0.
func child(of int, word string) int {
	if of == 0 {
		return 0
	}
	tasks, _ := filepath.Glob(fmt.Sprintf("/proc/%d/task/*/children", of))
	for _, task := range tasks {
		b, _ := os.ReadFile(task)
		for _, field := range strings.Fields(string(b)) {
			pid, _ := strconv.Atoi(field)
			line, _ := os.ReadFile(fmt.Sprintf("/proc/%d/cmdline", pid))
			first, _, _ := strings.Cut(string(line), "\x00")
			// A supervisor stands between the launcher and its rank.
			if word == "bench" && strings.Contains(string(line), "\x00bench\x00") && child(pid, "mscclpp-transport-tcp") != 0 || strings.HasSuffix(first, word) {
				return pid
			}
			if deeper := child(pid, word); deeper != 0 {
				return deeper
			}
		}
	}
	return 0
}

func processorTime(pid int) int {
	b, _ := os.ReadFile(fmt.Sprintf("/proc/%d/stat", pid))
	f := strings.Fields(string(b[bytes.LastIndexByte(b, ')')+1:]))
	if len(f) < 13 || f[0] == "Z" {
		return 0
	}
	user, _ := strconv.Atoi(f[11])
	system, _ := strconv.Atoi(f[12])
	return user + system
}

// sockets returns the TCP sockets among the descriptors of a process.
func sockets(pid int) map[int]string {
	network, _ := os.ReadFile(fmt.Sprintf("/proc/%d/net/tcp", pid))
	dual, _ := os.ReadFile(fmt.Sprintf("/proc/%d/net/tcp6", pid)) // a listener for both families
	network = append(network, dual...)
	found := make(map[int]string)
	fds, _ := filepath.Glob(fmt.Sprintf("/proc/%d/fd/*", pid))
	for _, path := range fds {
		to, _ := os.Readlink(path)
		inode, isSocket := strings.CutPrefix(to, "socket:[")
		inode = strings.TrimSuffix(inode, "]")
		if fd, err := strconv.Atoi(filepath.Base(path)); err == nil && isSocket && strings.Contains(string(network), " "+inode+" ") {
			found[fd] = inode
		}
	}
	return found
}

// borrow returns a duplicate of a descriptor of another process.
func borrow(t *testing.T, pid, fd int) int {
	t.Helper()
	p, err := unix.PidfdOpen(pid, 0)
	if err != nil {
		t.Fatal(err)
	}
	defer unix.Close(p)
	dup, err := unix.PidfdGetfd(p, fd, 0)
	if errors.Is(err, unix.EPERM) {
		t.Skip("no permission to take descriptors of a child (pidfd_getfd)")
	}
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { unix.Close(dup) })
	return dup
}

// However a rank that drives its streams loses them or its life, all others end in time,
// and say whom they lost.
func TestEndsOfAJobWithHandedStreams(t *testing.T) {
	dir := programs(t)
	hangUp := func(stream int) func(*testing.T, *host) {
		return func(t *testing.T, h *host) {
			if err := unix.Shutdown(borrow(t, h.rank, h.streams[stream]), unix.SHUT_RDWR); err != nil {
				t.Fatal(err)
			}
		}
	}
	// A middleman that forgets a connection answers with a reset.
	reset := func(stream int) func(*testing.T, *host) {
		return func(t *testing.T, h *host) {
			if err := disconnect(borrow(t, h.rank, h.streams[stream])); err != nil {
				t.Fatal(err)
			}
		}
	}
	kill := func(pid func(h *host) int) func(*testing.T, *host) {
		return func(t *testing.T, h *host) {
			if err := syscall.Kill(pid(h), syscall.SIGKILL); err != nil {
				t.Fatal(err)
			}
		}
	}
	for name, c := range map[string]struct {
		do     func(*testing.T, *host) // to host 1
		wanted [2]string               // the error on each host
	}{
		"a rank is killed":              {kill(func(h *host) int { return h.rank }), [2]string{`rank 1.*peer failed`, `killed`}},
		"a plugin is killed":            {kill(func(h *host) int { return h.plugin }), [2]string{`rank 1.*plugin gone`, `plugin gone`}},
		"the first stream is hung up":   {hangUp(0), [2]string{`rank [01].*peer failed`, `rank [01].*peer failed`}},
		"an idle stream is hung up":     {hangUp(3), [2]string{`rank [01].*peer failed`, `rank [01].*peer failed`}},
		"the first connection is reset": {reset(0), [2]string{`rank [01].*peer failed`, `rank [01].*peer failed`}},
		"an idle connection is reset":   {reset(3), [2]string{`rank [01].*peer failed`, `rank [01].*peer failed`}},
	} {
		t.Run(name, func(t *testing.T) {
			hosts := startJob(t, dir)
			c.do(t, hosts[1])
			watch := promise.Begin()
			for i, h := range hosts {
				if err := watch.Await(h.ended, deathBound); err != nil {
					t.Fatalf("host %d still runs %v", i, err)
				}
				if code := h.cmd.ProcessState.ExitCode(); code <= 0 {
					t.Errorf("host %d ended with code %d, expected a failure", i, code)
				}
				if !regexp.MustCompile(c.wanted[i]).MatchString(h.errs.String()) {
					t.Errorf("host %d: no %q in\n%s", i, c.wanted[i], h.errs.String())
				}
				for _, pid := range []int{h.rank, h.plugin} {
					for deadline := time.Now().Add(4 * time.Minute); processorTime(pid) > 0; time.Sleep(5 * time.Millisecond) {
						if time.Now().After(deadline) {
							t.Fatalf("host %d: process %d is left", i, pid)
						}
					}
				}
				t.Logf("host %d: %s", i, h.errs.String())
			}
		})
	}
}

// disconnect makes the kernel forget a connection, and tell the peer by a reset.
func disconnect(fd int) error {
	none := unix.RawSockaddr{Family: unix.AF_UNSPEC}
	if _, _, errno := unix.Syscall(unix.SYS_CONNECT, uintptr(fd), uintptr(unsafe.Pointer(&none)), unsafe.Sizeof(none)); errno != 0 {
		return errno
	}
	return nil
}
