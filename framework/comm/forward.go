package comm

import (
	"context"
	"fmt"
	"slices"
	"sync/atomic"

	"github.com/mscclpp-go/mscclpp/framework"
	"github.com/mscclpp-go/mscclpp/framework/gpu"
	"github.com/mscclpp-go/mscclpp/framework/proxy"
)

// forwarding is what a communicator needs for transports that write counts of signals
// into an inbox, because they cannot write the memory that semaphores are in.
type forwarding struct {
	forwarder *proxy.Forwarder // nil until a link has an inbox
	lane      *proxy.Lane      // nil on the host
}

// posted is the inbox of one link: the word at an offset stands for the word at that
// offset of the rank's counters.
type posted struct {
	words gpu.Memory // nil: the transport raises the counters itself
	close func(ctx context.Context) error
}

// openInbox asks a transport that does not raise counters through mapped memory
// whether the rank is to do it.
func (c *Communicator) openInbox(ctx context.Context, l *link, peer int) error {
	switch l.transport.Description.Signal {
	case framework.SignalImmediate, framework.SignalProxy:
	default:
		return nil
	}
	fail := func(err error) error { return &framework.Error{Op: "attach", Peer: peer, Err: err} }
	reg, err := c.control.inbound.registration(ctx, l.transport, c.dev.Info().Device)
	if err != nil {
		return &framework.Error{Op: "register", Peer: framework.NoPeer, Err: err}
	}
	att, err := l.transport.Attach(ctx, l.conn, reg.ID, []framework.Parcel{l.peerKey})
	if err != nil {
		return fail(err)
	}
	i := slices.IndexFunc(att.Mappings, func(m framework.Mapping) bool { return m.Role == framework.RoleInbox })
	p, err := c.perform(ctx, att, stepsContext{transport: l.transport, members: []int{peer}, own: c.control.inbound})
	if err != nil {
		return fail(err)
	}
	l.posted.close = p.close
	if i < 0 {
		return nil
	}
	m := p.mapped[i]
	if m == nil || m.Bytes() < c.control.inbound.Bytes() || m.Addr()%8 != 0 {
		return fail(nonsense("%s did not map an inbox for %d bytes of counters", l.transport.Name, c.control.inbound.Bytes()))
	}
	l.posted.words = m
	return c.startForwarder()
}

// startForwarder makes the communicator's one forwarder.
func (c *Communicator) startForwarder() error {
	if c.forwarding.forwarder != nil {
		return nil
	}
	if q := &c.control.engine; q.lane != nil {
		word, err := q.word()
		if err != nil {
			return err
		}
		if c.forwarding.lane, err = proxy.NewLane(q.Engine, framework.NoPeer, word); err != nil {
			return err
		}
	} else if c.control.hostDev != nil {
		return fmt.Errorf("%w: counts of signals arrive on the host, and %v has no copy engine to take them", framework.ErrUnsupported, c.dev.Info().Device)
	}
	f := proxy.NewForwarder(c.forwarding.lane, proxy.Options{})
	c.forwarding.forwarder = f
	go func() { // Close stops the forwarder, which ends this
		<-f.Done()
		if err := f.Err(); err != nil {
			c.Abort(&framework.Error{Op: "forwarder", Peer: c.Rank(), Err: err})
		}
	}()
	return nil
}

// forward has the counter of a semaphore follow the inbox of its link, if that has
// one. It begins before the peer can know the semaphore.
func (c *Communicator) forward(l *link, number int) (*proxy.Watched, error) {
	if l.posted.words == nil {
		return nil, nil
	}
	base := uint64(0) // counters of devices begin there
	addr := c.control.inboundAddr(number)
	if c.control.hostDev == nil {
		base = atomic.LoadUint64((*uint64)(pointer(addr)))
	}
	word := l.posted.words.Addr() + uintptr(number)*semaphoreStride
	return c.forwarding.forwarder.Watch((*uint64)(pointer(word)), addr, base)
}

// unwatch ends it. A count that is still on its way to the device would spoil the
// next use of the counter, so it is waited for.
func (f *forwarding) unwatch(ctx context.Context, w *proxy.Watched) error {
	if w == nil {
		return nil
	}
	f.forwarder.Unwatch(w)
	if f.lane == nil {
		return nil
	}
	return f.lane.Settle(ctx)
}

// stop ends the forwarder, before inboxes are unmapped.
func (f *forwarding) stop(ctx context.Context, failed bool) error {
	if f.forwarder != nil {
		f.forwarder.Stop()
	}
	if f.lane == nil {
		return nil
	}
	if failed {
		f.lane.Drop()
	}
	return f.lane.Close(ctx)
}

// mapInbox maps words that the host reads, whatever the rank's device.
func (k *control) mapInbox(m framework.Mapping) (gpu.Memory, error) {
	if k.hostDev == nil {
		return k.dev.Map(m)
	}
	return k.hostDev.Map(m)
}
