package supervise

import (
	"bufio"
	"fmt"
	"os"
	"os/exec"
	"runtime"
	"strconv"
	"strings"
	"syscall"
	"testing"
)

func TestParseStat(t *testing.T) {
	s, ok := parseStat([]byte("12 (a) b (c) S 7 8 9 0"))
	if !ok || s.State != 'S' || s.Parent != 7 || s.Group != 8 {
		t.Errorf("%+v %v", s, ok)
	}
	for text, exiting := range map[string]bool{"12 (a) S 7 8 9 0 -1 4194304 0": false, "12 (a) S 7 8 9 0 -1 4194308 0": true, "12 (a) Z 7 8": true} {
		if s, ok := parseStat([]byte(text)); !ok || s.Exiting != exiting {
			t.Errorf("%q: %+v %v, expected exiting %v", text, s, ok, exiting)
		}
	}
	for _, bad := range []string{"", "12", "12 (x)", "12 (x) S", "12 (x) S a b"} {
		if _, ok := parseStat([]byte(bad)); ok {
			t.Errorf("%q was accepted", bad)
		}
	}
}

func TestParseStatOfThreads(t *testing.T) {
	const until = "12 (a) %s 7 8 9 0 -1 0 0 0 0 0 0 0 0 0 20 0 %d 0"
	for _, x := range []struct {
		state   string
		threads int
		ended   bool
	}{{"Z", 1, true}, {"Z", 0, true}, {"Z", 2, false}, {"S", 1, false}} {
		if s, ok := parseStat(fmt.Appendf(nil, until, x.state, x.threads)); !ok || s.Ended != x.ended {
			t.Errorf("%+v: %+v %v", x, s, ok)
		}
	}
}

// headless is a process whose first thread ends and whose second one waits for ever. It says so once it is there.
const headless = "HEADLESS"

func init() { // on the first thread
	if os.Getenv(headless) == "" {
		return
	}
	go func() {
		runtime.LockOSThread()
		for { // until the other thread is gone
			if s, ok := Of(os.Getpid()); ok && s.State == 'Z' {
				break
			}
			runtime.Gosched()
		}
		os.Stdout.WriteString("headless\n")
		select {}
	}()
	runtime.LockOSThread()
	syscall.Syscall(syscall.SYS_EXIT, 0, 0, 0)
}

// A process whose first thread has ended looks like a zombie. It is killed all the same, and has ended when Run returns.
func TestProcessWithoutItsFirstThreadIsKilled(t *testing.T) {
	for name, env := range map[string]string{"group": "A=B", "mark": Mark + "=headless"} {
		c := exec.Command("/proc/self/exe")
		c.Env = []string{headless + "=1", env}
		c.SysProcAttr = &syscall.SysProcAttr{Setpgid: true}
		out, err := c.StdoutPipe()
		if err != nil {
			t.Fatal(err)
		}
		if err := c.Start(); err != nil {
			t.Fatal(err)
		}
		line, err := bufio.NewReader(out).ReadString('\n')
		if err != nil {
			t.Fatal(line, err)
		}
		group := ""
		if name == "group" {
			group = strconv.Itoa(c.Process.Pid) + "\n"
		}
		Run(strings.NewReader(group), "headless")
		if s, ok := Of(c.Process.Pid); ok && !s.Ended {
			t.Errorf("by %s: %+v after Run", name, s)
		}
		c.Process.Kill()
		c.Wait()
	}
}

// victim starts a process in a group of its own that waits for ever.
func victim(t *testing.T, env ...string) *exec.Cmd {
	t.Helper()
	c := exec.Command("sleep", "infinity")
	c.Env = env
	c.SysProcAttr = &syscall.SysProcAttr{Setpgid: true, Pdeathsig: syscall.SIGKILL}
	if err := c.Start(); err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() {
		c.Process.Kill()
		c.Wait()
	})
	return c
}

func TestFarewellSparesTheJob(t *testing.T) {
	c := victim(t, Mark+"=peaceful")
	Run(strings.NewReader(strconv.Itoa(c.Process.Pid)+"\n"+Farewell+"\n"), "peaceful")
	if err := c.Process.Signal(syscall.Signal(0)); err != nil {
		t.Errorf("the process was killed: %v", err)
	}
}

func TestWithoutFarewellGroupAndMarkAreKilled(t *testing.T) {
	byGroup, byMark, other := victim(t), victim(t, Mark+"=doomed"), victim(t, Mark+"=doomed2")
	Run(strings.NewReader("nonsense\n"+strconv.Itoa(byGroup.Process.Pid)+"\n1\n"), "doomed")
	for name, c := range map[string]*exec.Cmd{"group": byGroup, "mark": byMark} {
		if err := c.Wait(); err == nil || c.ProcessState.Sys().(syscall.WaitStatus).Signal() != syscall.SIGKILL {
			t.Errorf("by %s: %v, expected a kill", name, err)
		}
	}
	if err := other.Process.Signal(syscall.Signal(0)); err != nil {
		t.Errorf("a process of another job was killed: %v", err)
	}
}
