package mirror

import (
	"context"
	"fmt"
	"sync"

	"github.com/mscclpp-go/mscclpp/framework"
)

// NewProxy implements framework.Proxier.
func (t *Transport) NewProxy(context.Context) (framework.Proxy, error) {
	return &proxy{done: make(chan struct{})}, nil
}

// proxy ends with an error when slot 666 is bound.
type proxy struct {
	mu    sync.Mutex
	done  chan struct{}
	ended bool
	cause error
}

func (p *proxy) end(cause error) {
	p.mu.Lock()
	defer p.mu.Unlock()
	if !p.ended {
		p.ended, p.cause = true, cause
		close(p.done)
	}
}

func (p *proxy) BindMemory(_ context.Context, slot uint32, m framework.MemoryBinding) error {
	if slot == 666 {
		p.end(&framework.Error{Op: "drain", Transport: "mirror", Peer: 3, Err: fmt.Errorf("%w: slot %d: %s", framework.ErrInvalid, slot, m.Key.Data)})
	}
	return nil
}

func (p *proxy) BindSemaphore(_ context.Context, slot uint32, s framework.SemaphoreBinding) error {
	if s.Offset%8 != 0 {
		return fmt.Errorf("%w: semaphore %d of connection %d at %d with %d shares", framework.ErrInvalid, slot, s.Conn, s.Offset, len(s.Key.Shares))
	}
	return nil
}

func (p *proxy) Start(_ context.Context, ring framework.Share) error {
	if _, err := ring.FD.Stat(); err != nil {
		return err
	}
	return nil
}

func (p *proxy) Wait(ctx context.Context) error {
	select {
	case <-p.done:
		p.mu.Lock()
		defer p.mu.Unlock()
		return p.cause
	case <-ctx.Done():
		return ctx.Err()
	}
}

func (p *proxy) Stop(context.Context) error {
	p.end(nil)
	return nil
}
