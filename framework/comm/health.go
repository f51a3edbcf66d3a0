package comm

import (
	"context"
	"errors"
	"fmt"
	"sync"
	"sync/atomic"
	"time"

	"github.com/mscclpp-go/mscclpp/framework"
	"github.com/mscclpp-go/mscclpp/framework/bootstrap"
	"github.com/mscclpp-go/mscclpp/framework/kernel"
)

// closeTimeout bounds what Close does in transports and proxies.
const closeTimeout = 5 * time.Second

// failedShare is the divisor that gives the share of Options.Grace which closing takes
// after a failure: what else a rank does before it can report the failure takes time too.
const failedShare = 5

// ending is the deadline that communicators split from one another share for closing
// after a failure.
type ending struct {
	mu sync.Mutex
	by time.Time // zero: nothing has been closed after a failure
}

// closeBound returns how long a close that begins now may take. Once the grace period
// after the shared deadline is over as well, nobody was ending the rank: a group has
// failed whose job goes on, and the next failure gets a deadline of its own.
func (c *Communicator) closeBound() time.Duration {
	if !c.aborted() {
		return closeTimeout
	}
	e := c.opts.ending
	e.mu.Lock()
	defer e.mu.Unlock()
	if now := time.Now(); e.by.IsZero() || now.After(e.by.Add(c.opts.Grace)) {
		e.by = now.Add(min(closeTimeout, c.opts.Grace/failedShare))
	}
	return max(stuckTimeout, time.Until(e.by))
}

// health is the life of a communicator: running, then failed or closed.
type health struct {
	mu     sync.Mutex
	cause  error
	shut   bool                                                // by Close
	failed atomic.Bool                                         // cause is set
	waits  atomic.Pointer[func(kernel, channel uint32) string] // what NameWaits was given
	over   atomic.Bool                                         // failed or closed: the control words may be gone
	stuck  atomic.Bool                                         // the last Close of a part ran into its bound
	done   chan struct{}                                       // closed on failure
	life   context.Context
	end    context.CancelCauseFunc // of life, on failure and by Close
	group  sync.WaitGroup
}

func (h *health) init() {
	h.done = make(chan struct{})
	h.life, h.end = context.WithCancelCause(context.Background())
}

// Err returns why the communicator cannot be used any more, or nil. After a failure the
// error wraps framework.ErrPeer, ErrPlugin or the cause given to Abort, and names the
// party that failed; after Close it is framework.ErrClosed.
func (c *Communicator) Err() error {
	if !c.over.Load() {
		return nil
	}
	c.health.mu.Lock()
	defer c.health.mu.Unlock()
	if c.cause != nil {
		return c.cause
	}
	return c.errClosed()
}

func (c *Communicator) errClosed() error {
	return fmt.Errorf("comm %s: %w", c.opts.Name, framework.ErrClosed)
}

// Done returns a channel that is closed when the communicator fails. Close does not
// close it.
func (c *Communicator) Done() <-chan struct{} { return c.done }

// Check is Err for the data path: three loads as long as nothing has failed. It also
// reports a wait that exceeded Options.Deadline. It must not run concurrently with
// Close.
func (c *Communicator) Check() error {
	if c.over.Load() {
		return c.Err()
	}
	w := c.control.words
	if atomic.LoadUint32(&w.Abort) == 0 && atomic.LoadUint32(&w.Reported) != reportComplete {
		return nil
	}
	if c.Err() == nil {
		c.overdue(w)
	}
	return c.Err()
}

// Overdue is Check for callers that poll: it may run concurrently with Close.
func (c *Communicator) Overdue() error {
	c.health.mu.Lock()
	var w kernel.WaitControl
	late := c.cause == nil && !c.shut && atomic.LoadUint32(&c.control.words.Reported) == reportComplete
	if late { // with mu: Close takes the words away
		w = *c.control.words
	}
	c.health.mu.Unlock()
	if late {
		c.overdue(&w)
	}
	return c.Err()
}

// overdue ends the communicator with a wait that a kernel has left.
func (c *Communicator) overdue(w *kernel.WaitControl) {
	peer := int(w.Peer)
	if peer >= c.Size() || peer == c.Rank() {
		peer = framework.NoPeer // a wait for several
	}
	c.Abort(&framework.Error{Op: "wait", Peer: peer, Err: fmt.Errorf(
		"%w: no progress within %v: %s: expected count %d, seen %d",
		framework.ErrPeer, time.Duration(w.Deadline), c.health.waitOf(w.Kernel, w.Channel), w.Expected, w.Seen)})
}

// NameWaits lets Check say what a kernel was waiting for. Check calls name, from any
// goroutine, with the numbers by which kernels mark their waits (mscclpp::WaitSite);
// name returns "" for numbers that it does not know. It replaces the function of an
// earlier call.
func (c *Communicator) NameWaits(name func(kernel, channel uint32) string) {
	c.health.waits.Store(&name)
}

func (h *health) waitOf(kernel, channel uint32) string {
	if name := h.waits.Load(); name != nil {
		if text := (*name)(kernel, channel); text != "" {
			return text
		}
	}
	return fmt.Sprintf("channel %d", channel)
}

// Departed waits until rank leaves the job in an orderly way, and returns true; or
// until ctx ends, and returns false. The death of a rank need not be asked for: it ends
// the communicator.
func (c *Communicator) Departed(ctx context.Context, rank int) bool {
	if rank == c.Rank() || c.Err() != nil {
		return false
	}
	_, err := c.boot.Recv(ctx, rank, tagFarewell)
	return errors.Is(err, framework.ErrPeer) && c.Err() == nil
}

// reportComplete is the value of WaitControl.Reported once the report was written.
const reportComplete = 1

// Abort ends the communicator: all kernel waits of this rank return, and the other
// ranks are told the cause and end as well. Only the first cause counts.
func (c *Communicator) Abort(cause error) {
	if cause == nil {
		cause = errors.New("aborted by the application")
	}
	if !c.fail(fmt.Errorf("comm %s: %w", c.opts.Name, cause)) {
		return
	}
	if w, ok := c.boot.(bootstrap.Watcher); ok {
		w.Announce(cause)
	}
}

// fail records the first cause and lets every kernel leave its waits. It reports
// whether it was the first.
func (c *Communicator) fail(cause error) bool {
	c.health.mu.Lock()
	first := c.cause == nil && !c.shut
	if first {
		c.cause = cause
		c.failed.Store(true)
		c.over.Store(true)
		atomic.StoreUint32(&c.control.words.Abort, 1) // with mu: Close takes the words away
	}
	c.health.mu.Unlock()
	if first {
		c.log.Error("communicator failed", "cause", cause)
		c.end(cause)
		close(c.done)
	}
	return first
}

func (h *health) aborted() bool { return h.failed.Load() }

// closing marks the communicator closed, and ends its watchers and whatever waits
// for peers.
func (c *Communicator) closing() {
	c.health.mu.Lock()
	c.shut = true
	c.over.Store(true)
	c.health.mu.Unlock()
	c.end(c.errClosed())
	c.health.group.Wait()
}

// watch ends the communicator when a rank or a plugin is gone.
func (c *Communicator) watch() {
	if w, ok := c.boot.(bootstrap.Watcher); ok {
		c.onClosed(w.Failed(), func() { c.fail(fmt.Errorf("comm %s: %w", c.opts.Name, w.Err())) })
	}
	for _, t := range c.opts.Transports {
		if t.Gone != nil {
			c.onClosed(t.Gone, func() { c.pluginGone(t) })
		}
	}
}

// onClosed calls f once gone is closed, unless the communicator ends before.
func (c *Communicator) onClosed(gone <-chan struct{}, f func()) {
	c.health.group.Go(func() {
		select {
		case <-gone:
			f()
		case <-c.life.Done():
		}
	})
}

// pluginGone ends the job: links of the plugin are dead on this side only, so the
// other ranks have to be told.
func (c *Communicator) pluginGone(t *Transport) {
	cause := framework.ErrPlugin
	if t.Cause != nil {
		if err := t.Cause(); err != nil {
			cause = err
		}
	}
	c.Abort(&framework.Error{Op: fmt.Sprintf("plugin of rank %d", c.Rank()), Transport: t.Name, Peer: framework.NoPeer, Err: cause})
}

// bound returns a context that also ends when the communicator fails or is closed,
// for calls into transports and waits for peers: a plugin that hangs must not
// outlive the job. Its cause is then that of the communicator.
func (c *Communicator) bound(ctx context.Context) (context.Context, context.CancelFunc) {
	ctx, cancel := context.WithCancelCause(ctx)
	stop := context.AfterFunc(c.life, func() { cancel(context.Cause(c.life)) })
	return ctx, func() {
		stop()
		cancel(nil)
	}
}
