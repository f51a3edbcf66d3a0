package shm

import (
	"context"
	"fmt"
	"sync"
	"time"

	"github.com/mscclpp-go/mscclpp/framework"
	"github.com/mscclpp-go/mscclpp/framework/memfd"
	"github.com/mscclpp-go/mscclpp/framework/ring"
	"github.com/mscclpp-go/mscclpp/transports/internal/drain"
	"github.com/mscclpp-go/mscclpp/transports/internal/fault"
	"github.com/mscclpp-go/mscclpp/transports/internal/ids"
)

// park bounds how long an idle proxy sleeps. Producers on the host wake it; the
// bound is for one that dies between its push and the wake-up.
const park = 100 * time.Millisecond

// proxy drains one ring: it maps what is bound, and the loop copies.
type proxy struct {
	t    *Transport
	loop *drain.Loop

	mu    sync.Mutex
	slots map[slot]framework.ID // the object that each slot was bound with
}

type slot struct {
	semaphore bool
	number    uint32
}

// NewProxy returns a proxy for one ring.
func (t *Transport) NewProxy(ctx context.Context) (framework.Proxy, error) {
	if err := ctx.Err(); err != nil {
		return nil, failure("proxy", err)
	}
	p := &proxy{
		t:     t,
		loop:  drain.New(drain.Options{Spin: t.config.DrainSpin, Yield: t.config.DrainYield, Park: park, CPU: t.config.DrainCPU}),
		slots: map[slot]framework.ID{},
	}
	t.made.Enter(p)
	return p, nil
}

// BindMemory maps the memory for the loop.
func (p *proxy) BindMemory(ctx context.Context, number uint32, b framework.MemoryBinding) error {
	err := ctx.Err()
	switch {
	case err != nil:
	case b.Local != 0 && b.Conn == 0:
		err = p.bindLocal(number, b.Local)
	case b.Local == 0 && b.Conn != 0:
		err = p.bindPeer(slot{number: number}, b.Conn, b.Key, func(k key, s framework.Share) error {
			m, err := memfd.Open(s.FD, k.offset, k.bytes)
			if err != nil {
				return err
			}
			return p.loop.BindMemory(number, m, false)
		})
	default:
		err = fmt.Errorf("%w: memory %d: expected either a registration or a connection", framework.ErrInvalid, number)
	}
	if err != nil {
		return failure("bind memory", err)
	}
	return nil
}

func (p *proxy) bindLocal(number uint32, id framework.ID) error {
	p.mu.Lock()
	defer p.mu.Unlock()
	r, err := ids.Find[*registration](&p.t.made, id, "registration")
	if err != nil {
		return err
	}
	m, err := memfd.Open(r.share.FD, r.offset, r.bytes)
	if err != nil {
		return err
	}
	if err := p.loop.BindMemory(number, m, true); err != nil {
		return err
	}
	p.slots[slot{number: number}] = id
	return nil
}

// BindSemaphore maps the word that signals raise.
func (p *proxy) BindSemaphore(ctx context.Context, number uint32, b framework.SemaphoreBinding) error {
	err := ctx.Err()
	if err == nil {
		err = p.bindPeer(slot{semaphore: true, number: number}, b.Conn, b.Key, func(k key, s framework.Share) error {
			if b.Offset > k.bytes || k.bytes-b.Offset < 8 || (k.offset+b.Offset)%8 != 0 {
				return fmt.Errorf("%w: semaphore at offset %d of %d bytes: expected 8 aligned bytes", framework.ErrInvalid, b.Offset, k.bytes)
			}
			m, err := memfd.Open(s.FD, k.offset+b.Offset, 8)
			if err != nil {
				return err
			}
			return p.loop.BindSemaphore(number, m)
		})
	}
	if err != nil {
		return failure("bind semaphore", err)
	}
	return nil
}

func (p *proxy) bindPeer(s slot, conn framework.ID, k framework.Parcel, bind func(key, framework.Share) error) error {
	p.mu.Lock()
	defer p.mu.Unlock()
	c, err := ids.Find[*connection](&p.t.made, conn, "connection")
	if err != nil {
		return err
	}
	if c.config.Kind != framework.KindPort {
		return fmt.Errorf("%w: connection %d is of kind %v: expected port", framework.ErrInvalid, conn, c.config.Kind)
	}
	decoded, share, err := openKey(k)
	if err != nil {
		return fault.Of(c.peers[0], err)
	}
	if err := bind(decoded, share); err != nil {
		return err
	}
	p.slots[s] = conn
	return nil
}

// Forget empties the slots that were bound with ids that are closed.
func (p *proxy) Forget(closed map[framework.ID]bool) {
	p.mu.Lock()
	defer p.mu.Unlock()
	for s, id := range p.slots {
		if !closed[id] {
			continue
		}
		delete(p.slots, s)
		if s.semaphore {
			p.loop.UnbindSemaphore(s.number)
		} else {
			p.loop.UnbindMemory(s.number)
		}
	}
}

// Start drains the ring.
func (p *proxy) Start(ctx context.Context, share framework.Share) error {
	if err := ctx.Err(); err != nil {
		return failure("start proxy", err)
	}
	r, err := ring.Open(share)
	if err == nil {
		err = p.loop.Start(r)
	}
	if err != nil {
		return failure("start proxy", err)
	}
	return nil
}

// Wait returns why the proxy has ended.
func (p *proxy) Wait(ctx context.Context) error {
	if err := p.loop.Wait(ctx); err != nil {
		return failure("proxy", err)
	}
	return nil
}

// Stop performs the pushed triggers, and ends.
func (p *proxy) Stop(ctx context.Context) error {
	err := p.loop.Stop(ctx)
	p.t.made.Leave(p)
	if err != nil {
		return failure("stop proxy", err)
	}
	return nil
}

var _ framework.Proxy = (*proxy)(nil)
