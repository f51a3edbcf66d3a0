package plugins

import (
	"bufio"
	"context"
	"errors"
	"fmt"
	"os"
	"os/exec"
	"regexp"
	"runtime"
	"strings"
	"sync"
	"testing"
	"time"

	"golang.org/x/sys/unix"

	"github.com/mscclpp-go/mscclpp/framework"
	"github.com/mscclpp-go/mscclpp/internal/promise"
	"github.com/mscclpp-go/mscclpp/internal/supervise"
)

// deathBound is how soon each side has to notice the death of the other.
const deathBound = 100 * time.Millisecond

func TestHostLearnsOfAKilledPlugin(t *testing.T) {
	c := open(t, self(t, "mirror"))
	blocked := make(chan error, 1)
	go func() {
		_, err := c.Connect(context.Background(), 1, []framework.Peer{{Rank: 4, Address: framework.Parcel{Data: []byte("slow")}}})
		blocked <- err
	}()
	p, err := c.NewProxy(t.Context())
	if err != nil {
		t.Fatal(err)
	}
	waiting := make(chan error, 1)
	go func() { waiting <- p.Wait(context.Background()) }()

	watch := promise.Begin()
	if err := unix.Kill(c.PID(), unix.SIGKILL); err != nil {
		t.Fatal(err)
	}
	happens(t, c.Gone(), "Gone")
	if err := watch.Kept(deathBound); err != nil {
		t.Errorf("the host learned of it %v", err)
	}
	want := func(what string, err error) {
		t.Helper()
		if !errors.Is(err, framework.ErrPlugin) || !strings.Contains(err.Error(), "signal: killed") {
			t.Errorf("%s: got %v, expected ErrPlugin that says how it died", what, err)
		}
	}
	want("Err", c.Err())
	want("call in progress", <-blocked)
	want("Wait", <-waiting)
	_, err = c.Describe(t.Context())
	want("later call", err)
}

func TestCrashIsExplained(t *testing.T) {
	spec := self(t, "mirror")
	spec.Options = map[string]any{"crash": "index out of luck"}
	c := open(t, spec)
	_, err := c.Listen(t.Context(), framework.EndpointConfig{Kind: framework.KindMemory})
	for _, want := range []string{"panic: index out of luck", "exit status 2", "mirror listen"} {
		if !errors.Is(err, framework.ErrPlugin) || !strings.Contains(err.Error(), want) {
			t.Errorf("got %v, expected ErrPlugin with %q", err, want)
		}
	}
	happens(t, c.Gone(), "Gone")
}

func TestPluginThatHangsUp(t *testing.T) {
	c := open(t, self(t, "hangs up"))
	if _, err := c.Listen(t.Context(), framework.EndpointConfig{Kind: framework.KindMemory}); err == nil {
		t.Error("listen: expected an error")
	}
	happens(t, c.Gone(), "Gone")
	if err := c.Err(); !errors.Is(err, framework.ErrPlugin) {
		t.Errorf("got %v, expected ErrPlugin", err)
	}
	c.Shutdown()
	if err := unix.Kill(c.PID(), 0); !errors.Is(err, unix.ESRCH) {
		t.Errorf("the process is left: %v", err)
	}
}

func TestStoppedPlugin(t *testing.T) {
	spec, log := self(t, "mirror"), &buffer{}
	spec.Log = logTo(log)
	c := open(t, spec)
	if err := unix.Kill(c.PID(), unix.SIGSTOP); err != nil {
		t.Fatal(err)
	}
	stopped(t, c.PID())
	ctx, cancel := context.WithTimeout(t.Context(), time.Second) // the call has begun by then
	defer cancel()
	if _, err := c.Describe(ctx); !errors.Is(err, context.DeadlineExceeded) || errors.Is(err, framework.ErrPlugin) {
		t.Errorf("got %v, expected the deadline: a stopped process is not dead", err)
	} else if !strings.Contains(err.Error(), "the plugin has not answered for ") {
		t.Errorf("%v: does not say who is late", err)
	}
	canceledCall(t, c)
	for deadline := time.Now().Add(hang); !strings.Contains(log.String(), "plugin is stopped"); runtime.Gosched() {
		if time.Now().After(deadline) {
			t.Fatalf("the log does not say that the plugin is stopped: %s", log)
		}
	}
	watch := promise.Begin()
	c.Shutdown()
	if err := watch.Kept(3 * time.Second); err != nil {
		t.Errorf("shutdown %v", err)
	}
	if n := strings.Count(log.String(), "plugin is stopped"); n != 1 {
		t.Errorf("the log says %d times that the plugin is stopped, expected once", n)
	}
}

// canceledCall cancels a call without a deadline, which a plugin that is stopped does not answer:
// the error has the cause, and says which process is late and for how long.
func canceledCall(t *testing.T, c *Client) {
	const least = time.Second // more than such a call takes otherwise
	enough := errors.New("enough")
	ctx, end := context.WithCancelCause(t.Context())
	start := time.Now()
	_, err := c.Describe(&used{Context: ctx, first: func() { time.AfterFunc(3*least, func() { end(enough) }) }})
	took := time.Since(start)
	if !errors.Is(err, context.Canceled) || !errors.Is(err, enough) || errors.Is(err, framework.ErrPlugin) {
		t.Fatalf("%v: expected the cause", err)
	}
	owner := fmt.Sprintf("(process %d, %s, which is stopped)", c.PID(), c.Path())
	m := regexp.MustCompile(`the plugin has not answered for (\S+) `).FindStringSubmatch(err.Error())
	if m == nil || !strings.Contains(err.Error(), owner) {
		t.Fatalf("%v: expected for how long, and %q", err, owner)
	}
	if said, err := time.ParseDuration(m[1]); err != nil || said < least || said > took+time.Millisecond {
		t.Errorf("the plugin has not answered for %q: expected %v to %v", m[1], least, took)
	}
}

// used is a context that calls first when a call uses it for the first time.
type used struct {
	context.Context
	once  sync.Once
	first func()
}

func (u *used) Deadline() (time.Time, bool) {
	u.once.Do(u.first)
	return u.Context.Deadline()
}

func TestTransportThatDoesNotShutDown(t *testing.T) {
	c := open(t, self(t, "slow to close"))
	watch := promise.Begin()
	c.Shutdown()
	if err := watch.Kept(3 * time.Second); err != nil {
		t.Errorf("shutdown %v", err)
	}
}

func TestChildrenOfAPluginEndWithIt(t *testing.T) {
	log := &buffer{}
	spec := self(t, "has a child")
	spec.Log = logTo(log)
	c := open(t, spec)
	watch := promise.Begin()
	c.Shutdown()
	if err := watch.Kept(3 * time.Second); err != nil {
		t.Errorf("shutdown %v: a child kept the pipe", err)
	}
	_, after, found := strings.Cut(log.String(), "msg=\"child ")
	var child int
	if _, err := fmt.Sscan(strings.ReplaceAll(after, "\"", " "), &child); err != nil || !found {
		t.Fatalf("no child in the log: %s", log)
	}
	gone(t, child)
}

// gone waits until a process that is not our child has disappeared.
func gone(t *testing.T, pid int) {
	t.Helper()
	for deadline := time.Now().Add(hang); ; runtime.Gosched() {
		stat, err := os.ReadFile(fmt.Sprintf("/proc/%d/stat", pid))
		if err != nil {
			return
		}
		// The process that adopts it may be slow to reap it.
		if _, state, ok := strings.Cut(string(stat), ") "); ok && strings.HasPrefix(state, "Z") {
			return
		}
		if time.Now().After(deadline) {
			t.Fatalf("process %d is left: %s", pid, stat)
		}
	}
}

// startHost runs this test binary as a host with a plugin, and returns what it says
// of it.
func startHost(t *testing.T, plugin string) (host *exec.Cmd, line string) {
	t.Helper()
	host = exec.Command("/proc/self/exe")
	host.Env = append(os.Environ(), roleKey+"=host", roleKey+"_PLUGIN="+plugin)
	out, err := host.StdoutPipe()
	if err != nil {
		t.Fatal(err)
	}
	if err := host.Start(); err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { host.Process.Kill(); host.Wait() })
	if plugin == "silent" {
		return host, ""
	}
	line, err = bufio.NewReader(out).ReadString('\n')
	if err != nil {
		t.Fatalf("host: %v", err)
	}
	return host, line
}

func TestPluginEndsWithItsHost(t *testing.T) {
	dir := runtimeDir(t)
	for _, plugin := range []string{"mirror", "slow to close"} {
		host, line := startHost(t, plugin)
		var pid int
		if _, err := fmt.Sscanf(line, "plugin %d", &pid); err != nil {
			t.Fatalf("host said %q", line)
		}
		isEmpty(t, dir)
		host.Process.Kill()
		watch := promise.Begin()
		gone(t, pid)
		if err := watch.Kept(deathBound); err != nil {
			t.Errorf("%s ended %v", plugin, err)
		}
	}
}

// TestStoppedPluginEndsWithItsHost: a stopped process sees nothing, but the kernel
// wakes a process group that nobody is left to wake.
func TestStoppedPluginEndsWithItsHost(t *testing.T) {
	runtimeDir(t)
	host, line := startHost(t, "mirror")
	var pid int
	if _, err := fmt.Sscanf(line, "plugin %d", &pid); err != nil {
		t.Fatalf("host said %q", line)
	}
	if err := unix.Kill(pid, unix.SIGSTOP); err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { unix.Kill(pid, unix.SIGKILL) })
	stopped(t, pid)
	host.Process.Kill()
	gone(t, pid)
}

// stopped waits until every thread of a process has stopped.
func stopped(t *testing.T, pid int) {
	t.Helper()
	for deadline := time.Now().Add(hang); ; runtime.Gosched() {
		running := 0
		threads, _ := os.ReadDir(fmt.Sprintf("/proc/%d/task", pid))
		for _, th := range threads {
			stat, _ := os.ReadFile(fmt.Sprintf("/proc/%d/task/%s/stat", pid, th.Name()))
			if _, state, ok := strings.Cut(string(stat), ") "); !ok || !strings.HasPrefix(state, "T") {
				running++
			}
		}
		if running == 0 && len(threads) > 0 {
			return
		}
		if time.Now().After(deadline) {
			t.Fatalf("%d threads of process %d did not stop", running, pid)
		}
	}
}

func TestHostKilledInTheStart(t *testing.T) {
	dir := runtimeDir(t)
	host, _ := startHost(t, "silent")
	pid := childOf(t, host.Process.Pid)
	host.Process.Kill()
	host.Wait()
	gone(t, pid) // though it watches nothing
	isEmpty(t, dir)
}

// childOf waits until a process has a child that runs its program.
func childOf(t *testing.T, parent int) int {
	t.Helper()
	for deadline := time.Now().Add(hang); time.Now().Before(deadline); runtime.Gosched() {
		threads, _ := os.ReadDir(fmt.Sprintf("/proc/%d/task", parent))
		for _, th := range threads {
			list, _ := os.ReadFile(fmt.Sprintf("/proc/%d/task/%s/children", parent, th.Name()))
			var pid int
			if _, err := fmt.Sscan(string(list), &pid); err != nil {
				continue
			}
			env, _ := os.ReadFile(fmt.Sprintf("/proc/%d/environ", pid))
			if strings.Contains(string(env), roleKey+"=silent") { // execve is over
				return pid
			}
		}
	}
	t.Fatalf("process %d has no child", parent)
	return 0
}

func TestJobSignalsAreIgnored(t *testing.T) {
	c := open(t, self(t, "mirror"))
	for _, s := range []unix.Signal{unix.SIGINT, unix.SIGTERM} {
		if err := unix.Kill(c.PID(), s); err != nil {
			t.Fatal(err)
		}
	}
	for range 3 {
		if _, err := c.Describe(t.Context()); err != nil {
			t.Errorf("after SIGINT and SIGTERM: %v", err)
		}
	}
}

// Programs that wait for all their children, or want to know of none, are hosts like others.
func TestHostThatTakesTheExitStatus(t *testing.T) {
	for _, role := range []string{"ignores SIGCHLD", "reaps all children"} {
		t.Run(role, func(t *testing.T) {
			runtimeDir(t)
			host := exec.CommandContext(t.Context(), os.Args[0])
			host.Env = append(os.Environ(), roleKey+"="+role, raceExit)
			out, err := host.CombinedOutput()
			if err != nil {
				t.Fatalf("%v: %s", err, out)
			}
			said := string(out)
			taken := strings.Contains(said, "took its exit status")
			if strings.Contains(said, "<nil>") || !taken && (role == "ignores SIGCHLD" || !strings.Contains(said, "signal: killed")) {
				t.Errorf("the host says %q, expected how the plugin ended, or who took that", said)
			}
			var child int
			if m := regexp.MustCompile(`msg="child (\d+)"`).FindStringSubmatch(said); m == nil {
				t.Fatalf("no child in %q", said)
			} else if _, err := fmt.Sscan(m[1], &child); err != nil {
				t.Fatal(err)
			}
			for deadline := time.Now().Add(hang); unix.Kill(child, 0) == nil; runtime.Gosched() {
				if s, ok := supervise.Of(child); !ok || s.State == 'Z' {
					break
				}
				if time.Now().After(deadline) {
					t.Fatal("what the plugin left behind lives on")
				}
			}
		})
	}
}
