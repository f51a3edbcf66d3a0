package comm

import (
	"context"
	"errors"
	"fmt"
	"slices"

	"github.com/mscclpp-go/mscclpp/framework"
	"github.com/mscclpp-go/mscclpp/framework/device"
)

// ReachPorts finds out whether the kernels of all ranks can use port channels to each
// rank's peers, from and to memory m of the rank's device: that is, whether the
// transports that join them accept that memory and the semaphores. The relation is
// symmetric: if b is a peer of a, then a is a peer of b. unwilling is the reason why
// this rank has no such memory, or no use for it; m is then ignored.
//
// The answer is the same on all ranks: apart is nil, or says which rank cannot and why.
// In that case the communicator remains usable, while PortChannel would end it.
// Collective.
func (c *Communicator) ReachPorts(ctx context.Context, peers []int, m *Memory, unwilling error) (apart, err error) {
	err = c.setUp(ctx, opReachPorts, func(ctx context.Context) (err error) {
		if unwilling == nil {
			unwilling = m.usable()
		}
		if unwilling == nil {
			unwilling = c.hostsAlone()
		}
		// Nobody makes links that are of no use to another rank.
		if apart, err = c.objections(ctx, unwilling); err != nil || apart != nil {
			return err
		}
		var mine error
		for _, peer := range c.pairOrder() {
			if !slices.Contains(peers, peer) {
				continue
			}
			l, err := c.link(ctx, linkKey{framework.KindPort, peer, 0})
			var r *refusal
			switch {
			case errors.As(err, &r): // the pair is in step, and goes on
				mine = errors.Join(mine, r.error)
			case err != nil:
				return err
			case mine == nil:
				mine = c.carried(ctx, l, m)
			}
		}
		apart, err = c.objections(ctx, mine)
		return err
	})
	if err != nil {
		return nil, err
	}
	return apart, nil
}

// hostsAlone says that no transport takes memory of this rank's device, or nothing.
func (c *Communicator) hostsAlone() error {
	if c.control.hostDev == nil || slices.ContainsFunc(c.opts.Transports, func(t *Transport) bool {
		return t.Description.Has(framework.KindPort) && slices.Contains(t.Description.Needs, framework.NeedDMABuf)
	}) {
		return nil
	}
	return fmt.Errorf("%w: no transport with port channels takes memory of %v: expected one that needs %s", framework.ErrUnsupported, c.dev.Info().Device, framework.NeedDMABuf)
}

// carried says why the transport of a link does not carry data of kernels, or nothing.
func (c *Communicator) carried(ctx context.Context, l *link, m *Memory) error {
	dev := c.dev.Info().Device
	for _, memory := range []*Memory{m, c.control.inbound} {
		if _, err := memory.registration(ctx, l.transport, dev); err != nil {
			return fmt.Errorf("%s: %w", l.transport.Name, err)
		}
	}
	// Where counts are forwarded, what adapters wrote has to be made visible.
	signal := l.transport.Description.Signal
	if f, ok := c.dev.(device.Flusher); ok && (signal == framework.SignalImmediate || signal == framework.SignalProxy) {
		return f.FlushWrites()
	}
	return nil
}

// objections tells all ranks what each has to say, and returns the first of it.
func (c *Communicator) objections(ctx context.Context, mine error) (first, err error) {
	var m missing
	if mine != nil {
		m.why = mine
	}
	said, err := c.agree(ctx, opReachPorts, m.encode(), nil)
	if err != nil {
		return nil, err
	}
	for rank, s := range said {
		if len(s) == 0 {
			continue
		}
		class := framework.ErrUnavailable
		if s[0] == 'U' {
			class = framework.ErrUnsupported
		}
		return &framework.Error{Op: opReachPorts, Peer: rank, Err: fmt.Errorf("%w: %s", class, s[1:])}, nil
	}
	return nil, nil
}
