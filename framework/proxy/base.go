package proxy

import (
	"context"
	"fmt"
	"sync"
	"sync/atomic"

	"github.com/mscclpp-go/mscclpp/framework"
	"github.com/mscclpp-go/mscclpp/framework/ring"
)

// Base implements framework.Proxy for triggers that a program defines. A transport
// embeds it. If its triggers cite slots, it replaces BindMemory and BindSemaphore,
// which refuse here. The handler gets the ring, to complete flushes with.
type Base struct {
	handler func(r *ring.Ring) Handler
	o       Options

	running atomic.Pointer[Service] // service, for callers that do not lock

	mu      sync.Mutex
	service *Service
	stopped bool
	done    chan struct{} // closed once service has ended, or was stopped before it began
	err     error
}

// NewBase returns a proxy that waits for its ring.
func NewBase(handler func(r *ring.Ring) Handler, o Options) *Base {
	return &Base{handler: handler, o: o, done: make(chan struct{})}
}

// BindMemory refuses.
func (b *Base) BindMemory(context.Context, uint32, framework.MemoryBinding) error {
	return fmt.Errorf("bind memory: %w by this proxy", framework.ErrUnsupported)
}

// BindSemaphore refuses.
func (b *Base) BindSemaphore(context.Context, uint32, framework.SemaphoreBinding) error {
	return fmt.Errorf("bind semaphore: %w by this proxy", framework.ErrUnsupported)
}

// Start drains the ring behind the share.
func (b *Base) Start(_ context.Context, share framework.Share) error {
	b.mu.Lock()
	defer b.mu.Unlock()
	if b.service != nil || b.stopped {
		return fmt.Errorf("proxy start: %w: it was started or stopped before", framework.ErrInvalid)
	}
	r, err := ring.Open(share)
	if err != nil {
		return err
	}
	s := New(r, b.handler(r), b.o)
	b.running.Store(s)
	if err := s.Start(); err != nil {
		r.Close()
		return err
	}
	b.service = s
	go func() {
		<-s.done
		b.err = s.err
		r.Close()
		close(b.done)
	}()
	return nil
}

// Lend does the proxy's work on the caller's thread: see Service.Help. A transport
// whose handler returns Later implements framework.Helper with it.
func (b *Base) Lend(waits bool) (left bool) {
	s := b.running.Load()
	return s != nil && s.Help(waits)
}

// Borrow gives the caller the turn, to perform one trigger that is in no ring: see
// Service.Return. If it returns nil, the turn cannot be had now, and the trigger has to
// be pushed.
func (b *Base) Borrow() *Service {
	s := b.running.Load()
	switch {
	case s == nil || !s.turn.TryLock():
		return nil
	case s.over || s.failed != nil || s.stop.Load() != run || !s.ring.Idle(): // earlier requests of the caller come before
		s.turn.Unlock()
		return nil
	}
	s.woken = true
	return s
}

// Lent is for handlers: it reports whether this call is on a thread other than the
// proxy's, where it must not wait.
func (b *Base) Lent() bool {
	s := b.running.Load()
	return s != nil && s.lent
}

// Wait returns why the proxy has ended.
func (b *Base) Wait(ctx context.Context) error {
	select {
	case <-b.done:
		return b.err
	case <-ctx.Done():
		return ctx.Err()
	}
}

// Stop performs what was pushed, and ends.
func (b *Base) Stop(ctx context.Context) error {
	b.mu.Lock()
	s, first := b.service, !b.stopped
	b.stopped = true
	b.mu.Unlock()
	if s == nil {
		if first {
			close(b.done)
		}
		return nil
	}
	select {
	case <-b.done: // the ring is closed: there is nobody to wake
		return nil
	default:
	}
	if err := s.Stop(ctx); err != nil {
		return err
	}
	<-b.done
	return nil
}

var _ framework.Proxy = (*Base)(nil)
