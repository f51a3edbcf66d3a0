package main

import (
	"context"
	"errors"
	"time"

	"github.com/mscclpp-go/mscclpp/collectives"
	"github.com/mscclpp-go/mscclpp/framework"
)

// moment is how long a caller of free waits at most: memory whose calls have just ended is then free for its next allocation.
const moment = 10 * time.Millisecond

// behind calls free when the calls have ended that the communicator has on streams: their kernels use what is mapped. It
// waits for them no longer than a moment, since a program frees memory before it aborts calls that never end. Where the device
// cannot tell, as behind graphs, which the program must not launch any more, free is called at once. The end of the
// communicator frees all that is left by then.
func (c *communicator) behind(free func() error) error {
	p := c.parts.Load()
	if p.job.Device.Info().Device == framework.Host {
		return free()
	}
	c.mu.Lock()
	if c.ended { // nothing may tell of calls any more
		c.mu.Unlock()
		return c.later(free)
	}
	c.leaving.Add(1)
	c.mu.Unlock()
	defer c.leaving.Done()
	ctx, cancel := context.WithTimeout(c.ctx, moment)
	defer cancel()
	if err := collectives.Settle(ctx, p.calls); !errors.Is(err, context.DeadlineExceeded) && c.ctx.Err() == nil {
		return free()
	}
	c.leaving.Go(func() {
		if collectives.Settle(c.ctx, p.calls) == nil {
			_ = free()
		} else {
			_ = c.later(free)
		}
	})
	return nil
}

// later leaves what is to be freed to the end of the communicator, or frees it, if that was.
func (c *communicator) later(free func() error) error {
	c.mu.Lock()
	over := c.over
	if !over {
		c.unfreed = append(c.unfreed, free)
	}
	c.mu.Unlock()
	if over {
		return free()
	}
	return nil
}

// freeLeft frees what is left behind calls, when the communicator was closed.
func (c *communicator) freeLeft() {
	c.mu.Lock()
	left := c.unfreed
	c.unfreed, c.over = nil, true
	c.mu.Unlock()
	for _, free := range left {
		_ = free()
	}
}
