package supervise

import (
	"os/exec"
	"syscall"
	"testing"

	"golang.org/x/sys/unix"
)

// child starts a process in a group of its own, with its descriptor.
func child(t *testing.T, command ...string) (*Child, *exec.Cmd) {
	t.Helper()
	fd := -1
	c := exec.Command(command[0], command[1:]...)
	c.SysProcAttr = &syscall.SysProcAttr{Setpgid: true, Pdeathsig: syscall.SIGKILL, PidFD: &fd}
	if err := c.Start(); err != nil {
		t.Fatal(err)
	}
	if fd < 0 {
		t.Fatal("expected a descriptor, as Linux 5.4 gives one")
	}
	made := NewChild(c.Process.Pid, fd)
	t.Cleanup(func() {
		c.Process.Kill()
		c.Wait()
		made.Close()
	})
	return made, c
}

func TestChildTellsHowItEnded(t *testing.T) {
	ended, _ := child(t, "sh", "-c", "exit 7")
	if got := ended.Wait(unix.WEXITED); got != (Change{Exited, 7}) {
		t.Errorf("%+v, expected exit with 7", got)
	}
	if got := ended.Wait(unix.WEXITED); got != (Change{Exited, 7}) {
		t.Errorf("%+v, expected the same again", got)
	}
	lives, _ := child(t, "sleep", "infinity")
	if got := lives.Wait(unix.WEXITED | unix.WNOHANG); got.Code != Running {
		t.Errorf("%+v, expected that it lives", got)
	}
	if err := lives.Signal(syscall.SIGTERM); err != nil {
		t.Fatal(err)
	}
	if got := lives.Wait(unix.WEXITED); got != (Change{Killed, int(syscall.SIGTERM)}) {
		t.Errorf("%+v, expected a kill by SIGTERM", got)
	}
}

// The number of a child that other code has reaped goes to the next process that asks.
func TestSignalSparesTheNextOwnerOfTheNumber(t *testing.T) {
	stranger := victim(t)
	dead, c := child(t, "true")
	if _, err := syscall.Wait4(c.Process.Pid, nil, 0, nil); err != nil {
		t.Fatal(err)
	}
	if got := dead.Wait(unix.WEXITED); got.Code != Taken {
		t.Errorf("%+v, expected that its status was taken", got)
	}
	dead.PID = stranger.Process.Pid
	if err := dead.Signal(syscall.SIGKILL); err == nil {
		t.Error("the signal went to another process")
	}
	dead.Close()
	if err := dead.Signal(syscall.SIGKILL); err == nil {
		t.Error("the signal went to somebody after Close")
	}
	if err := unix.Waitid(unix.P_PID, stranger.Process.Pid, nil, unix.WEXITED|unix.WNOHANG|unix.WNOWAIT, nil); err != nil {
		t.Fatal(err)
	}
	if s, ok := Of(stranger.Process.Pid); !ok || s.State == 'Z' {
		t.Error("the process that got the number was killed")
	}
}
