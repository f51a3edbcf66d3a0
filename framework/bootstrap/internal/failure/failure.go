// Package failure keeps how a job, and the groups within it, have ended for one rank.
package failure

import (
	"context"
	"fmt"
	"runtime"
	"sync"
	"time"
	"weak"

	"github.com/mscclpp-go/mscclpp/framework"
)

// ErrClosed is what calls return after the bootstrap was closed.
var ErrClosed = fmt.Errorf("%w: the bootstrap was closed", framework.ErrClosed)

// State is the end of a job or of a group, as one rank knows it. The first cause
// counts.
type State struct {
	mu       sync.Mutex
	err      error
	done     chan struct{}
	departed map[int]*departure
	keep     func() // of a group: has the state live on
}

// departure is that of one member: from when it has left, or somebody waits for that.
type departure struct {
	gone chan struct{} // closed when it has left
	why  error
}

func (f *State) departure(rank int) *departure {
	p := f.departed[rank]
	if p == nil {
		if f.departed == nil {
			f.departed = map[int]*departure{}
		}
		p = &departure{gone: make(chan struct{})}
		f.departed[rank] = p
	}
	return p
}

// Depart records that a member has left, and the others go on. It reports whether that was news.
func (f *State) Depart(rank int, why error) bool {
	f.mu.Lock()
	p := f.departure(rank)
	first := p.why == nil
	if first {
		p.why = why
		close(p.gone)
	}
	f.mu.Unlock()
	f.noted(first)
	return first
}

// Departed returns the first rank, by number, that has left, and why; or framework.NoPeer.
func (f *State) Departed() (rank int, why error) {
	f.mu.Lock()
	defer f.mu.Unlock()
	rank = framework.NoPeer
	for r, p := range f.departed {
		if p.why != nil && (rank == framework.NoPeer || r < rank) {
			rank, why = r, p.why
		}
	}
	return rank, why
}

// Why returns why a member has left so; nil if it has not.
func (f *State) Why(rank int) error {
	f.mu.Lock()
	defer f.mu.Unlock()
	if p := f.departed[rank]; p != nil {
		return p.why
	}
	return nil
}

// Until returns a context that also ends when a member has left, a moment later: what it sent before may be on
// its way.
func (f *State) Until(ctx context.Context, rank int, moment time.Duration) (context.Context, context.CancelFunc) {
	ctx, cancel := context.WithCancelCause(ctx)
	f.mu.Lock()
	p := f.departure(rank)
	f.mu.Unlock()
	go func() {
		select {
		case <-p.gone:
		case <-ctx.Done():
			return
		}
		timer := time.NewTimer(moment)
		defer timer.Stop()
		select {
		case <-timer.C:
			cancel(p.why)
		case <-ctx.Done():
		}
	}()
	return ctx, func() { cancel(nil) }
}

// New returns the state of a job that goes on.
func New() *State { return &State{done: make(chan struct{})} }

// Done is closed when the job has ended.
func (f *State) Done() <-chan struct{} { return f.done }

// Fail records the first cause and reports whether it was the first.
func (f *State) Fail(err error) bool {
	f.mu.Lock()
	first := f.err == nil
	if first {
		f.err = err
		close(f.done)
	}
	f.mu.Unlock()
	f.noted(first)
	return first
}

// noted has the state of a group with news kept. No lock is held: Set has one of its own.
func (f *State) noted(news bool) {
	if news && f.keep != nil {
		f.keep()
	}
}

// Cause returns why the job has ended; nil if it has not.
func (f *State) Cause() error {
	f.mu.Lock()
	defer f.mu.Unlock()
	return f.err
}

// Set has the states of a rank: of the whole job, and of the groups within it. The
// end of the job is the end of every group; a group may end alone.
type Set struct {
	Job    *State
	mu     sync.Mutex
	groups map[uint64]group
}

// group is the state of a group. That of one with news is kept. All others live as long as something uses them, for a
// job may make and close groups without end, and a new state is as good as one that nothing waits for.
type group struct {
	state weak.Pointer[State]
	kept  *State
}

// NewSet returns the states of a job that goes on.
func NewSet() *Set {
	return &Set{Job: New(), groups: map[uint64]group{}}
}

// Group returns the state of one group, which the caller keeps for as long as it needs it; key 0 is the job. A group
// may have failed before this rank made it: an announcement can overtake the call to Sub.
func (f *Set) Group(key uint64) *State {
	if key == 0 {
		return f.Job
	}
	f.mu.Lock()
	defer f.mu.Unlock()
	g := f.groups[key].state.Value()
	if g == nil {
		g = New()
		if err := f.Job.Cause(); err != nil {
			g.Fail(err)
		}
		g.keep = func() { f.keep(key, g) }
		f.groups[key] = group{state: weak.Make(g)}
		runtime.AddCleanup(g, f.forget, forgotten{key, weak.Make(g)})
	}
	return g
}

// keep has the state of a group live on, for whoever makes the group later.
func (f *Set) keep(key uint64, g *State) {
	f.mu.Lock()
	defer f.mu.Unlock()
	f.groups[key] = group{weak.Make(g), g}
}

// forgotten is a state that is gone.
type forgotten struct {
	key   uint64
	state weak.Pointer[State]
}

func (f *Set) forget(x forgotten) {
	f.mu.Lock()
	defer f.mu.Unlock()
	if f.groups[x.key].state == x.state { // else there is a new one
		delete(f.groups, x.key)
	}
}

// Fail ends a group, or with key 0 the job and all groups.
func (f *Set) Fail(key uint64, err error) bool {
	if !f.Group(key).Fail(err) {
		return false
	}
	if key == 0 {
		for _, g := range f.all() {
			g.Fail(err)
		}
	}
	return true
}

func (f *Set) all() (states []*State) {
	f.mu.Lock()
	defer f.mu.Unlock()
	for _, g := range f.groups {
		if s := g.state.Value(); s != nil {
			states = append(states, s)
		}
	}
	return states
}
