package engine

import (
	"context"
	"errors"
	"fmt"
	"time"

	"github.com/mscclpp-go/mscclpp/framework"
	"github.com/mscclpp-go/mscclpp/framework/comm"
	"github.com/mscclpp-go/mscclpp/framework/device"
)

// PreparePatience bounds what the first use of an algorithm may take: fetching and loading images.
const PreparePatience = 30 * time.Second

// Bounds for what calls have enqueued on a GPU when Close begins: to end by itself, and to leave the device when it
// has been ended. A program that keeps the contract has waited for it before.
const (
	drainPatience = 2 * time.Second
	drainLimit    = 5 * time.Second
)

// Interrupt ends calls that are in progress: they wait for peers, hold the locks that Close needs, and may never end
// by themselves. Peers that take part in them would wait for this rank, so the whole communicator ends.
func Interrupt(c *comm.Communicator, what string) {
	c.Abort(fmt.Errorf("%w: rank %d closed its collectives while %s", framework.ErrClosed, c.Rank(), what))
}

// Drain has what calls have enqueued leave a GPU before its memory is released. It asks only streams that package
// device made: a driver must not be asked about one that the program may have destroyed.
func Drain(c *comm.Communicator, last device.Stream, any bool) error {
	d, ok := c.Device().(interface{ StreamOpen(device.Stream) bool })
	if !any || !ok || !d.StreamOpen(last) {
		return nil
	}
	ctx, cancel := context.WithTimeout(context.Background(), drainPatience)
	defer cancel()
	err := c.Settle(ctx, last)
	if !errors.Is(err, context.DeadlineExceeded) {
		return nil // it is idle, or its error is the program's
	}
	Interrupt(c, "kernels of its calls wait on a stream")
	ctx, cancel = context.WithTimeout(context.Background(), drainLimit)
	defer cancel()
	return c.Settle(ctx, last)
}
