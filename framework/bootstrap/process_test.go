package bootstrap

import (
	"bufio"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"strconv"
	"strings"
	"syscall"
	"testing"
	"time"

	"golang.org/x/sys/unix"

	"github.com/mscclpp-go/mscclpp/framework"
	"github.com/mscclpp-go/mscclpp/framework/bootstrap/internal/fdpass"
	"github.com/mscclpp-go/mscclpp/internal/promise"
)

const (
	childMode    = "MSCCLPP_BOOTSTRAP_TEST_CHILD"
	childFiles   = "MSCCLPP_BOOTSTRAP_TEST_FILES"   // how many may be open
	childProgram = "MSCCLPP_BOOTSTRAP_TEST_PROGRAM" // instead of the test's own
)

// report is a line of a child's output.
type report struct {
	Event   string
	Socket  string
	Sockets int // that the rank has
	Peer    int
	IsPeer  bool
	Error   string
}

// child is a rank process of a test. In mode "wait" it waits in a barrier that
// rank 0 never enters; in mode "quit" it announces an error of its own, on a line
// from its standard input; in mode "leave" it leaves in order.
func child(mode string) int {
	if files, err := strconv.ParseUint(os.Getenv(childFiles), 10, 32); err == nil {
		_ = unix.Setrlimit(unix.RLIMIT_NOFILE, &unix.Rlimit{Cur: files, Max: files})
	}
	out := json.NewEncoder(os.Stdout)
	cfg, err := FromEnv(os.Getenv)
	if err != nil {
		_ = out.Encode(report{Event: "failed", Error: err.Error()})
		return 1
	}
	ctx, cancel := context.WithTimeout(context.Background(), patience)
	defer cancel()
	b, err := Join(ctx, cfg)
	if err != nil {
		_ = out.Encode(report{Event: "failed", Peer: framework.PeerOf(err), IsPeer: errors.Is(err, framework.ErrPeer), Error: err.Error()})
		return 1
	}
	_ = out.Encode(report{Event: "joined", Socket: fdpass.Address(b.self.socket).Name, Sockets: sockets()})
	switch mode {
	case "quit":
		_, _ = bufio.NewReader(os.Stdin).ReadString('\n')
		b.Announce(fmt.Errorf("out of paper: %w", framework.ErrUnavailable))
		os.Exit(3) // without Close
	case "leave":
		_, _ = bufio.NewReader(os.Stdin).ReadString('\n')
		_ = b.Close()
		return 0
	}
	err = Barrier(ctx, b, 1)
	_ = out.Encode(report{Event: "ended", Peer: framework.PeerOf(err), IsPeer: errors.Is(err, framework.ErrPeer), Error: fmt.Sprint(err)})
	os.Exit(1) // at once and without Close: no rank may blame the messenger
	return 1
}

// sockets counts those of this process.
func sockets() (n int) {
	entries, _ := os.ReadDir("/proc/self/fd")
	for _, e := range entries {
		if link, err := os.Readlink("/proc/self/fd/" + e.Name()); err == nil && strings.HasPrefix(link, "socket:") {
			n++
		}
	}
	return n
}

// process is a started child.
type process struct {
	*exec.Cmd
	t       *testing.T
	reports chan report
	stdin   interface{ Write([]byte) (int, error) }
}

func start(t *testing.T, mode string, id UniqueID, rank, size int, extra ...string) *process {
	t.Helper()
	p, err := startIn(t, 0, mode, id, rank, size, extra...)
	if err != nil {
		t.Fatal(err)
	}
	return p
}

// startIn is start with namespaces of the child's own.
func startIn(t *testing.T, namespaces uintptr, mode string, id UniqueID, rank, size int, extra ...string) (*process, error) {
	t.Helper()
	return startWith(t, &syscall.SysProcAttr{Pdeathsig: syscall.SIGKILL, Cloneflags: namespaces}, mode, id, rank, size, extra...)
}

// startAs is start as another user, which meets rank 0 at an address.
func startAs(t *testing.T, uid uint32, mode string, rank, size int, extra ...string) (*process, error) {
	t.Helper()
	program, err := os.ReadFile(os.Args[0])
	if err != nil {
		return nil, err
	}
	dir, err := os.MkdirTemp("", "mscclpp-bootstrap")
	if err != nil {
		return nil, err
	}
	t.Cleanup(func() { _ = os.RemoveAll(dir) })
	if err := os.Chmod(dir, 0o755); err != nil { // where that user can execute it
		return nil, err
	}
	copied := filepath.Join(dir, "rank")
	if err := os.WriteFile(copied, program, 0o755); err != nil {
		return nil, err
	}
	attr := &syscall.SysProcAttr{Credential: &syscall.Credential{Uid: uid, Gid: uid}}
	return startWith(t, attr, mode, UniqueID{}, rank, size, append(extra, EnvUniqueID+"=", childProgram+"="+copied)...)
}

func startWith(t *testing.T, attr *syscall.SysProcAttr, mode string, id UniqueID, rank, size int, extra ...string) (*process, error) {
	t.Helper()
	program := os.Args[0]
	for _, e := range extra {
		if copied, ok := strings.CutPrefix(e, childProgram+"="); ok {
			program = copied
		}
	}
	p := &process{Cmd: exec.Command(program), t: t, reports: make(chan report, 8)}
	p.Env = append(os.Environ(), childMode+"="+mode, EnvUniqueID+"="+id.String(), fmt.Sprintf("%s=%d", EnvRank, rank), fmt.Sprintf("%s=%d", EnvSize, size))
	p.Env = append(p.Env, extra...)
	p.Stderr = os.Stderr
	p.SysProcAttr = attr
	out, err := p.StdoutPipe()
	if err != nil {
		t.Fatal(err)
	}
	if p.stdin, err = p.StdinPipe(); err != nil {
		t.Fatal(err)
	}
	if err := p.Start(); err != nil {
		return nil, err
	}
	done := make(chan struct{})
	go func() {
		defer close(done)
		defer close(p.reports)
		d := json.NewDecoder(out)
		for {
			var r report
			if d.Decode(&r) != nil {
				return
			}
			p.reports <- r
		}
	}()
	t.Cleanup(func() {
		_ = p.Process.Kill()
		<-done
		_ = p.Wait()
	})
	return p, nil
}

// expect waits for the next report.
func (p *process) expect(event string) report {
	p.t.Helper()
	select {
	case r := <-p.reports:
		if r.Event != event {
			p.t.Fatalf("child %d reports %+v, expected %q", p.Process.Pid, r, event)
		}
		return r
	case <-time.After(patience):
		p.t.Fatalf("child %d reports nothing, expected %q", p.Process.Pid, event)
	}
	return report{}
}

// startJob makes this process rank 0 and starts the others.
func startJob(t *testing.T, mode string, size int, edit func(c *Config), extra func(rank int) []string) (*TCP, []*process) {
	t.Helper()
	l, id, err := Listen(context.Background(), "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	children := make([]*process, size)
	for r := 1; r < size; r++ {
		var env []string
		if extra != nil {
			env = extra(r)
		}
		children[r] = start(t, mode, id, r, size, env...)
	}
	c := Config{Size: size, ID: id, Listener: l}
	if edit != nil {
		edit(&c)
	}
	b, err := Join(bounded(t, patience), c)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { _ = b.Close() })
	return b, children
}

// A killed process is named by all ranks within two seconds, whatever else ends in the meantime;
// and nothing remains of it.
func TestKilledProcessIsNamed(t *testing.T) {
	const size, victim = 9, 5 // 0 and 5 are not neighbors
	for _, neighborRanks := range neighbors(0, size) {
		if neighborRanks == victim {
			t.Fatal("the test needs a victim that is far")
		}
	}
	b, children := startJob(t, "wait", size, nil, nil)
	var sockets []string
	for _, c := range children[1:] {
		sockets = append(sockets, c.expect("joined").Socket)
	}
	pending := make(chan error, 1)
	go func() {
		_, err := b.Recv(context.Background(), 1, 9)
		pending <- err
	}()
	watch := promise.Begin()
	if err := children[victim].Process.Kill(); err != nil {
		t.Fatal(err)
	}
	awaitFailed(t, b)
	for _, err := range []error{b.Err(), <-pending, Barrier(context.Background(), b, 1)} {
		if e := wantError(err, framework.ErrPeer, victim, "died"); e != nil {
			t.Error(e)
		}
	}
	for r := 1; r < size; r++ {
		if r == victim {
			continue
		}
		if got := children[r].expect("ended"); got.Peer != victim || !got.IsPeer {
			t.Errorf("rank %d: %+v, expected to blame rank %d", r, got, victim)
		}
	}
	if err := watch.Kept(2 * time.Second); err != nil {
		t.Errorf("all ranks knew %v", err)
	}
	_ = b.Close()
	for _, c := range children[1:] {
		_ = c.Process.Kill()
		_, _ = c.Process.Wait()
	}
	table, err := os.ReadFile("/proc/net/unix")
	if err != nil {
		t.Fatal(err)
	}
	for _, s := range sockets {
		if strings.Contains(string(table), s) {
			t.Errorf("socket %s is left", s)
		}
	}
}

// A rank that leaves on an error is named with its reason, although it exits at once.
func TestAnnouncementBeatsExit(t *testing.T) {
	t.Parallel()
	b, children := startJob(t, "quit", 3, nil, nil)
	for _, c := range children[1:] {
		c.expect("joined")
	}
	fmt.Fprintln(children[2].stdin)
	watch := promise.Begin()
	awaitFailed(t, b)
	if err := watch.Kept(2 * time.Second); err != nil {
		t.Errorf("rank 0 knows %v", err)
	}
	if err := wantError(b.Err(), framework.ErrPeer, 2, "out of paper"); err != nil {
		t.Error(err)
	}
}

func TestOrderlyExitIsNoDeath(t *testing.T) {
	t.Parallel()
	b, children := startJob(t, "leave", 3, nil, nil)
	for _, c := range children[1:] {
		c.expect("joined")
		fmt.Fprintln(c.stdin)
	}
	for r := 1; r < 3; r++ {
		_, err := b.Recv(bounded(t, patience), r, 1)
		if e := wantError(err, framework.ErrPeer, r, "left"); e != nil {
			t.Error(e)
		}
	}
	select {
	case <-b.Failed():
		t.Error(b.Err())
	case <-time.After(2 * lastWords):
	}
}
