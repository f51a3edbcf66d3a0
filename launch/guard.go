package launch

import (
	"fmt"
	"os"
	"strconv"
	"syscall"

	"github.com/mscclpp-go/mscclpp/internal/supervise"
)

// guard is the launcher's side of the supervisor: a pipe on which it writes the
// groups of its ranks. The pipe closes when the launcher dies in any way.
type guard struct {
	pid  int
	pipe *os.File
}

// startGuard starts the supervisor. Without one the job still runs, so a failure is
// reported and nothing else.
func startGuard(j *Job) *guard {
	if len(j.Supervisor) == 0 {
		return &guard{}
	}
	read, write, err := os.Pipe()
	if err == nil {
		defer read.Close()
		var null *os.File
		if null, err = os.OpenFile(os.DevNull, os.O_RDWR, 0); err == nil {
			defer null.Close()
			var pid int
			pid, err = forkExec(j.Supervisor[0], append(append([]string{}, j.Supervisor...), j.ID), []*os.File{read, null, null}, &syscall.ProcAttr{
				Dir: "/",
				Env: []string{"GOMAXPROCS=1"},
				// Its own group: what a terminal sends to the launcher must not end it.
				Sys: &syscall.SysProcAttr{Setpgid: true},
			})
			if err == nil {
				return &guard{pid: pid, pipe: write}
			}
		}
		write.Close()
	}
	fmt.Fprintf(j.Report, "mscclpp-run: no supervisor: %v; if mscclpp-run is killed, processes may be left\n", err)
	return &guard{}
}

// add names the group of one more rank.
func (g *guard) add(group int) {
	if g.pipe != nil {
		_, _ = g.pipe.WriteString(strconv.Itoa(group) + "\n") // a dead supervisor is not the ranks' problem
	}
}

// dismiss ends the supervisor. It may not even have read its first line, so the
// launcher kills it rather than wait for it to understand the supervise.Farewell.
func (g *guard) dismiss() {
	if g.pipe == nil {
		return
	}
	_, _ = g.pipe.WriteString(supervise.Farewell + "\n")
	syscall.Kill(g.pid, syscall.SIGKILL)
	supervise.Reap(g.pid)
	g.pipe.Close()
}
