package launch

import (
	"crypto/rand"
	"encoding/hex"
	"errors"
	"fmt"
	"io"
	"os"
	"strconv"
	"syscall"

	"golang.org/x/sys/unix"

	"github.com/mscclpp-go/mscclpp/internal/supervise"
)

// Guard is the launcher's side of a supervisor: a pipe to which it writes the groups of
// its ranks. The pipe closes when the launcher dies in any way.
type Guard struct {
	id      string // of the job
	command []string
	child   *supervise.Child
	pipe    *os.File
	err     error // why there is no supervisor
	second  bool  // it is the second one: whatever ends that one would end a third
}

// Supervise starts the supervisor of a job before the job itself, so that both get
// ready at the same time. Command is as in Job.Supervisor. Run takes the guard over; a
// caller that does not get as far as Run dismisses it. The job also runs without a
// supervisor, so a failure is reported there and has no other effect.
func Supervise(command []string) *Guard {
	g := &Guard{id: newID(), command: command}
	g.start(nil)
	return g
}

func newID() string {
	var id [8]byte
	rand.Read(id[:]) // does not fail, says its documentation
	return hex.EncodeToString(id[:])
}

// start starts a supervisor of ranks, of which there may be some already. It finds them in the pipe whenever the launcher dies.
func (g *Guard) start(ranks []*process) {
	read, write, err := os.Pipe()
	if err != nil {
		g.err = err
		return
	}
	defer read.Close()
	for _, p := range ranks {
		name(write, p.PID)
	}
	null, err := os.OpenFile(os.DevNull, os.O_RDWR, 0)
	if err == nil {
		defer null.Close()
		g.child, err = forkExec(g.command[0], append(append([]string{}, g.command...), g.id), []*os.File{read, null, null}, &syscall.ProcAttr{
			Dir: "/",
			Env: append(places(), "GOMAXPROCS=1"),
			// Its own group: what a terminal sends to the launcher must not end it.
			Sys: &syscall.SysProcAttr{Setpgid: true},
		})
	}
	if err != nil {
		write.Close()
		g.err = err
		return
	}
	g.pipe = write
}

// places are the variables that say where a rank may have left something.
func places() []string {
	var out []string
	for _, name := range []string{"XDG_RUNTIME_DIR", "TMPDIR"} {
		if value, ok := os.LookupEnv(name); ok {
			out = append(out, name+"="+value)
		}
	}
	return out
}

// guard is the supervisor of a job that begins.
func (j *Job) guard() *Guard {
	g := j.Guard
	switch {
	case g == nil && len(j.Supervisor) == 0:
		return &Guard{}
	case g == nil:
		g = &Guard{id: j.ID, command: j.Supervisor}
		g.start(nil)
	}
	g.warn(j.Report)
	return g
}

// warn reports that there is no supervisor.
func (g *Guard) warn(report io.Writer) {
	if g.err != nil {
		fmt.Fprintf(report, "mscclpp-run: no supervisor: %v; if mscclpp-run is killed, processes may be left\n", g.err)
	}
}

// renew starts another supervisor if this one has ended, which nothing but a kill makes
// it do, and names the groups of the ranks to it.
func (g *Guard) renew(report io.Writer, procs []*process) {
	if g.pipe == nil {
		return
	}
	if g.child.Wait(unix.WEXITED|unix.WNOHANG).Code == supervise.Running {
		return
	}
	g.child.Reap()
	g.child.Close()
	g.pipe.Close()
	g.pipe = nil
	if g.second {
		g.err = errors.New("two have been killed")
	} else {
		g.second = true
		g.start(procs)
	}
	g.warn(report)
}

// add names the group of one more rank.
func (g *Guard) add(group int) {
	if g.pipe != nil {
		name(g.pipe, group)
	}
}

// name writes the group of a rank to a supervisor.
func name(pipe *os.File, group int) {
	_, _ = pipe.WriteString(strconv.Itoa(group) + "\n") // a dead supervisor is not the ranks' problem
}

// Dismiss ends the supervisor; calling it again does nothing. The launcher kills the
// supervisor rather than send supervise.Farewell and wait, since the supervisor may not
// even have read its first line.
func (g *Guard) Dismiss() {
	if g.pipe == nil {
		return
	}
	_, _ = g.pipe.WriteString(supervise.Farewell + "\n")
	_ = g.child.Signal(syscall.SIGKILL) // it has a group of its own
	g.child.Reap()
	g.child.Close()
	g.pipe.Close()
	g.pipe = nil
}
