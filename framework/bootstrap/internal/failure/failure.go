// Package failure keeps how a job, and the groups within it, have ended for one rank.
package failure

import (
	"context"
	"fmt"
	"sync"
	"time"

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
	defer f.mu.Unlock()
	p := f.departure(rank)
	if p.why != nil {
		return false
	}
	p.why = why
	close(p.gone)
	return true
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
	defer f.mu.Unlock()
	if f.err != nil {
		return false
	}
	f.err = err
	close(f.done)
	return true
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
	groups map[uint64]*State
}

// NewSet returns the states of a job that goes on.
func NewSet() *Set {
	return &Set{Job: New(), groups: map[uint64]*State{}}
}

// Group returns the state of one group; key 0 is the job. A group may have failed
// before this rank made it: an announcement can overtake the call to Sub.
func (f *Set) Group(key uint64) *State {
	if key == 0 {
		return f.Job
	}
	f.mu.Lock()
	defer f.mu.Unlock()
	g := f.groups[key]
	if g == nil {
		g = New()
		f.groups[key] = g
		if err := f.Job.Cause(); err != nil {
			g.Fail(err)
		}
	}
	return g
}

// Fail ends a group, or with key 0 the job and all groups.
func (f *Set) Fail(key uint64, err error) bool {
	if !f.Group(key).Fail(err) {
		return false
	}
	if key == 0 {
		f.mu.Lock()
		defer f.mu.Unlock()
		for _, g := range f.groups {
			g.Fail(err)
		}
	}
	return true
}
