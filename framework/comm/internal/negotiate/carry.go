package negotiate

import (
	"context"
	"errors"
	"fmt"
	"slices"

	"github.com/mscclpp-go/mscclpp/framework"
	"github.com/mscclpp-go/mscclpp/framework/comm/internal/memory"
	"github.com/mscclpp-go/mscclpp/framework/comm/internal/preamble"
	"github.com/mscclpp-go/mscclpp/framework/comm/internal/transport"
	"github.com/mscclpp-go/mscclpp/framework/device"
)

// ReachPorts finds out whether the kernels of all ranks can use port channels to each
// rank's peers, from and to memory m of the rank's device. unwilling is the reason why this
// rank has no such memory, or no use for it; m is then ignored. apart is the same on all
// ranks: nil, or it says which rank cannot and why.
func (n *Negotiator) ReachPorts(ctx context.Context, peers []int, m *memory.Memory, unwilling error) (apart, err error) {
	if unwilling == nil {
		unwilling = memory.Usable(m)
	}
	if unwilling == nil {
		unwilling = n.hostsAlone()
	}
	// No rank makes links that are of no use to another rank.
	if apart, err = n.objections(ctx, unwilling); err != nil || apart != nil {
		return apart, err
	}
	var mine error
	for _, peer := range n.pairOrder() {
		if !slices.Contains(peers, peer) {
			continue
		}
		l, err := n.Link(ctx, Key{Kind: framework.KindPort, Peer: peer})
		var r *preamble.Refusal
		switch {
		case errors.As(err, &r): // the pair is in step, and goes on
			mine = errors.Join(mine, r.Err)
		case err != nil:
			return nil, err
		case mine == nil:
			mine = n.carried(ctx, l, m)
		}
	}
	apart, err = n.objections(ctx, mine)
	return apart, err
}

// hostsAlone says that no transport takes memory of this rank's device, or nothing.
func (n *Negotiator) hostsAlone() error {
	if n.Counters.HostDev == nil || slices.ContainsFunc(n.Transports, func(t *transport.Transport) bool {
		return t.Description.Has(framework.KindPort) && slices.Contains(t.Description.Needs, framework.NeedDMABuf)
	}) {
		return nil
	}
	return fmt.Errorf("%w: no transport with port channels takes memory of %v: expected one that needs %s", framework.ErrUnsupported, n.Counters.Dev.Info().Device, framework.NeedDMABuf)
}

// carried says why the transport of a link does not carry data of kernels, or nothing.
func (n *Negotiator) carried(ctx context.Context, l *Link, m *memory.Memory) error {
	dev := n.Counters.Dev.Info().Device
	for _, mem := range []*memory.Memory{m, n.Counters.Inbound} {
		if _, err := memory.Registration(ctx, mem, l.Transport, dev); err != nil {
			return fmt.Errorf("%s: %w", l.Transport.Name, err)
		}
	}
	// Where counts are forwarded, what adapters wrote has to be made visible.
	signal := l.Transport.Description.Signal
	if f, ok := n.Counters.Dev.(device.Flusher); ok && (signal == framework.SignalImmediate || signal == framework.SignalProxy) {
		return f.FlushWrites()
	}
	return nil
}

// objections tells all ranks what each has to say, and returns the first of it.
func (n *Negotiator) objections(ctx context.Context, mine error) (first, err error) {
	var m missing
	if mine != nil {
		m.why = mine
	}
	said, err := n.Rounds.Agree(ctx, OpReachPorts, m.encode(), nil)
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
		return &framework.Error{Op: OpReachPorts, Peer: rank, Err: fmt.Errorf("%w: %s", class, s[1:])}, nil
	}
	return nil, nil
}
