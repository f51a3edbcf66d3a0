package launch

import (
	"crypto/rand"
	"encoding/hex"
	"fmt"
	"os"
	"strconv"
	"syscall"

	"github.com/mscclpp-go/mscclpp/internal/supervise"
)

// Guard is the launcher's side of a supervisor: a pipe on which it writes the groups
// of its ranks. The pipe closes when the launcher dies in any way.
type Guard struct {
	id   string // of the job
	pid  int
	pipe *os.File
	err  error // why there is no supervisor
}

// Supervise starts the supervisor of a job to come, so that it gets ready while the
// caller does: command is as in Job.Supervisor. Run takes it over; whoever does not
// come to that dismisses it. Without one the job still runs, so a failure is reported
// there and nothing else.
func Supervise(command []string) *Guard {
	g := &Guard{id: newID()}
	g.start(command)
	return g
}

func newID() string {
	var id [8]byte
	rand.Read(id[:]) // does not fail, says its documentation
	return hex.EncodeToString(id[:])
}

func (g *Guard) start(command []string) {
	read, write, err := os.Pipe()
	if err != nil {
		g.err = err
		return
	}
	defer read.Close()
	null, err := os.OpenFile(os.DevNull, os.O_RDWR, 0)
	if err == nil {
		defer null.Close()
		g.pid, err = forkExec(command[0], append(append([]string{}, command...), g.id), []*os.File{read, null, null}, &syscall.ProcAttr{
			Dir: "/",
			Env: []string{"GOMAXPROCS=1"},
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

// guard is the supervisor of a job that begins.
func (j *Job) guard() *Guard {
	g := j.Guard
	switch {
	case g == nil && len(j.Supervisor) == 0:
		return &Guard{}
	case g == nil:
		g = &Guard{id: j.ID}
		g.start(j.Supervisor)
	}
	if g.err != nil {
		fmt.Fprintf(j.Report, "mscclpp-run: no supervisor: %v; if mscclpp-run is killed, processes may be left\n", g.err)
	}
	return g
}

// add names the group of one more rank.
func (g *Guard) add(group int) {
	if g.pipe != nil {
		_, _ = g.pipe.WriteString(strconv.Itoa(group) + "\n") // a dead supervisor is not the ranks' problem
	}
}

// Dismiss ends the supervisor; a second time it does nothing. It may not even have
// read its first line, so the launcher kills it rather than wait for it to understand
// the supervise.Farewell.
func (g *Guard) Dismiss() {
	if g.pipe == nil {
		return
	}
	_, _ = g.pipe.WriteString(supervise.Farewell + "\n")
	syscall.Kill(g.pid, syscall.SIGKILL)
	supervise.Reap(g.pid)
	g.pipe.Close()
	g.pipe = nil
}
