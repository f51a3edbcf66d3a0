package remote

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"os"
	"strings"
	"syscall"
	"time"

	"github.com/mscclpp-go/mscclpp/framework"
	"github.com/mscclpp-go/mscclpp/internal/outputpump"
	"github.com/mscclpp-go/mscclpp/internal/supervise"
	"github.com/mscclpp-go/mscclpp/launch"
)

// Job is a program to be started on several hosts.
type Job struct {
	Hosts []Host
	Total int    // ranks of all hosts, or 0; see Spread
	Each  int    // ranks of every host, or 0
	Of    string // instead of both: gpu, cpu or auto, one rank for each there
	Count Count  // the devices that gpu and auto mean

	SSH     []string // the program and what stands before the host
	Agent   string   // path of mscclpp-run on the hosts
	Version string   // of this one
	Spec    Spec     // for all hosts; Place has MasterPort at most
	Name    string   // of the job

	Timeout time.Duration // for hosts to answer

	Stdin  *os.File // for rank 0; nil = none
	Stdout io.Writer
	Stderr io.Writer
	Report io.Writer

	Signals <-chan os.Signal
}

// Run starts a job and returns when it has ended everywhere. The error says why the job
// could not be started.
func Run(ctx context.Context, j Job) (launch.Result, error) {
	r := &run{Job: j, events: make(chan event, 64), done: make(chan struct{}), result: launch.Result{Rank: -1}}
	defer close(r.done)
	r.out = outputpump.New()
	r.Stdout, r.Stderr, r.Report = r.out.To(j.Stdout), r.out.To(j.Stderr), r.out.To(j.Report)
	for i, h := range j.Hosts {
		command := append(append([]string{}, j.SSH...), h.Name, quote(j.Agent)+" "+AgentFlag)
		r.links = append(r.links, dial(h, i, command, j.Stderr, r.events, r.done))
	}
	defer r.hangUp()
	err := r.gather(ctx)
	if err == nil && (j.Of == "gpu" || j.Of == "auto") {
		err = r.count(ctx)
	}
	if err == nil {
		err = r.start(ctx)
	}
	if err != nil {
		r.endRequested = true // a slow reader does not delay an error
		r.flush(ctx, j.Report)
		return launch.Result{Code: 1, Rank: -1}, err
	}
	r.loop(ctx)
	r.flush(ctx, j.Report)
	return r.result, r.err
}

// AgentFlag makes mscclpp-run an agent.
const AgentFlag = "--serve-agent"

type run struct {
	Job
	links        []*link
	events       chan event
	done         chan struct{}
	taken        chan struct{} // the last piece of standard input was read
	first        int           // host of rank 0
	alive        int
	result       launch.Result
	err          error
	out          *outputpump.Pump
	endRequested bool // by a signal, or by an error
	unread       bool // and the reader of the output has taken nothing for outputpump.ReaderBound
	missed       bool // output that came meanwhile
}

// settle is how long other hosts may take to answer once one has failed, so that the
// message names all that fail.
var settle = 2 * time.Second

// gather waits until all hosts have answered.
func (r *run) gather(ctx context.Context) error {
	deadline := time.NewTimer(r.Timeout)
	defer deadline.Stop()
	bad, answered := make([]error, len(r.links)), make([]bool, len(r.links))
	late, settling := false, false
	for left := len(r.links); left > 0 && !late; {
		select {
		case e := <-r.events:
			l := r.links[e.host]
			if bad[e.host] != nil {
				continue // the end of one that failed
			}
			if e.err == nil && e.frame.kind == kindHello && !l.greeted {
				l.hello, e.err = decode[Hello](e.frame)
				l.greeted = true
				l.stderr.answered()
			} else if e.err == nil {
				e.err = fmt.Errorf("%w: its first message is %q, expected %q", framework.ErrPeer, e.frame.kind, kindHello)
			}
			if !answered[e.host] {
				answered[e.host] = true
				left--
			}
			if bad[e.host] = e.err; e.err != nil && !settling {
				settling = true
				deadline.Reset(min(settle, r.Timeout))
			}
		case <-deadline.C:
			late = true
		case s := <-r.Signals:
			if r.ends(s) {
				return fmt.Errorf("%w: ended by %v before all hosts had answered", framework.ErrClosed, s)
			}
		case <-ctx.Done():
			return context.Cause(ctx)
		}
	}
	var all []error
	var silent []string
	for i, l := range r.links {
		switch {
		case bad[i] != nil:
			all = append(all, fmt.Errorf("host %s: %w", l.host.Name, bad[i]))
		case !l.greeted:
			silent = append(silent, l.host.Name)
		case l.hello.Version != r.Version:
			fmt.Fprintf(r.Report, "mscclpp-run: warning: host %s has release %s, this one is %s\n", l.host.Name, l.hello.Version, r.Version)
		}
	}
	if len(silent) > 0 {
		all = append(all, fmt.Errorf("%w: %d of %d hosts have not answered: %s: see whether `ssh HOST` works, take them off the list, or raise bootstrap.timeout", framework.ErrUnavailable, len(silent), len(r.links), strings.Join(silent, ", ")))
	}
	return errors.Join(all...)
}

// ends takes a signal before there are ranks, and reports whether it asks the job to end.
func (r *run) ends(s os.Signal) bool {
	if s == syscall.SIGTSTP {
		supervise.StopSelf()
	}
	return outputpump.Ends(s)
}

// start starts the ranks: those of the first host, whose rendezvous the others need.
func (r *run) start(ctx context.Context) error {
	counts, err := r.counts()
	if err != nil {
		return err
	}
	world, nodes := 0, 0
	for _, n := range counts {
		world += n
		if n > 0 {
			nodes++
		}
	}
	spec := r.Spec
	p := launch.Place{World: world, Nodes: nodes, Job: r.Name, MasterPort: spec.Place.MasterPort}
	spec.Listen = true
	for i, l := range r.links {
		if counts[i] == 0 {
			l.ended = true
			l.hangUp()
			continue
		}
		p.Local = counts[i]
		spec.Place, spec.Stdin = p, r.Stdin != nil && p.First == 0
		body, err := json.Marshal(spec)
		if err != nil {
			return err
		}
		if len(body) > maxFrame {
			return invalid("arguments and environment of %d bytes: expected at most %d", len(body), maxFrame)
		}
		l.ranks = fmt.Sprintf("rank %d", p.First)
		if p.Local > 1 {
			l.ranks = fmt.Sprintf("ranks %d to %d", p.First, p.First+p.Local-1)
		}
		l.send(kindSpec, body)
		r.alive++
		if spec.Listen {
			m, err := r.meet(ctx, i)
			if err != nil {
				return err
			}
			spec.Listen, spec.UniqueID = false, m.UniqueID
			p.MasterAddr, p.MasterPort = m.MasterAddr, m.MasterPort
		}
		p.First, p.Node = p.First+p.Local, p.Node+1
	}
	if r.Stdin != nil {
		r.taken = make(chan struct{}, 1)
		go r.pump(r.links[r.first])
	}
	return nil
}

// meet waits for the rendezvous.
func (r *run) meet(ctx context.Context, host int) (rendezvous, error) {
	r.first = host
	name := r.links[host].host.Name
	deadline := time.NewTimer(r.Timeout)
	defer deadline.Stop()
	for {
		select {
		case e := <-r.events:
			switch {
			case e.host != host && e.err == nil:
				continue
			case e.err != nil:
				return rendezvous{}, fmt.Errorf("host %s: %w", r.links[e.host].host.Name, e.err)
			case e.frame.kind == kindRendezvous:
				return decode[rendezvous](e.frame)
			case e.frame.kind == kindEnd:
				x, err := decode[end](e.frame)
				if err == nil {
					err = errors.New(x.Error)
				}
				return rendezvous{}, &StartError{Code: x.Code, Err: fmt.Errorf("host %s: %w", name, err)}
			}
			r.pass(e)
		case <-deadline.C:
			return rendezvous{}, fmt.Errorf("%w: host %s has not said within %v where the ranks meet", framework.ErrUnavailable, name, r.Timeout)
		case s := <-r.Signals:
			if r.ends(s) {
				return rendezvous{}, fmt.Errorf("%w: ended by %v while the job started", framework.ErrClosed, s)
			}
		case <-ctx.Done():
			return rendezvous{}, context.Cause(ctx)
		}
	}
}

// StartError is a host's reason for not starting its ranks, with the exit code that a
// shell would have.
type StartError struct {
	Code int
	Err  error
}

func (e *StartError) Error() string { return e.Err.Error() }

// Unwrap returns the reason.
func (e *StartError) Unwrap() error { return e.Err }

// pass prints what a host says.
func (r *run) pass(e event) {
	switch e.frame.kind {
	case kindOut:
		r.print(r.Stdout, e.frame.body)
	case kindErr:
		r.print(r.Stderr, e.frame.body)
	case kindReport:
		text, _ := strings.CutPrefix(string(e.frame.body), "mscclpp-run: ")
		fmt.Fprintf(r.Report, "mscclpp-run: host %s: %s", r.links[e.host].host.Name, text)
	case kindTaken:
		select {
		case r.taken <- struct{}{}:
		default:
		}
	}
}

// print passes output on, unless nobody takes it and the job has to end.
func (r *run) print(to io.Writer, output []byte) {
	if r.unread && r.out.Full() {
		r.missed = true
		return
	}
	_, _ = to.Write(output)
}

// flush waits until the output was taken, while nobody wants the job to end. As in
// package launch ranks do not end because output is lost, but the job has not succeeded.
func (r *run) flush(ctx context.Context, report io.Writer) {
	over, enough := outputpump.Patience(ctx, r.endRequested, r.Signals, r.out.Took())
	defer enough()
	lost := r.out.Flush(over)
	if lost == nil && r.missed {
		lost = outputpump.ErrNotTaken
	}
	if lost == nil {
		return
	}
	outputpump.WriteLast(report, "mscclpp-run: output of ranks was lost: %v\n", lost)
	if r.result.Code == 0 {
		r.result.Code = 1
	}
}

// pump sends the launcher's standard input to rank 0, a piece at a time: a rank that
// does not read must not keep signals from coming through. It may outlive the job,
// blocked in the read.
func (r *run) pump(to *link) {
	buffer := make([]byte, 32<<10)
	for {
		n, err := r.Stdin.Read(buffer)
		piece := append([]byte{}, buffer[:n]...)
		if n == 0 && err == nil {
			continue
		}
		if !r.post(to, piece) || n > 0 && err != nil && !r.post(to, nil) || err != nil {
			return
		}
	}
}

func (r *run) post(to *link, piece []byte) bool {
	to.send(kindIn, piece)
	if len(piece) == 0 {
		return true
	}
	select {
	case <-r.taken:
		return true
	case <-r.done:
		return false
	}
}

// hangUp ends all agents and waits for ssh, within bounds.
func (r *run) hangUp() {
	for _, l := range r.links {
		l.hangUp()
	}
	patience := r.Spec.Grace + killBound
	if r.alive == 0 {
		patience = lastBound // nothing was started, or all has ended
	}
	timer := time.NewTimer(patience)
	defer timer.Stop()
	for _, l := range r.links {
		for waiting := true; waiting; {
			select {
			case <-l.exited:
				waiting = false
			case <-r.events: // room for hosts that still have something to say
			case <-timer.C:
				timer.Reset(0)
				l.kill()
				select {
				case <-l.exited:
				case <-time.After(lastBound):
				}
				waiting = false
			}
		}
	}
}

const (
	killBound = 6 * time.Second // for agents whose ranks were killed
	lastBound = time.Second     // for those that have nothing left to do
)

// quote makes a word of a shell's command line.
func quote(word string) string { return "'" + strings.ReplaceAll(word, "'", `'\''`) + "'" }

// signalOf returns the number of a signal.
func signalOf(s os.Signal) (byte, bool) {
	n, ok := s.(syscall.Signal)
	return byte(n), ok
}
