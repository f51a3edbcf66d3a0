package engine

import (
	"context"
	"errors"
	"fmt"
	"time"

	"github.com/mscclpp-go/mscclpp/framework"
	"github.com/mscclpp-go/mscclpp/framework/comm"
)

// PreparePatience bounds what the first use of an algorithm may take: fetching and loading images.
const PreparePatience = 30 * time.Second

// Bounds for what calls have enqueued on a GPU when Close begins: to end by itself, and to leave the device when it
// has been ended. A program that keeps the contract has waited for it before.
const (
	drainPatience = 2 * time.Second
	drainLimit    = 5 * time.Second
)

// Enqueuer is an engine whose calls return before their work on a device has ended. Pending reports whether some is
// still to be done, and whether that is known: a driver must not be asked about a stream that the program may have
// destroyed, and only the program knows when graphs run.
type Enqueuer interface {
	Pending() (busy, known bool, err error)
}

// Interrupt ends calls that are in progress: they wait for peers, hold the locks that Close needs, and may never end
// by themselves. Peers that take part in them would wait for this rank, so the whole communicator ends.
func Interrupt(c *comm.Communicator, what string) {
	c.Abort(fmt.Errorf("%w: rank %d closed its collectives while %s", framework.ErrClosed, c.Rank(), what))
}

// Drain has what calls have enqueued leave a GPU before its memory is released, if it is known.
func Drain(c *comm.Communicator, e Enqueuer) error {
	ctx, cancel := context.WithTimeout(context.Background(), drainPatience)
	defer cancel()
	err := await(ctx, e)
	if !errors.Is(err, context.DeadlineExceeded) {
		return nil // it is idle or unknown, or its error is the program's
	}
	Interrupt(c, "kernels of its calls wait on a stream")
	ctx, cancel = context.WithTimeout(context.Background(), drainLimit)
	defer cancel()
	return await(ctx, e)
}

// Settle waits until what calls have enqueued has ended.
func Settle(ctx context.Context, engines []Engine) error {
	for _, e := range engines {
		if q, ok := e.(Enqueuer); ok {
			if err := await(ctx, q); err != nil {
				return err
			}
		}
	}
	return nil
}

// await polls: in a driver nothing would end the wait but the work.
func await(ctx context.Context, e Enqueuer) error {
	for pause := time.Microsecond; ; pause = min(2*pause, time.Millisecond) {
		busy, known, err := e.Pending()
		switch {
		case err != nil:
			return err
		case !known:
			return fmt.Errorf("%w: whether calls have ended on the device is not known: they are in graphs: expected that the program waits for these", framework.ErrUnsupported)
		case !busy:
			return nil
		}
		timer := time.NewTimer(pause)
		select {
		case <-timer.C:
		case <-ctx.Done():
			timer.Stop()
			return fmt.Errorf("calls on the device have not ended: %w", context.Cause(ctx))
		}
	}
}
