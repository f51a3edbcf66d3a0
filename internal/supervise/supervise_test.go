package supervise

import (
	"os/exec"
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
