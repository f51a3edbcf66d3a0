// Package life is the life of a communicator and of what it made: running, then failed or
// closed; and in which order everything ends, within which time.
package life

import (
	"context"
	"fmt"
	"log/slog"
	"sync"
	"sync/atomic"
	"time"

	"github.com/mscclpp-go/mscclpp/framework"
)

// failedShare is the divisor that gives the share of the grace which closing takes after a
// failure: what else a rank does before it can report the failure takes time too.
const failedShare = 5

// Ending is the deadline that communicators split from one another share for closing
// after a failure.
type Ending struct {
	mu sync.Mutex
	by time.Time // zero: nothing has been closed after a failure
}

// Life is the state of one communicator.
type Life struct {
	Parts

	log    *slog.Logger
	grace  time.Duration
	ending *Ending
	onFail func() // with mu

	mu     sync.Mutex
	cause  error
	shut   bool          // by Close
	failed atomic.Bool   // cause is set
	over   atomic.Bool   // failed or closed: what the communicator has mapped may be gone
	done   chan struct{} // closed on failure
	ctx    context.Context
	end    context.CancelCauseFunc // of ctx, on failure and by Close
	group  sync.WaitGroup
}

// New begins the life of a communicator. onFail is called once, when it fails and was not
// closed before: Close waits for it.
func New(name string, log *slog.Logger, grace time.Duration, ending *Ending, onFail func()) *Life {
	l := &Life{log: log, grace: grace, ending: ending, onFail: onFail, done: make(chan struct{})}
	l.Parts.name, l.Parts.bound = name, l.CloseBound
	l.ctx, l.end = context.WithCancelCause(context.Background())
	return l
}

// Err returns why the communicator cannot be used any more, or nil.
func (l *Life) Err() error {
	if !l.over.Load() {
		return nil
	}
	l.mu.Lock()
	defer l.mu.Unlock()
	if l.cause != nil {
		return l.cause
	}
	return l.errClosed()
}

func (l *Life) errClosed() error {
	return fmt.Errorf("comm %s: %w", l.name, framework.ErrClosed)
}

// Blame puts the communicator, the operation and the peer on an error.
func (l *Life) Blame(op string, peer int, err error) error {
	return fmt.Errorf("comm %s: %w", l.name, &framework.Error{Op: op, Peer: peer, Err: err})
}

// Done returns a channel that is closed when the communicator fails.
func (l *Life) Done() <-chan struct{} { return l.done }

// Over reports whether the communicator has failed or is closed.
func (l *Life) Over() bool { return l.over.Load() }

// Failed reports whether it has failed.
func (l *Life) Failed() bool { return l.failed.Load() }

// Context ends with the communicator; its cause is that of the end.
func (l *Life) Context() context.Context { return l.ctx }

// Fail records the first cause. It reports whether it was the first.
func (l *Life) Fail(cause error) bool {
	l.mu.Lock()
	first := l.cause == nil && !l.shut
	if first {
		l.cause = cause
		l.failed.Store(true)
		l.over.Store(true)
		l.onFail() // with mu: Close takes away what it uses
	}
	l.mu.Unlock()
	if first {
		l.log.Error("communicator failed", "cause", cause)
		l.end(cause)
		close(l.done)
	}
	return first
}

// Running calls f unless the communicator has failed or is closed, which waits for f.
func (l *Life) Running(f func()) {
	l.mu.Lock()
	defer l.mu.Unlock()
	if l.cause == nil && !l.shut {
		f()
	}
}

// Close marks the communicator closed, and ends its watchers and whatever waits for peers.
func (l *Life) Close() {
	l.mu.Lock()
	l.shut = true
	l.over.Store(true)
	l.mu.Unlock()
	l.end(l.errClosed())
	l.group.Wait()
}

// Go runs f, which ends when Context does, unless the communicator is closed. Close waits
// for it.
func (l *Life) Go(f func()) {
	l.mu.Lock()
	defer l.mu.Unlock()
	if !l.shut {
		l.group.Go(f)
	}
}

// OnClosed calls f once gone is closed, unless the communicator ends before.
func (l *Life) OnClosed(gone <-chan struct{}, f func()) {
	l.Go(func() {
		select {
		case <-gone:
			f()
		case <-l.ctx.Done():
		}
	})
}

// Bound returns a context that also ends when the communicator fails or is closed, for
// calls into transports and waits for peers: a plugin that hangs must not outlive the job.
// Its cause is then that of the communicator.
func (l *Life) Bound(ctx context.Context) (context.Context, context.CancelFunc) {
	ctx, cancel := context.WithCancelCause(ctx)
	stop := context.AfterFunc(l.ctx, func() { cancel(context.Cause(l.ctx)) })
	return ctx, func() {
		stop()
		cancel(nil)
	}
}

// CloseBound returns how long a close that begins now may take. Once the grace period
// after the shared deadline is over as well, the rank was not being ended: a group has
// failed whose job goes on, and the next failure gets a deadline of its own.
func (l *Life) CloseBound() time.Duration {
	if !l.Failed() {
		return CloseTimeout
	}
	e := l.ending
	e.mu.Lock()
	defer e.mu.Unlock()
	if now := time.Now(); e.by.IsZero() || now.After(e.by.Add(l.grace)) {
		e.by = now.Add(min(CloseTimeout, l.grace/failedShare))
	}
	return max(stuckTimeout, time.Until(e.by))
}

// Rollback releases what a call that failed has made: in a context of its own, since that of
// the call may be what ended it.
func (l *Life) Rollback(release func(ctx context.Context) error) {
	ctx, cancel := context.WithTimeout(context.Background(), l.CloseBound())
	defer cancel()
	_ = release(ctx) // the call's own error is the one to report
}
