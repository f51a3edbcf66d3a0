// Package failure keeps how a job, and the groups within it, have ended for one rank.
package failure

import (
	"fmt"
	"sync"

	"github.com/mscclpp-go/mscclpp/framework"
)

// ErrClosed is what calls return after the bootstrap was closed.
var ErrClosed = fmt.Errorf("%w: the bootstrap was closed", framework.ErrClosed)

// State is the end of a job or of a group, as one rank knows it. The first cause
// counts.
type State struct {
	mu   sync.Mutex
	err  error
	done chan struct{}
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
