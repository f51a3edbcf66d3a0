package comm

import (
	"errors"
	"io"
	"slices"
	"sync"
)

// dependents is what was made of a communicator and needs it.
type dependents struct {
	mu     sync.Mutex
	users  []*func() error
	splits []*Communicator
}

// OnClose adds f to what Close calls first, for packages that build on the communicator:
// their calls in progress end before it takes away what they use. The function that OnClose
// returns removes f, and does not wait for it.
func (d *dependents) OnClose(f func() error) (remove func()) {
	d.mu.Lock()
	defer d.mu.Unlock()
	d.users = append(d.users, &f)
	return func() {
		d.mu.Lock()
		defer d.mu.Unlock()
		d.users = slices.DeleteFunc(d.users, func(x *func() error) bool { return x == &f })
	}
}

// closeUsers calls what OnClose has added.
func (d *dependents) closeUsers() error {
	d.mu.Lock()
	users := slices.Clone(d.users)
	d.mu.Unlock()
	var all []error
	for _, f := range users {
		all = append(all, (*f)())
	}
	return errors.Join(all...)
}

// addSplit adds a communicator that was split off, until it is closed.
func (d *dependents) addSplit(sub *Communicator) (remove func()) {
	d.mu.Lock()
	defer d.mu.Unlock()
	d.splits = append(d.splits, sub)
	return func() {
		d.mu.Lock()
		defer d.mu.Unlock()
		d.splits = slices.DeleteFunc(d.splits, func(x *Communicator) bool { return x == sub })
	}
}

// keep adds a communicator that was made of this one to its dumps and its dependents.
func (c *Communicator) keep(sub *Communicator) {
	undump, remove := c.OnDump(func(w io.Writer) { _ = sub.Dump(w) }), c.addSplit(sub)
	sub.unlist = func() { undump(); remove() }
}

// CloseSplits closes the communicators that Split and OnDevice have made and that are still open,
// and those that were made of them: what all of them use, as the device and the transports, is about
// to go. It is for the end of a job, after Close.
func (c *Communicator) CloseSplits() error {
	c.dependents.mu.Lock()
	splits := slices.Clone(c.splits)
	c.dependents.mu.Unlock()
	var all []error
	for _, sub := range splits {
		all = append(all, sub.Close(), sub.CloseSplits())
	}
	return errors.Join(all...)
}
