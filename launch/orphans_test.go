package launch

import (
	"bufio"
	"io"
	"os"
	"os/exec"
	"regexp"
	"runtime"
	"strconv"
	"strings"
	"syscall"
	"testing"
	"time"

	"golang.org/x/sys/unix"

	"github.com/mscclpp-go/mscclpp/internal/supervise"
)

var pidLine = regexp.MustCompile(`(?m)^(?:pid|launcher) (\d+)$`)

// handles opens the processes whose numbers were printed, so that a number that is
// used again cannot fool the test.
type handles map[int]int

func (h handles) add(t *testing.T, pid int) {
	fd, err := unix.PidfdOpen(pid, 0)
	if err == unix.ESRCH || err == unix.EINVAL {
		return // gone already
	}
	if err != nil {
		t.Fatal(err)
	}
	h[pid] = fd
	t.Cleanup(func() { unix.Close(fd) })
}

// gone expects that all of them end within the bound.
func (h handles) gone(t *testing.T, bound time.Duration) {
	t.Helper()
	deadline := time.Now().Add(bound)
	for pid, fd := range h {
		poll := []unix.PollFd{{Fd: int32(fd), Events: unix.POLLIN}}
		n, err := unix.Poll(poll, int(max(0, time.Until(deadline).Milliseconds())))
		for err == unix.EINTR {
			n, err = unix.Poll(poll, int(max(0, time.Until(deadline).Milliseconds())))
		}
		if n == 0 {
			t.Errorf("process %d lives on", pid)
			unix.PidfdSendSignal(fd, unix.SIGKILL, nil, 0)
		}
	}
}

// nested starts a launcher as a process of its own and reads its output until want
// has come n times.
func nested(t *testing.T, role, want string, n int, env ...string) (*exec.Cmd, handles) {
	t.Helper()
	c := exec.Command(self())
	c.Env = overlay(os.Environ(), append([]string{roleVar + "=nested", "NESTED=" + role}, env...))
	out, err := c.StdoutPipe()
	if err != nil {
		t.Fatal(err)
	}
	if err := c.Start(); err != nil {
		t.Fatal(err)
	}
	watchdog := time.AfterFunc(2*patience, func() { c.Process.Kill() })
	t.Cleanup(func() {
		watchdog.Stop()
		c.Process.Kill()
		c.Wait()
	})
	h := handles{}
	lines := bufio.NewScanner(out)
	for n > 0 && lines.Scan() {
		if m := pidLine.FindStringSubmatch(lines.Text()); m != nil {
			pid, _ := strconv.Atoi(m[1])
			h.add(t, pid)
		}
		if strings.Contains(lines.Text(), want) {
			n--
		}
	}
	if n > 0 {
		t.Fatalf("the launcher ended before %q came", want)
	}
	go io.Copy(io.Discard, out)
	// The ranks and the supervisor are the launcher's children.
	supervise.Each(func(pid int, s supervise.Stat) {
		if s.Parent == c.Process.Pid {
			h.add(t, pid)
		}
	})
	return c, h
}

// Even SIGKILL to the launcher leaves nothing: neither ranks, nor what they started
// in their group, in another one, in another session, nor the supervisor.
func TestKilledLauncherLeavesNothing(t *testing.T) {
	c, h := nested(t, "litter", "littered", 2, "RANKS=2")
	if len(h) < 2+2*4+2 {
		t.Fatalf("%d processes were seen, expected at least 12", len(h))
	}
	killed(t, c, h)
}

// killed kills a launcher and expects that nothing is left.
func killed(t *testing.T, c *exec.Cmd, h handles) {
	t.Helper()
	for pid := range h { // one each cannot be found by mark or group; see below
		if !marked(pid) && !inGroupOf(pid, h) {
			unmarked(t, pid, h)
		}
	}
	if err := c.Process.Signal(syscall.SIGKILL); err != nil {
		t.Fatal(err)
	}
	h.gone(t, patience)
}

// A supervisor that is killed has a successor, which does the same.
func TestKilledSupervisorIsReplaced(t *testing.T) {
	c, h := nested(t, "litter", "littered", 1, "RANKS=1")
	supervisor := func() (found int) {
		supervise.Each(func(pid int, s supervise.Stat) {
			if s.Parent == c.Process.Pid && s.State != 'Z' && supervises(pid) {
				found = pid
			}
		})
		return found
	}
	first := supervisor()
	if first == 0 {
		t.Fatal("there is no supervisor")
	}
	if err := syscall.Kill(first, syscall.SIGKILL); err != nil {
		t.Fatal(err)
	}
	second := 0
	for deadline := time.Now().Add(patience); second == 0 || second == first; second = supervisor() {
		if time.Now().After(deadline) {
			t.Fatal("no supervisor came after the one that was killed")
		}
		runtime.Gosched()
	}
	h.add(t, second)
	killed(t, c, h)
}

// So has one that was killed before the job began.
func TestSupervisorThatDiedEarlyIsReplaced(t *testing.T) {
	j := helper(1, "report")
	j.Guard = Supervise(j.Supervisor)
	first := j.Guard.child.PID
	if err := syscall.Kill(first, syscall.SIGKILL); err != nil {
		t.Fatal(err)
	}
	if err := unix.Waitid(unix.P_PID, first, nil, unix.WEXITED|unix.WNOWAIT, nil); err != nil {
		t.Fatal(err)
	}
	signals := make(chan os.Signal, 1)
	j.Stdout, j.Stderr, j.Report, j.Signals = io.Discard, io.Discard, io.Discard, signals
	done := make(chan error, 1)
	go func() {
		_, err := Run(t.Context(), j)
		done <- err
	}()
	succeeded(t, first)
	signals <- syscall.SIGTERM
	if err := <-done; err != nil {
		t.Error(err)
	}
}

// succeeded expects that a supervisor comes after the first one.
func succeeded(t *testing.T, first int) {
	t.Helper()
	found := false
	for deadline := time.Now().Add(patience); !found && time.Now().Before(deadline); runtime.Gosched() {
		supervise.Each(func(pid int, s supervise.Stat) {
			found = found || s.Parent == os.Getpid() && pid != first && s.State != 'Z' && supervises(pid)
		})
	}
	if !found {
		t.Error("no supervisor came after the one that was killed")
	}
}

// Ctrl-Z stops the ranks with their launcher, and they go on with it.
func TestLauncherThatIsStopped(t *testing.T) {
	c, _ := nested(t, "report", "ready", 2, "RANKS=2", "STUBBORN=1")
	await := func(what string, launcher, ranks func(state byte) bool) {
		t.Helper()
		for deadline := time.Now().Add(patience); ; runtime.Gosched() {
			var own byte
			var states []byte
			supervise.Each(func(pid int, s supervise.Stat) {
				switch {
				case pid == c.Process.Pid:
					own = s.State
				case s.Parent == c.Process.Pid && s.Group == pid && !supervises(pid):
					states = append(states, s.State)
				}
			})
			if launcher(own) && len(states) == 2 && ranks(states[0]) && ranks(states[1]) {
				return
			}
			if time.Now().After(deadline) {
				t.Fatalf("%s: the launcher is in state %q, its ranks are in %q", what, own, states)
			}
		}
	}
	stopped := func(state byte) bool { return state == 'T' }
	runs := func(state byte) bool { return state != 'T' && state != 'Z' }
	for range 3 {
		if err := c.Process.Signal(syscall.SIGTSTP); err != nil {
			t.Fatal(err)
		}
		await("stopped", stopped, stopped)
		if err := c.Process.Signal(syscall.SIGCONT); err != nil {
			t.Fatal(err)
		}
		await("continued", runs, runs)
	}
}

// supervises reports whether a process is a supervisor.
func supervises(pid int) bool {
	line, err := os.ReadFile("/proc/" + strconv.Itoa(pid) + "/cmdline")
	return err == nil && strings.Contains(string(line), "--supervise")
}

// unmarked takes care of a process that wiped its environment and left its session:
// no launcher that was killed can find it, which the documentation says.
func unmarked(t *testing.T, pid int, h handles) {
	data, err := os.ReadFile("/proc/" + strconv.Itoa(pid) + "/cmdline")
	if err == nil && strings.HasPrefix(string(data), "orphan") {
		unix.PidfdSendSignal(h[pid], unix.SIGKILL, nil, 0)
	}
}

func marked(pid int) bool {
	env, err := os.ReadFile("/proc/" + strconv.Itoa(pid) + "/environ")
	return err == nil && strings.Contains(string(env), Mark+"=")
}

func inGroupOf(pid int, h handles) bool {
	group, err := unix.Getpgid(pid)
	return err == nil && group != pid && h[group] != 0
}

// When a job ends in order, everything goes, also what hides from mark and group.
func TestOrderlyEndLeavesNothing(t *testing.T) {
	c, h := nested(t, "litter", "littered", 1, "RANKS=1")
	if err := c.Process.Signal(syscall.SIGTERM); err != nil {
		t.Fatal(err)
	}
	if err := c.Wait(); c.ProcessState.ExitCode() != 128+int(syscall.SIGTERM) {
		t.Errorf("the launcher ended with %v, expected code 143", err)
	}
	h.gone(t, patience)
}
