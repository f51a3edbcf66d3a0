package porting

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"time"

	"github.com/mscclpp-go/mscclpp/framework"
	"github.com/mscclpp-go/mscclpp/framework/comm/internal/counters"
	"github.com/mscclpp-go/mscclpp/framework/comm/internal/life"
	"github.com/mscclpp-go/mscclpp/framework/comm/internal/transport"
	"github.com/mscclpp-go/mscclpp/framework/device"
	"github.com/mscclpp-go/mscclpp/framework/proxy"
	"github.com/mscclpp-go/mscclpp/framework/ring"
)

// Behind the counts of a ring, in memory of the device, is a word for kernels to
// look at in place of the ring's own.
const (
	errorWord  = ring.CounterBytes
	errorBytes = 128
)

// openEnd gives a channel numbers on a ring.
func (s *Ports) openEnd(ctx context.Context, t *transport.Transport, from producer, b binding) (*end, error) {
	if s.Counters.HostDev == nil {
		from = fromHost
	}
	s.rings.Lock()
	defer s.rings.Unlock()
	p, err := s.service(ctx, t, from, b.stream != nil)
	if err != nil {
		return nil, err
	}
	e := &end{service: p}
	if e.slots, err = p.bind(ctx, b); err != nil {
		p.leave()
		return nil, err
	}
	return e, nil
}

// service returns one for a transport that has room for one more channel, and
// counts that channel. The caller holds s.rings.
func (s *Ports) service(ctx context.Context, t *transport.Transport, from producer, streamed bool) (*service, error) {
	for _, p := range s.list(t) {
		if p.from == from && (p.queue != nil) == streamed && p.memories+2 <= noMemory && p.semaphores < semaphoreSlots {
			p.enter()
			return p, nil
		}
	}
	r, err := ring.New(ringSlots)
	if err != nil {
		return nil, err
	}
	r.Watch(s.Counters.Words)
	p := &service{ring: r, from: from, ended: make(chan struct{})}
	if err = p.show(s, t); err == nil {
		err = p.start(ctx, s, t, streamed)
	}
	if err != nil {
		return nil, errors.Join(err, p.view.close(), r.Close())
	}
	p.enter()
	s.mu.Lock()
	defer s.mu.Unlock()
	s.services[t] = append(s.services[t], p)
	return p, nil
}

// services lists the rings of a transport, the oldest first.
func (s *Ports) list(t *transport.Transport) []*service {
	s.mu.Lock()
	defer s.mu.Unlock()
	return slices.Clone(s.services[t])
}

// show makes the ring addressable on the device, for kernels that push to it, and for
// the streams of a copy engine that complete its flushes.
func (p *service) show(s *Ports, t *transport.Transport) error {
	if p.from == fromHost && t.Description.Proxy != framework.ProxyRank {
		return nil
	}
	share, err := p.ring.Share()
	if err != nil {
		return err
	}
	if p.view.memory, err = counters.Show(s.Counters.Dev, []framework.Share{share}, p.ring.Bytes()); err != nil {
		return fmt.Errorf("trigger ring: %w", err)
	}
	if p.from == fromKernels {
		if p.view.counters, err = s.Counters.Dev.Alloc(ring.CounterBytes + errorBytes); err != nil {
			return fmt.Errorf("trigger ring: %w", err)
		}
	}
	return nil
}

func (v *deviceView) close() error {
	var first error
	for _, m := range []device.Memory{v.memory, v.counters} {
		if m == nil {
			continue
		}
		if err := m.Close(); err != nil && first == nil {
			first = err
		}
	}
	return first
}

// start drains the ring: by a proxy of the transport, or by the rank itself.
func (p *service) start(ctx context.Context, s *Ports, t *transport.Transport, streamed bool) error {
	wait := func(ctx context.Context) error { return p.proxy.Wait(ctx) }
	blame := func(err error) error { return blameProxy(s.Boot.Rank(), err) }
	if streamed {
		var err error
		if p.queue, err = s.engine.Queue(p.ring); err != nil {
			return err
		}
		wait = p.queue.Wait
	} else if t.Description.Proxy == framework.ProxyRank {
		p.records = s.Flows.Loop("copy engine")
		p.copier = proxy.NewCopier(p.ring, p.view.memory.Addr(), proxy.Options{Records: p.records})
		if err := p.copier.Start(); err != nil {
			return err
		}
		wait, blame = p.copier.Wait, s.blameCopier
	} else {
		proxier, ok := t.Transport.(framework.Proxier)
		if !ok {
			return fmt.Errorf("%w: %s claims a proxy but offers none", framework.ErrPlugin, t.Name)
		}
		made, err := proxier.NewProxy(ctx)
		if err != nil {
			return err
		}
		share, err := p.ring.Share()
		if err == nil {
			err = made.Start(ctx, share)
			share.Close()
		}
		if err != nil {
			s.Life.Rollback(made.Stop)
			return err
		}
		p.proxy = made
		// Not where kernels of a device push: they cannot wake a thread that sleeps because a
		// thread helped.
		if h, ok := made.(framework.Helper); ok && (p.from == fromHost || s.Counters.HostDev == nil) {
			p.ring.Assist(h)
		}
	}
	waitCtx, cancel := context.WithCancel(context.Background())
	p.stop = cancel
	go func() {
		defer close(p.ended)
		err := wait(waitCtx)
		if waitCtx.Err() != nil {
			return
		}
		if err == nil {
			err = fmt.Errorf("%w: it ended though nobody stopped it", framework.ErrPlugin)
		}
		if p.left = s.leftBehind(err); p.left == nil {
			s.Abort(blame(err))
		}
		p.warn(s)
	}()
	return nil
}

// leftBehind turns the end of a proxy whose peer has left the job in order, and whose process has ended before it
// closed its connections, into the error of what needs the proxy later; nil: that is not why.
func (s *Ports) leftBehind(err error) error {
	peer := framework.PeerOf(err)
	if peer == framework.NoPeer || !errors.Is(err, framework.ErrPeer) {
		return nil
	}
	ctx, cancel := context.WithTimeout(context.Background(), departureGrace)
	defer cancel()
	if !s.Departed(ctx, peer) {
		return nil
	}
	return &framework.Error{Op: "proxy", Peer: peer, Err: fmt.Errorf("%w: it has left the job, and the proxy that served it has ended: %v", framework.ErrPeer, err)}
}

// settle waits, for settleLimit at most, until the communicator knows why the proxy has
// ended: the ring, which tells of the end first, holds no more than a class of errors.
func (p *service) settle(l *life.Life) {
	late := time.NewTimer(settleLimit)
	defer late.Stop()
	select {
	case <-l.Done():
	case <-p.ended:
	case <-late.C:
	}
}

// settleLimit is for the way of a cause through a plugin whose machine is busy.
const settleLimit = 2 * time.Second

// warn tells kernels that push that nobody takes what they push. Waits learn it by the control
// word.
func (p *service) warn(s *Ports) {
	if p.view.counters == nil || s.Counters.Queue.Lane == nil {
		return
	}
	ctx, cancel := context.WithTimeout(context.Background(), counters.LookTimeout)
	defer cancel()
	_ = s.Counters.Queue.Store(ctx, p.view.counters.Addr()+errorWord, 1) // the device may be what has failed
}

// blameProxy puts this rank on the end of a proxy, unless a peer is to blame for it: one that has
// died is known to its proxies before any rank says so.
func blameProxy(rank int, err error) error {
	if errors.Is(err, framework.ErrPeer) && framework.PeerOf(err) != framework.NoPeer {
		return &framework.Error{Op: fmt.Sprintf("proxy of rank %d", rank), Peer: framework.NoPeer, Err: err}
	}
	return &framework.Error{Op: "proxy", Peer: rank, Err: err}
}

// blameCopier puts the peer on an error of the copy engine: it is its memory that
// could not be written. A trigger that makes no sense is the rank's own.
func (s *Ports) blameCopier(err error) error {
	if peer := framework.PeerOf(err); peer != framework.NoPeer {
		return &framework.Error{Op: fmt.Sprintf("copy proxy of rank %d", s.Boot.Rank()), Peer: framework.NoPeer, Err: err}
	}
	return &framework.Error{Op: "copy proxy", Peer: s.Boot.Rank(), Err: err}
}

// bind gives numbers to what a channel's triggers cite. A number is used up also
// when that fails. The caller holds Ports.rings.
func (p *service) bind(ctx context.Context, b binding) (slots, error) {
	n := slots{src: p.memories, dst: p.memories + 1, semaphore: p.semaphores}
	p.memories += 2
	p.semaphores++
	p.mu.Lock()
	p.full = p.memories+2 > noMemory || p.semaphores == semaphoreSlots
	p.mu.Unlock()
	if p.queue != nil {
		return n, b.stream.bind(p.queue, n, b.own)
	}
	if p.copier != nil {
		return n, errors.Join(
			p.copier.BindSource(n.src, b.own.Addr(), b.own.Bytes()),
			p.copier.BindTarget(n.dst, b.peer.Addr, b.peer.Bytes, b.lane),
			p.copier.BindSemaphore(n.semaphore, b.counter))
	}
	if err := p.proxy.BindMemory(ctx, n.src, b.src); err != nil {
		return n, err
	}
	if err := p.proxy.BindMemory(ctx, n.dst, b.dst); err != nil {
		return n, err
	}
	return n, p.proxy.BindSemaphore(ctx, n.semaphore, b.semaphore)
}

func (p *service) enter() {
	p.mu.Lock()
	defer p.mu.Unlock()
	p.channels++
}

// leave counts a channel that is closed. It reports whether the service is of no
// use any more.
func (p *service) leave() bool {
	p.mu.Lock()
	defer p.mu.Unlock()
	p.channels--
	return p.channels == 0 && p.full
}

// retire ends a service that is full of closed channels.
func (s *Ports) retire(ctx context.Context, t *transport.Transport, p *service) error {
	s.mu.Lock()
	s.services[t] = slices.DeleteFunc(s.services[t], func(x *service) bool { return x == p })
	s.mu.Unlock()
	return p.close(ctx, s.Life.Failed())
}

// close stops the proxy. That of a job that has failed drops what was pushed.
func (p *service) close(ctx context.Context, failed bool) (err error) {
	p.once.Do(func() {
		p.stop()
		if p.copier != nil {
			if failed {
				p.copier.Quit()
			}
			err = p.copier.Stop(ctx)
			select {
			case <-p.copier.Done():
				p.records.Close()
			default: // its thread is in the driver, and has the ring in use
				return
			}
		} else if p.queue != nil {
			if failed {
				p.ring.Fail(nil)
			}
			err = p.queue.Stop(ctx)
		} else {
			err = p.proxy.Stop(ctx)
		}
		select {
		case <-p.ended:
		case <-ctx.Done(): // it does not listen; its thread is not ours
		}
		for _, e := range []error{p.view.close(), p.ring.Close()} {
			if err == nil {
				err = e
			}
		}
		if errors.Is(err, framework.ErrPlugin) {
			err = nil
		}
	})
	return err
}
