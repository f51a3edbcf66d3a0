package remote

import (
	"context"
	"errors"
	"fmt"
	"os"
	"syscall"
	"time"

	"github.com/mscclpp-go/mscclpp/internal/outputpump"
	"github.com/mscclpp-go/mscclpp/internal/supervise"
	"github.com/mscclpp-go/mscclpp/launch"
)

// loop watches the job to its end.
func (r *run) loop(ctx context.Context) {
	e := newEnding(r)
	defer e.stop()
	done := ctx.Done()
	for r.alive > 0 && !e.gaveUp {
		select {
		case <-r.out.Took():
			e.read()
		case <-e.patience.C:
			select {
			case <-r.out.Took(): // this process is late, and not the reader
				e.read()
			default:
				r.unread = true
			}
		case x := <-e.events():
			e.hear(x)
		case s := <-r.Signals:
			e.forward(s)
		case <-done:
			done, r.endRequested = nil, true
			e.ask(byte(syscall.SIGTERM))
		case <-e.deadline.C:
			e.next()
		}
	}
	if r.known() && !r.endRequested {
		r.reportLeft()
	}
	if e.gaveUp {
		r.reportSilent()
	}
}

// ending brings a job to its end. As in package launch, the deadline moves from linger over grace to the bound for
// kills; the agents do the ending on their hosts.
type ending struct {
	*run
	deadline *time.Timer
	next     func()      // at the deadline
	patience *time.Timer // with the reader of the output
	waits    bool        // the patience runs out
	asked    bool        // the agents were asked to end their ranks
	gaveUp   bool
}

func newEnding(r *run) *ending {
	e := &ending{run: r, next: func() {}, deadline: time.NewTimer(time.Hour), patience: time.NewTimer(time.Hour)}
	e.stop()
	return e
}

func (e *ending) stop() {
	e.deadline.Stop()
	e.patience.Stop()
}

// at sets the deadline, in place of the one before.
func (e *ending) at(d time.Duration, next func()) {
	e.next = next
	e.deadline.Reset(d)
}

// ask has the agents end their ranks, the first time. They kill after grace: one that does not say so has lost its
// connection.
func (e *ending) ask(signal byte) {
	if e.asked {
		return
	}
	e.asked = true
	e.signal(signal)
	e.at(e.Spec.Grace+killBound, e.last)
}

// last gives up on hosts that say nothing, unless what they said is not read yet.
func (e *ending) last() {
	if e.gaveUp = e.unread || !e.out.Full(); !e.gaveUp {
		e.at(killBound, e.last)
	}
}

// events is the channel of the hosts' events. It is nil while the output is full, so that hosts wait; signals do not.
func (e *ending) events() <-chan event {
	if !e.out.Full() || e.unread {
		return e.run.events
	}
	if e.endRequested && !e.waits {
		e.waits = true
		e.patience.Reset(outputpump.ReaderBound)
	}
	return nil
}

// read notes that the output was read.
func (e *ending) read() {
	e.waits, e.unread = false, false
	e.patience.Stop()
}

// hear takes in what a host says.
func (e *ending) hear(x event) {
	l := e.links[x.host]
	before := l.ended
	failed, lost := e.handle(x)
	l.left = l.left || !before && l.ended && !failed && !e.asked
	switch {
	case e.asked || e.alive == 0:
	case lost:
		e.ask(byte(syscall.SIGTERM))
	case failed:
		e.at(e.Spec.Linger, func() { e.ask(byte(syscall.SIGTERM)) })
	}
}

// forward passes a signal of this process on.
func (e *ending) forward(s os.Signal) {
	number, ok := signalOf(s)
	switch {
	case !ok:
	case outputpump.Ends(s):
		e.endRequested = true
		if e.asked { // the second one: the agents kill
			e.signal(number)
			e.at(killBound, e.last)
		}
		e.ask(number)
	case s == syscall.SIGTSTP: // job control ends at the launcher: hosts go on
		supervise.StopSelf()
	default:
		e.signal(number)
	}
}

// reportSilent names the hosts that have not said that their ranks have ended.
func (r *run) reportSilent() {
	for _, l := range r.links {
		if !l.ended {
			fmt.Fprintf(r.Report, "mscclpp-run: host %s has not said within %v that its ranks have ended; they may still run\n", l.host.Name, r.Spec.Grace+killBound)
		}
	}
	if r.result.Code == 0 {
		r.result.Code = 128 + int(syscall.SIGKILL)
	}
	r.alive = 0
}

// reportLeft names hosts whose ranks ended with code 0 on their own, the first of many: others may
// have failed because those left too early. A host's report may arrive after the failure that it
// caused, so whether it was before is not asked.
func (r *run) reportLeft() {
	const most = 8
	n := 0
	for _, l := range r.links {
		if !l.left {
			continue
		}
		if n++; n <= most {
			fmt.Fprintf(r.Report, "mscclpp-run: host %s: %s ended with code 0 without being asked to\n", l.host.Name, l.ranks)
		}
	}
	if n > most {
		fmt.Fprintf(r.Report, "mscclpp-run: so did the ranks of %d more hosts\n", n-most)
	}
}

// signal sends a signal to the ranks of all hosts that have some.
func (r *run) signal(s byte) {
	for _, l := range r.links {
		if !l.ended {
			l.send(kindSignal, []byte{s})
		}
	}
}

// handle takes news in. It returns whether a rank has failed, and whether the others
// have nothing to report about it: a host is lost, or started nothing.
func (r *run) handle(e event) (failed, lost bool) {
	l := r.links[e.host]
	if l.ended {
		return false, false
	}
	over := func(result launch.Result, err error) {
		l.ended = true
		r.alive--
		l.hangUp()
		if r.result.Code == 0 {
			r.result = result
			if err != nil {
				r.err = &StartError{Code: result.Code, Err: fmt.Errorf("host %s: %w", l.host.Name, err)}
			}
		}
	}
	if e.err != nil {
		fresh := r.result.Code == 0
		over(launch.Result{Code: 1, Rank: -1}, nil)
		if fresh || !r.known() {
			fmt.Fprintf(r.Report, "mscclpp-run: host %s: %v\n", l.host.Name, e.err)
		}
		return true, true
	}
	switch e.frame.kind {
	case kindFailed:
		result, err := decode[launch.Result](e.frame)
		if err != nil {
			over(launch.Result{Code: 1, Rank: -1}, err)
			return true, true
		}
		if r.result.Code == 0 {
			r.result = result
		}
		return true, false
	case kindEnd:
		x, err := decode[end](e.frame)
		if err == nil && x.Error != "" {
			err = errors.New(x.Error)
		}
		if err != nil {
			x.Code = max(1, x.Code)
		}
		over(x.Result, err)
		return x.Code != 0, err != nil
	}
	r.pass(e)
	return false, false
}

// known reports whether the first failure was that of a rank.
func (r *run) known() bool { return r.result.Rank >= 0 }
