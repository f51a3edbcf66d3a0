package comm

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"sync/atomic"
	"time"

	"github.com/mscclpp-go/mscclpp/framework"
	"github.com/mscclpp-go/mscclpp/framework/bootstrap"
	"github.com/mscclpp-go/mscclpp/framework/comm/internal/counters"
	"github.com/mscclpp-go/mscclpp/framework/comm/internal/life"
	"github.com/mscclpp-go/mscclpp/framework/kernel"
)

// health is whether a communicator can be used, and how it learns that it cannot.
type health struct {
	name       string
	boot       framework.Bootstrap
	transports []*Transport
	life       *life.Life
	counters   *counters.Counters
	departed   func(ctx context.Context, rank int) bool               // see Departed
	waits      atomic.Pointer[func(kernel, channel uint32) string]    // the argument of NameWaits
	more       atomic.Pointer[[]*func(kernel, channel uint32) string] // those of AddWaits, the last first
}

// Err returns why the communicator cannot be used any more, or nil. After a failure the
// error wraps framework.ErrPeer, ErrPlugin or the cause given to Abort, and names the
// party that failed; after Close it is framework.ErrClosed.
func (c *health) Err() error { return c.life.Err() }

// Done returns a channel that is closed when the communicator fails. Close does not
// close it.
func (c *health) Done() <-chan struct{} { return c.life.Done() }

// causePatience is how long the cause may take with which a rank has ended the job: it comes by another way than the rank's last data, and
// a network can notice that a rank is gone before the job has found out which one has died.
const causePatience = time.Second

// Cause is Err for a rank that has noticed, by other means, that something is wrong: it waits a moment for the cause, or until ctx ends. nil:
// none has come.
func (c *health) Cause(ctx context.Context) error {
	patience := time.NewTimer(causePatience)
	defer patience.Stop()
	select {
	case <-c.Done():
	case <-ctx.Done():
	case <-patience.C:
	}
	return c.Err()
}

// Check is Err for the data path: three loads as long as nothing has failed. It also
// reports a wait that exceeded Options.Deadline. It must not run concurrently with
// Close.
func (c *health) Check() error {
	if c.life.Over() {
		return c.Err()
	}
	w := c.counters.Words
	if atomic.LoadUint32(&w.Abort) == 0 && atomic.LoadUint32(&w.Reported) != reportComplete {
		return nil
	}
	if c.Err() == nil {
		c.overdue(w)
	}
	return c.Err()
}

// Overdue is Check for callers that poll: it may run concurrently with Close.
func (c *health) Overdue() error {
	var w kernel.WaitControl
	late := false
	c.life.Running(func() { // Close takes the words away
		if late = atomic.LoadUint32(&c.counters.Words.Reported) == reportComplete; late {
			w = *c.counters.Words
		}
	})
	if late {
		c.overdue(&w)
	}
	return c.Err()
}

// overdue ends the communicator with a wait that a kernel has left.
func (c *health) overdue(w *kernel.WaitControl) {
	peer, whom := int(w.Peer), fmt.Sprintf("rank %d", w.Peer)
	if peer >= c.boot.Size() || peer == c.boot.Rank() {
		peer, whom = framework.NoPeer, "several ranks"
	}
	limit := time.Duration(w.Deadline)
	c.Abort(&framework.Error{Op: "wait", Peer: peer, Err: fmt.Errorf(
		"%w: no progress within %v: %s: expected count %d, seen %d; rank %d has waited for %s since %s or before",
		framework.ErrPeer, limit, c.waitOf(w.Kernel, w.Channel), w.Expected, w.Seen, c.boot.Rank(), whom, time.Now().Add(-limit).Format(time.TimeOnly))})
}

// NameWaits lets Check say what a kernel was waiting for. Check calls name, from any
// goroutine, with the numbers by which kernels mark their waits (mscclpp::WaitSite);
// name returns "" for numbers that it does not know. It replaces the function of an
// earlier call.
func (c *health) NameWaits(name func(kernel, channel uint32) string) {
	c.waits.Store(&name)
}

// AddWaits is NameWaits for kernels beside those: name is asked first, and what it does not know is left to the
// functions of earlier calls. remove takes it out again.
func (c *health) AddWaits(name func(kernel, channel uint32) string) (remove func()) {
	entry := &name
	type names = []*func(kernel, channel uint32) string
	change := func(with func(list names) names) {
		for {
			before := c.more.Load()
			var list names
			if before != nil {
				list = slices.Clone(*before)
			}
			list = with(list)
			if c.more.CompareAndSwap(before, &list) {
				return
			}
		}
	}
	change(func(list names) names { return append(names{entry}, list...) })
	return func() {
		change(func(list names) names {
			return slices.DeleteFunc(list, func(x *func(kernel, channel uint32) string) bool { return x == entry })
		})
	}
}

func (c *health) waitOf(kernel, channel uint32) string {
	if more := c.more.Load(); more != nil {
		for _, name := range *more {
			if text := (*name)(kernel, channel); text != "" {
				return text
			}
		}
	}
	if name := c.waits.Load(); name != nil {
		if text := (*name)(kernel, channel); text != "" {
			return text
		}
	}
	return fmt.Sprintf("channel %d", channel)
}

// Departed waits until rank leaves the job in an orderly way, and returns true; or
// until ctx ends, and returns false. The death of a rank need not be asked for: it ends
// the communicator.
func (c *health) Departed(ctx context.Context, rank int) bool {
	return rank != c.boot.Rank() && c.Err() == nil && c.departed(ctx, rank)
}

// reportComplete is the value of WaitControl.Reported once the report was written.
const reportComplete = 1

// Abort ends the communicator: all kernel waits of this rank return, and the other
// ranks learn the cause and end as well. Only the first cause counts.
func (c *health) Abort(cause error) {
	if cause == nil {
		cause = errors.New("aborted by the application")
	}
	if !c.life.Fail(fmt.Errorf("comm %s: %w", c.name, cause)) {
		return
	}
	if w, ok := c.boot.(bootstrap.Watcher); ok {
		w.Announce(cause)
	}
}

// Leave ends the communicator for this rank alone: its kernel waits return, and calls fail with cause. The other ranks
// go on until a call of theirs needs this one; that fails, and says why. Only the first cause counts.
func (c *health) Leave(cause error) {
	p, ok := c.boot.(bootstrap.Leaver)
	if !ok {
		c.Abort(cause)
		return
	}
	if c.life.Fail(fmt.Errorf("comm %s: %w", c.name, cause)) {
		p.Depart(cause)
	}
}

// Left returns a rank that has left by Leave while this one goes on, and why; framework.NoPeer: none has.
func (c *health) Left() (rank int, why error) {
	if p, ok := c.boot.(bootstrap.Leaver); ok {
		return p.Departed()
	}
	return framework.NoPeer, nil
}

// watch ends the communicator when a rank or a plugin is gone.
func (c *health) watch() {
	if w, ok := c.boot.(bootstrap.Watcher); ok {
		c.life.OnClosed(w.Failed(), func() { c.life.Fail(fmt.Errorf("comm %s: %w", c.name, w.Err())) })
	}
	for _, t := range c.transports {
		if t.Gone != nil {
			c.life.OnClosed(t.Gone, func() { c.pluginEnded(t) })
		}
	}
}

// pluginEnded ends the job: links of the plugin are dead on this side only, so the
// other ranks have to learn of it.
func (c *health) pluginEnded(t *Transport) {
	cause := framework.ErrPlugin
	if t.Cause != nil {
		if err := t.Cause(); err != nil {
			cause = err
		}
	}
	c.Abort(&framework.Error{Op: fmt.Sprintf("plugin of rank %d", c.boot.Rank()), Transport: t.Name, Peer: framework.NoPeer, Err: cause})
}
