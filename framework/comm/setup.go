package comm

import (
	"context"
	"errors"
	"fmt"
	"time"

	"github.com/mscclpp-go/mscclpp/framework"
	"github.com/mscclpp-go/mscclpp/framework/bootstrap"
	"github.com/mscclpp-go/mscclpp/framework/comm/internal/negotiate"
	"github.com/mscclpp-go/mscclpp/framework/comm/internal/porting"
	"github.com/mscclpp-go/mscclpp/framework/comm/internal/preamble"
)

// setUp performs one set-up call.
func (c *Communicator) setUp(ctx context.Context, op string, work func(ctx context.Context) error) error {
	c.setup.Lock()
	defer c.setup.Unlock()
	return c.together(ctx, op, work)
}

// together performs work that all take part in, and aborts if it fails half-way.
func (c *Communicator) together(ctx context.Context, op string, work func(ctx context.Context) error) error {
	if err := c.Err(); err != nil {
		return err
	}
	ctx, cancel := c.life.Bound(ctx)
	defer cancel()
	c.call.Store(&pendingCall{op, time.Now()})
	err := work(ctx)
	c.call.Store(nil)
	var r *preamble.Refusal
	switch {
	case err == nil:
		return nil
	case errors.As(err, &r):
		return fmt.Errorf("comm %s: %w", c.opts.Name, err)
	}
	w, _ := c.boot.(bootstrap.Watcher)
	if w != nil && w.Err() != nil {
		c.life.Fail(fmt.Errorf("comm %s: %w", c.opts.Name, w.Err())) // that is why
		return c.Err()
	}
	cause := c.accuse(op, err)
	c.Abort(cause)
	if w != nil && !c.life.Failed() {
		w.Announce(cause) // closed in the middle of a call: there is nothing to abort here
	}
	return c.Err()
}

// accuse puts the rank on an error that is to blame for it. The rank that an error
// of a transport names is the far side of what failed here, which may know nothing
// of it; unless the error says that the fault is there.
func (c *Communicator) accuse(op string, err error) error {
	peer := framework.PeerOf(err)
	late := errors.Is(err, context.DeadlineExceeded)
	switch {
	case peer == framework.NoPeer || !late && !errors.Is(err, framework.ErrPeer):
		peer = c.Rank()
	case late && framework.Class(err) == nil:
		err = fmt.Errorf("%w: %w", framework.ErrPeer, err)
	}
	return &framework.Error{Op: op, Peer: peer, Err: err}
}

// Names of the calls, which ranks say to each other.
const (
	opBarrier        = "barrier"
	opAllGather      = "all-gather"
	opExchange       = "exchange"
	opReach          = negotiate.OpReach
	opSurvey         = negotiate.OpSurvey
	opReachPorts     = negotiate.OpReachPorts
	opMemoryChannels = "memory channels"
	opMemoryChannel  = "memory channel"
	opPortChannel    = porting.OpChannel
	opSwitchChannel  = negotiate.OpSwitch
	opSplit          = "split"
	opOnDevice       = "on device"
)

func (c *Communicator) checkPeer(op string, peer int) error {
	if err := c.Err(); err != nil {
		return err
	}
	if peer < 0 || peer >= c.Size() || peer == c.Rank() {
		return c.life.Blame(op, peer, fmt.Errorf("%w: expected another rank, 0 to %d", framework.ErrInvalid, c.Size()-1))
	}
	return nil
}
