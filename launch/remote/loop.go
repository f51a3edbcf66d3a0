package remote

import (
	"context"
	"errors"
	"fmt"
	"syscall"
	"time"

	"github.com/mscclpp-go/mscclpp/internal/outputpump"
	"github.com/mscclpp-go/mscclpp/internal/supervise"
	"github.com/mscclpp-go/mscclpp/launch"
)

// loop watches the job to its end. As in package launch, the deadline moves from linger
// over grace to the bound for kills; the agents do the ending on their hosts.
func (r *run) loop(ctx context.Context) {
	next := func() {}
	deadline := time.NewTimer(time.Hour)
	deadline.Stop()
	defer deadline.Stop()
	at := func(d time.Duration, f func()) {
		next = f
		deadline.Reset(d)
	}
	asked, gaveUp := false, false
	var last func()
	last = func() {
		if gaveUp = r.unread || !r.out.Full(); !gaveUp {
			at(killBound, last) // the output before the ends is not read yet
		}
	}
	ask := func(s byte) {
		if asked {
			return
		}
		asked = true
		r.signal(s)
		// The agents kill after grace. One that does not say so has lost its connection.
		at(r.Spec.Grace+killBound, last)
	}
	terminate := func() { ask(byte(syscall.SIGTERM)) }
	done := ctx.Done()
	patience := time.NewTimer(time.Hour)
	patience.Stop()
	defer patience.Stop()
	waits := false // the patience with a reader runs out
	for r.alive > 0 && !gaveUp {
		events := r.events
		if r.out.Full() && !r.unread {
			events = nil // hosts wait, signals do not
			if r.endRequested && !waits {
				waits = true
				patience.Reset(outputpump.ReaderBound)
			}
		}
		select {
		case <-r.out.Took():
			waits, r.unread = false, false
			patience.Stop()
		case <-patience.C:
			r.unread = true
		case e := <-events:
			l := r.links[e.host]
			before := l.ended
			failed, lost := r.handle(e)
			l.left = l.left || !before && l.ended && !failed && !asked
			switch {
			case asked || r.alive == 0:
			case lost:
				terminate()
			case failed:
				at(r.Spec.Linger, terminate)
			}
		case s := <-r.Signals:
			number, ok := signalOf(s)
			if !ok {
				continue
			}
			switch {
			case outputpump.Ends(s):
				r.endRequested = true
				if asked { // the second one: the agents kill
					r.signal(number)
					at(killBound, last)
				}
				ask(number)
			case s == syscall.SIGTSTP: // job control ends at the launcher: hosts go on
				supervise.StopSelf()
			default:
				r.signal(number)
			}
		case <-done:
			done, r.endRequested = nil, true
			terminate()
		case <-deadline.C:
			next()
		}
	}
	if r.known() && !r.endRequested {
		r.reportLeft()
	}
	if !gaveUp {
		return
	}
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
