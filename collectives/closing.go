package collectives

import (
	"context"
	"errors"
	"fmt"
	"sync/atomic"
	"time"

	"github.com/mscclpp-go/mscclpp/framework"
	"github.com/mscclpp-go/mscclpp/framework/device"
)

// progress counts the calls in progress, and knows whether Close has begun.
type progress struct{ word atomic.Int64 }

// closing is the bit of the word that Close sets; the rest of it is the count.
const closing = 1 << 62

// enter begins a call. Once Close has begun it is false, and the call must not go on.
func (p *progress) enter() bool {
	if p.word.Add(1)&closing == 0 {
		return true
	}
	p.leave()
	return false
}

func (p *progress) leave() { p.word.Add(-1) }

// close turns later calls away. It reports whether it was the first, and whether a call is in progress.
func (p *progress) close() (first, busy bool) {
	before := p.word.Or(closing)
	return before&closing == 0, before&^closing != 0
}

func errClosed() error { return fmt.Errorf("collectives: %w", framework.ErrClosed) }

// interrupt ends calls that are in progress: they wait for peers, hold the locks that Close needs, and may never end
// by themselves. Peers that take part in them would wait for this rank, so the whole communicator ends.
func (c *Comm) interrupt(what string) {
	c.comm.Abort(fmt.Errorf("%w: rank %d closed its collectives while %s", framework.ErrClosed, c.comm.Rank(), what))
}

// Bounds for what calls have enqueued on a GPU when Close begins: to end by itself, and to leave the device when it
// has been ended. A program that keeps the contract has waited for it before.
const (
	drainPatience = 2 * time.Second
	drainLimit    = 5 * time.Second
)

// drain has what calls have enqueued leave a GPU before its memory is released. It asks only streams that package
// device made: a driver must not be asked about one that the program may have destroyed.
func (c *Comm) drain(last device.Stream, any bool) error {
	d, ok := c.comm.Device().(interface{ StreamOpen(device.Stream) bool })
	if !any || !ok || !d.StreamOpen(last) {
		return nil
	}
	ctx, cancel := context.WithTimeout(context.Background(), drainPatience)
	defer cancel()
	err := c.comm.Settle(ctx, last)
	if !errors.Is(err, context.DeadlineExceeded) {
		return nil // it is idle, or its error is the program's
	}
	c.interrupt("kernels of its calls wait on a stream")
	ctx, cancel = context.WithTimeout(context.Background(), drainLimit)
	defer cancel()
	return c.comm.Settle(ctx, last)
}
