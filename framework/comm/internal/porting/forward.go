package porting

import (
	"context"
	"fmt"
	"slices"
	"sync/atomic"

	"github.com/mscclpp-go/mscclpp/framework"
	"github.com/mscclpp-go/mscclpp/framework/comm/internal/counters"
	"github.com/mscclpp-go/mscclpp/framework/comm/internal/memory"
	"github.com/mscclpp-go/mscclpp/framework/comm/internal/recipe"
	"github.com/mscclpp-go/mscclpp/framework/device"
	"github.com/mscclpp-go/mscclpp/framework/proxy"
)

// openInbox asks a transport that does not raise counters through mapped memory
// whether the rank is to do it.
func (s *Ports) openInbox(ctx context.Context, l *link, peer int) error {
	switch l.Transport.Description.Signal {
	case framework.SignalImmediate, framework.SignalProxy:
	default:
		return nil
	}
	fail := func(err error) error { return &framework.Error{Op: "attach", Peer: peer, Err: err} }
	reg, err := memory.Registration(ctx, s.Counters.Inbound, l.Transport, s.Counters.Dev.Info().Device)
	if err != nil {
		return &framework.Error{Op: "register", Peer: framework.NoPeer, Err: err}
	}
	att, err := l.Transport.Attach(ctx, l.Conn, reg.ID, []framework.Parcel{l.peerKey})
	if err != nil {
		return fail(err)
	}
	i := slices.IndexFunc(att.Mappings, func(m framework.Mapping) bool { return m.Role == framework.RoleInbox })
	p, err := s.Links.Recipes.Perform(ctx, att, recipe.Operands{Transport: l.Transport, Members: []int{peer}, Own: s.Counters.Inbound})
	if err != nil {
		return fail(err)
	}
	l.posted.close = p.Close
	if i < 0 {
		return nil
	}
	m := p.Mapped[i]
	if m == nil || m.Bytes() < s.Counters.Inbound.Bytes() || m.Addr()%8 != 0 {
		return fail(recipe.Nonsense("%s did not map an inbox for %d bytes of counters", l.Transport.Name, s.Counters.Inbound.Bytes()))
	}
	l.posted.words = m
	return s.startForwarder()
}

// startForwarder makes the communicator's one forwarder. Semaphores of a device stay where
// they are if the host can map that memory: the forwarder stores there, and kernels poll
// memory of their own. Else they are tokens, which kernels poll over the bus; where the
// device cannot see memory of the host either, a stream stores them in its own.
func (s *Ports) startForwarder() error {
	if s.forwarding.forwarder != nil {
		return nil
	}
	var flush func() error
	if s.Counters.HostDev != nil {
		if f, ok := s.Counters.Dev.(device.Flusher); ok {
			if err := f.FlushWrites(); err != nil { // now, before a kernel relies on it
				return err
			}
			flush = f.FlushWrites
		}
		if err := s.openPath(); err != nil {
			return err
		}
	}
	f := proxy.NewForwarder(s.forwarding.view, s.forwarding.lane, flush, proxy.Options{})
	s.forwarding.forwarder = f
	go func() { // Close stops the forwarder, which ends this
		<-f.Done()
		if err := f.Err(); err != nil {
			s.Abort(&framework.Error{Op: "forwarder", Peer: s.Boot.Rank(), Err: err})
		}
	}()
	return nil
}

// openPath opens the best path from the forwarder to kernels.
func (s *Ports) openPath() error {
	err := s.openView()
	if err == nil {
		s.Log.Debug("signals are forwarded to memory of the device")
		return nil
	}
	s.Log.Debug("signals are forwarded by way of memory of the host", "reason", err)
	if err = s.Counters.MakeHost(); err != nil {
		return s.openLane(err)
	}
	return nil
}

// openView maps the rank's counters for stores of the host.
func (s *Ports) openView() (err error) {
	m, ok := s.Counters.Dev.(device.HostMapper)
	if !ok {
		return fmt.Errorf("%w: the host does not map memory of %v", framework.ErrUnsupported, s.Counters.Dev.Info().Device)
	}
	s.forwarding.view, err = m.MapForHost(s.Counters.Inbound.Memory)
	return err
}

// openLane opens the forwarder's stream; reason says why there are no tokens.
func (s *Ports) openLane(reason error) error {
	q := &s.Counters.Queue
	if q.Lane == nil {
		return fmt.Errorf("%w: counts of signals arrive on the host, and %v has no copy engine to take them: %w", framework.ErrUnsupported, s.Counters.Dev.Info().Device, reason)
	}
	s.Log.Debug("signals are forwarded by a stream", "reason", reason)
	word, err := q.Word()
	if err != nil {
		return err
	}
	s.forwarding.lane, err = proxy.NewLane(q.Engine, framework.NoPeer, word)
	return err
}

// forward has the semaphore of a pair follow the inbox of its link, if that has one.
// It begins before the peer can know the semaphore.
func (s *Ports) forward(l *link, p counters.Pair) (*proxy.Watched, error) {
	if l.posted.words == nil {
		return nil, nil
	}
	base := uint64(0) // semaphores of devices begin there
	to := s.inbound(l, p)
	if s.Counters.HostDev == nil {
		to.Host = (*uint64)(counters.Pointer(to.Device))
		base = atomic.LoadUint64(to.Host)
	}
	word := l.posted.words.Addr() + uintptr(p.Mine)*counters.Stride
	return s.forwarding.forwarder.Watch((*uint64)(counters.Pointer(word)), to, base)
}

// unwatch ends it. A count that is still on its way to the device would spoil the
// next use of the counter, so it is waited for.
func (f *forwarding) unwatch(ctx context.Context, w *proxy.Watched) error {
	if w == nil {
		return nil
	}
	f.forwarder.Unwatch(w)
	switch {
	case f.view != nil:
		return f.view.Settle()
	case f.lane != nil:
		return f.lane.Settle(ctx)
	}
	return nil
}

// stop ends the forwarder, before inboxes are unmapped and the counters are freed. Kernels
// that still run do not mind: the view is not theirs.
func (f *forwarding) stop(ctx context.Context, failed bool) error {
	if f.forwarder != nil {
		f.forwarder.Stop()
	}
	if f.view != nil {
		return f.view.Close()
	}
	if f.lane == nil {
		return nil
	}
	if failed {
		f.lane.Drop()
	}
	return f.lane.Close(ctx)
}
