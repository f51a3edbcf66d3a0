package comm

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"sync"

	"github.com/mscclpp-go/mscclpp/framework"
	"github.com/mscclpp-go/mscclpp/framework/device"
	"github.com/mscclpp-go/mscclpp/framework/ring"
)

// proxyService is one ring and the proxy that drains it, for port channels of a
// communicator over one transport. The numbers that triggers cite are given out
// once: when they run out the next channel gets another ring, and a ring whose
// channels are all closed is closed too.
type proxyService struct {
	ring  *ring.Ring
	proxy framework.Proxy
	stop  context.CancelFunc
	ended chan struct{} // closed when nobody waits for the proxy's end any more
	once  sync.Once

	memories   uint32 // numbers used so far; they change under Communicator.setup
	semaphores uint32

	mu       sync.Mutex
	channels int  // open
	full     bool // no number is left
}

// Limits of the trigger format.
const (
	ringSlots      = 512
	memorySlots    = 1 << 9
	semaphoreSlots = min(1<<10, device.RingFlushWords)
)

// portBinding is what the triggers of one channel cite.
type portBinding struct {
	src, dst  framework.MemoryBinding
	semaphore framework.SemaphoreBinding
}

type portSlots struct{ src, dst, semaphore uint32 }

// proxy returns a service for a transport that has room for one more channel, and
// counts that channel. The caller holds c.setup.
func (c *Communicator) proxy(ctx context.Context, t *Transport) (*proxyService, error) {
	for _, p := range c.services(t) {
		if p.memories+2 <= memorySlots && p.semaphores < semaphoreSlots {
			p.enter()
			return p, nil
		}
	}
	proxier, ok := t.Transport.(framework.Proxier)
	if !ok {
		return nil, fmt.Errorf("%w: %s claims a proxy but offers none", framework.ErrPlugin, t.Name)
	}
	r, err := ring.New(ringSlots)
	if err != nil {
		return nil, err
	}
	proxy, err := proxier.NewProxy(ctx)
	if err != nil {
		r.Close()
		return nil, err
	}
	p := &proxyService{ring: r, proxy: proxy, ended: make(chan struct{})}
	if err := p.start(ctx, c); err != nil {
		undo(proxy.Stop)
		r.Close()
		return nil, err
	}
	p.enter()
	c.parts.mu.Lock()
	defer c.parts.mu.Unlock()
	c.proxies[t] = append(c.proxies[t], p)
	return p, nil
}

// services lists the rings of a transport, the oldest first.
func (c *Communicator) services(t *Transport) []*proxyService {
	c.parts.mu.Lock()
	defer c.parts.mu.Unlock()
	return slices.Clone(c.proxies[t])
}

func (p *proxyService) start(ctx context.Context, c *Communicator) error {
	share, err := p.ring.Share()
	if err != nil {
		return err
	}
	defer share.Close()
	if err := p.proxy.Start(ctx, share); err != nil {
		return err
	}
	waitCtx, cancel := context.WithCancel(context.Background())
	p.stop = cancel
	go func() {
		defer close(p.ended)
		err := p.proxy.Wait(waitCtx)
		if waitCtx.Err() != nil {
			return
		}
		if err == nil {
			err = fmt.Errorf("%w: it ended though nobody stopped it", framework.ErrPlugin)
		}
		c.Abort(&framework.Error{Op: "proxy", Peer: c.Rank(), Err: err})
	}()
	return nil
}

// bind gives numbers to what a channel's triggers cite. A number is used up also
// when that fails.
func (p *proxyService) bind(ctx context.Context, b portBinding) (portSlots, error) {
	n := portSlots{src: p.memories, dst: p.memories + 1, semaphore: p.semaphores}
	p.memories += 2
	p.semaphores++
	p.mu.Lock()
	p.full = p.memories+2 > memorySlots || p.semaphores == semaphoreSlots
	p.mu.Unlock()
	if err := p.proxy.BindMemory(ctx, n.src, b.src); err != nil {
		return n, err
	}
	if err := p.proxy.BindMemory(ctx, n.dst, b.dst); err != nil {
		return n, err
	}
	return n, p.proxy.BindSemaphore(ctx, n.semaphore, b.semaphore)
}

func (p *proxyService) enter() {
	p.mu.Lock()
	defer p.mu.Unlock()
	p.channels++
}

// leave counts a channel that is closed. It reports whether the service is of no
// use any more.
func (p *proxyService) leave() bool {
	p.mu.Lock()
	defer p.mu.Unlock()
	p.channels--
	return p.channels == 0 && p.full
}

// retire ends a service that is full of closed channels.
func (c *Communicator) retire(ctx context.Context, t *Transport, p *proxyService) error {
	c.parts.mu.Lock()
	c.proxies[t] = slices.DeleteFunc(c.proxies[t], func(x *proxyService) bool { return x == p })
	c.parts.mu.Unlock()
	return p.close(ctx)
}

func (p *proxyService) close(ctx context.Context) (err error) {
	p.once.Do(func() {
		p.stop()
		err = p.proxy.Stop(ctx)
		select {
		case <-p.ended:
		case <-ctx.Done(): // it does not listen; its thread is not ours
		}
		if e := p.ring.Close(); err == nil {
			err = e
		}
		if errors.Is(err, framework.ErrPlugin) {
			err = nil
		}
	})
	return err
}
