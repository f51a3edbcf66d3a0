package launch

import (
	"context"
	"fmt"
	"os"
	"slices"
	"syscall"
	"time"

	"golang.org/x/sys/unix"

	"github.com/mscclpp-go/mscclpp/internal/outputpump"
	"github.com/mscclpp-go/mscclpp/internal/supervise"
)

// watch is the state of a running job. Its loop is the only goroutine that decides.
type watch struct {
	job          *Job
	procs        []*process
	ends         chan os.Signal // SIGCHLD: some child has ended
	guard        *Guard
	threadDone   chan struct{} // releases the thread that started the ranks
	result       Result
	alive        int
	left         []int // ranks that ended with code 0, before any failure
	endRequested bool  // by a signal, or by the context
	asked        bool  // ranks were asked to end: failures from now on are consequences
}

// exit is the end of one rank.
type exit struct {
	p *process
	supervise.Change
}

// look finds out which ranks have ended, without reaping them. The zombie keeps the number of its
// group from being used again, so the group can be killed later without hitting another one. It
// reports ranks that are stopped, for which the others wait in silence.
func (w *watch) look() []exit {
	var out []exit
	for _, p := range w.procs {
		if p.ended {
			continue
		}
		change := p.Wait(unix.WEXITED | unix.WSTOPPED | unix.WNOHANG)
		switch change.Code {
		case supervise.Running:
			p.stopped = false
			continue
		case supervise.Stopped:
			if !p.stopped {
				fmt.Fprintf(w.job.Report, "mscclpp-run: rank %d (pid %d) is stopped by signal %d (%s): the others wait for it until it gets SIGCONT\n",
					w.job.Place.First+p.local, p.PID, change.Status, unix.SignalName(syscall.Signal(change.Status)))
			}
			p.stopped = true
			continue
		}
		p.ended = true
		w.alive--
		if w.job.Place.First+p.local == 0 {
			w.job.hangUp()
		}
		out = append(out, exit{p, change})
	}
	return out
}

// causesFirst sorts the ends that one look has found, whose order is not known. Where a rank was killed or has crashed, others
// exit, or abort, because they have lost it; and because one left too early with code 0.
func causesFirst(ends []exit) []exit {
	class := func(e exit) int {
		switch e.Code {
		case supervise.Killed, supervise.Dumped:
			switch syscall.Signal(e.Status) {
			case syscall.SIGKILL, syscall.SIGSEGV, syscall.SIGBUS, syscall.SIGILL, syscall.SIGFPE, syscall.SIGSYS:
				return 0
			}
		case supervise.Exited:
			if e.Status == 0 {
				return 1
			}
		}
		return 2
	}
	slices.SortStableFunc(ends, func(a, b exit) int { return class(a) - class(b) })
	return ends
}

// loop waits for the end of all ranks. The deadline moves from linger over grace to
// the bound for kills; each step is a harder way to end the rest.
func (w *watch) loop(ctx context.Context) {
	next := func() {} // the action at the deadline
	deadline := time.NewTimer(time.Hour)
	deadline.Stop()
	defer deadline.Stop()
	gaveUp := false
	at := func(d time.Duration, f func()) {
		next = f
		deadline.Reset(d)
	}
	kill := func() {
		w.asked = true
		w.stop(syscall.SIGKILL)
		at(killBound, func() { gaveUp = true })
	}
	ask := func(s syscall.Signal) {
		w.asked = true
		w.stop(s)
		at(w.job.Grace, kill)
	}
	done := ctx.Done()
	w.guard.renew(w.job.Report, w.procs) // it may have ended before its end was noticed
	for w.alive > 0 && !gaveUp {
		select {
		case <-w.ends:
			w.guard.renew(w.job.Report, w.procs)
			for _, e := range causesFirst(w.look()) {
				if w.failed(e) && w.alive > 0 {
					at(w.job.Linger, func() { ask(syscall.SIGTERM) })
				}
			}
		case s := <-w.job.Signals:
			w.forward(s, ask, kill)
		case <-done:
			done, w.endRequested = nil, true
			ask(syscall.SIGTERM)
		case <-deadline.C:
			next()
		}
	}
	if gaveUp {
		for _, p := range w.procs {
			if !p.ended {
				fmt.Fprintf(w.job.Report, "mscclpp-run: rank %d (pid %d) did not end within %v of SIGKILL\n", w.job.Place.First+p.local, p.PID, killBound)
			}
		}
		if w.result.Code == 0 {
			w.result.Code = 128 + int(syscall.SIGKILL)
		}
	}
}

// failed records the first failure and reports it in one line. It returns whether
// e was it. Ranks that had left before with code 0 are named: one that left too early
// is what the others fail of.
func (w *watch) failed(e exit) bool {
	if e.Code == supervise.Exited && e.Status == 0 {
		w.left = append(w.left, w.job.Place.First+e.p.local)
		return false
	}
	if w.result.Rank >= 0 {
		return false
	}
	rank := w.job.Place.First + e.p.local
	w.result.Rank, w.result.Code = rank, e.Status
	what := fmt.Sprintf("exited with code %d", e.Status)
	switch e.Code {
	case supervise.Exited:
	case supervise.Taken:
		w.result.Code, what = 1, supervise.TakenText
	default:
		w.result.Code = 128 + e.Status
		w.result.Signal = unix.SignalName(syscall.Signal(e.Status))
		what = fmt.Sprintf("was killed by signal %d (%s)", e.Status, w.result.Signal)
		if e.Code == supervise.Dumped {
			what += " and dumped core"
		}
	}
	rest := ""
	if !w.asked && len(w.left) > 0 {
		rest = fmt.Sprintf(" after %s had ended with code 0", numbered(w.left))
	}
	if !w.asked && w.alive > 0 {
		rest += fmt.Sprintf("; ending the other %d", w.alive)
	}
	fmt.Fprintf(w.job.Report, "mscclpp-run: rank %d (pid %d) %s%s\n", rank, e.p.PID, what, rest)
	if w.job.Failed != nil {
		w.job.Failed(w.result)
	}
	return !w.asked
}

// numbered names ranks, the first of many.
func numbered(ranks []int) string {
	const most = 8
	text := fmt.Sprintf("rank %d", ranks[0])
	for _, r := range ranks[1:min(len(ranks), most)] {
		text += fmt.Sprintf(", %d", r)
	}
	if len(ranks) > most {
		text += fmt.Sprintf(" and %d more", len(ranks)-most)
	}
	return text
}

// forward passes a signal on. Those that ask to end start the clock; a second one
// of them kills.
func (w *watch) forward(s os.Signal, ask func(syscall.Signal), kill func()) {
	sig, ok := s.(syscall.Signal)
	if !ok {
		return
	}
	switch {
	case outputpump.Ends(s):
		w.endRequested = true
		if w.asked {
			kill()
		} else {
			ask(sig)
		}
	case sig == syscall.SIGTSTP:
		// The terminal stops the launcher's group only; ranks have groups of their own.
		w.stop(syscall.SIGSTOP)
		supervise.StopSelf()
		w.stop(syscall.SIGCONT)
	default:
		w.stop(sig)
	}
}

// stop sends a signal to the groups of all ranks that live.
func (w *watch) stop(s syscall.Signal) {
	for _, p := range w.procs {
		if !p.ended {
			_ = p.Signal(s)
		}
	}
}

// clean ends what the ranks left behind, reaps everything and dismisses the
// supervisor.
func (w *watch) clean() {
	for _, p := range w.procs {
		_ = p.Signal(syscall.SIGKILL)
	}
	for _, p := range w.procs {
		if p.ended {
			p.Reap()
		}
		p.Close()
	}
	if w.job.Listener != nil {
		_ = w.job.Listener.Close()
	}
	close(w.threadDone)
	// The supervisor is a child too. Once it is gone, one system call tells that
	// there are no others.
	w.guard.Dismiss()
	if w.job.OwnOrphans {
		supervise.KillChildren(killBound)
	}
}

// killBound is how long the kernel may take to end killed processes. One that
// hangs in a driver can take for ever; then the launcher says so and leaves.
const killBound = 5 * time.Second
