package verbs

import (
	"context"
	"fmt"
	"slices"
	"sync"
	"sync/atomic"
	"time"

	"github.com/mscclpp-go/mscclpp/framework"
	"github.com/mscclpp-go/mscclpp/framework/kernel"
	"github.com/mscclpp-go/mscclpp/framework/observe"
	frameproxy "github.com/mscclpp-go/mscclpp/framework/proxy"
	"github.com/mscclpp-go/mscclpp/framework/ring"
	"github.com/mscclpp-go/mscclpp/transports/internal/ids"
)

const (
	memories   = 512
	semaphores = kernel.RingFlushWords
	park       = 100 * time.Millisecond // producers on the host wake a proxy
	nap        = time.Millisecond       // kernels of a device cannot
)

// proxy turns the triggers of one ring into work requests.
type proxy struct {
	*frameproxy.Base
	t    *Transport
	halt atomic.Bool // Stop has lost patience

	stopping atomic.Bool // Stop waits until signals are counted, too

	semaphore [semaphores]atomic.Pointer[bound] // nil: not bound; a post of nothing but a signal takes no lock of the proxy

	mu        sync.Mutex // held while another trigger is performed, and to bind
	memory    [memories]bound
	used      map[slot]bool // slots that were bound once; they are not given out again
	flows     []*flow
	ring      *ring.Ring
	pending   []flush     // in the order of their triggers
	open      atomic.Bool // there are pending ones
	ended     bool
	steps     uint64    // completions and counted signals so far
	moved     time.Time // when there was one more; zero while nothing is under way
	batch     [batch]request
	operation operation // of the trigger that is performed
	records   *observe.Loop
}

// proxies tells those of a process apart, for observers.
var proxies atomic.Int32

// bound is the object behind a slot.
type bound struct {
	by     framework.ID // registration or connection; 0: nothing
	flow   *flow        // of a peer's memory or semaphore
	own    *region
	mapped bool // own memory that this process can read
	to     target
	number uint32 // of a semaphore's entry in the peer's table
	left   bool   // the peer sees no signals to this semaphore any more
}

type slot struct {
	semaphore bool
	number    uint32
}

// flush is a trigger that completes later.
type flush struct {
	flow    *flow
	request uint64 // that must be done
	signals uint64 // that the peer must have counted
	slot    uint32
	pos     uint64
}

// NewProxy returns a proxy for one ring.
func (t *Transport) NewProxy(ctx context.Context) (framework.Proxy, error) {
	if err := ctx.Err(); err != nil {
		return nil, t.failure("proxy", err)
	}
	p := &proxy{t: t, used: map[slot]bool{}}
	p.Base = frameproxy.NewBase(func(r *ring.Ring) frameproxy.Handler {
		p.mu.Lock()
		p.ring, p.records = r, observe.ForPlugin(fmt.Sprintf("%s proxy %d", t.setup.Name, proxies.Add(1)))
		p.mu.Unlock()
		return p.handle
	}, frameproxy.Options{Spin: t.config.DrainSpin, Yield: t.config.DrainYield, Park: park, Nap: nap, CPU: t.config.DrainCPU + 1, Progress: p.progress, Owes: p.open.Load})
	t.objects.Enter(p)
	return p, nil
}

// BindMemory gives memory a number.
func (p *proxy) BindMemory(ctx context.Context, number uint32, b framework.MemoryBinding) error {
	err := ctx.Err()
	var v bound
	switch {
	case err != nil:
	case b.Local != 0 && b.Conn == 0:
		var r *registration
		if r, err = ids.Find[*registration](&p.t.objects, b.Local, "registration"); err == nil {
			v = bound{by: b.Local, own: r.region, mapped: r.mapped}
		}
	case b.Local == 0 && b.Conn != 0:
		v, err = p.peers(b.Conn, b.Key)
	default:
		err = fmt.Errorf("%w: memory %d: expected either a registration or a connection", framework.ErrInvalid, number)
	}
	if err == nil {
		err = p.bind(slot{number: number}, memories, v)
	}
	if err != nil {
		return p.t.failure("bind memory", err)
	}
	return nil
}

// BindSemaphore gives a peer's counter a number.
func (p *proxy) BindSemaphore(ctx context.Context, number uint32, b framework.SemaphoreBinding) error {
	if b.Conn == 0 {
		return p.part(number)
	}
	err := ctx.Err()
	var v bound
	if err == nil {
		v, err = p.peers(b.Conn, b.Key)
	}
	if err == nil && (b.Offset > v.to.bytes || v.to.bytes-b.Offset < 8 || (v.to.addr+b.Offset)%8 != 0) {
		err = fmt.Errorf("%w: semaphore at offset %d of %d bytes: expected 8 aligned bytes", framework.ErrInvalid, b.Offset, v.to.bytes)
	}
	s := slot{semaphore: true, number: number}
	if err == nil {
		err = p.free(s, semaphores)
	}
	if err == nil && v.flow.table != nil {
		v.number, err = v.flow.table.number(destination{v.to.id, b.Offset})
	}
	if err == nil {
		v.to.addr, v.to.bytes = v.to.addr+b.Offset, 8
		err = p.bind(s, semaphores, v)
	}
	if err != nil {
		return p.t.failure("bind semaphore", err)
	}
	return nil
}

// part drops later signals to a semaphore: kernels push them that do not know that the peer
// has left.
func (p *proxy) part(number uint32) error {
	p.mu.Lock()
	defer p.mu.Unlock()
	s := p.bound(number)
	if s == nil {
		return p.t.failure("bind semaphore", fmt.Errorf("%w: semaphore %d is not bound: expected a connection", framework.ErrInvalid, number))
	}
	s.left = true
	return nil
}

// bound is the object behind a semaphore's number, or nil.
func (p *proxy) bound(number uint32) *bound {
	if number >= semaphores {
		return nil
	}
	return p.semaphore[number].Load()
}

// peers is memory of a peer, by its key.
func (p *proxy) peers(conn framework.ID, k framework.Parcel) (bound, error) {
	c, err := ids.Find[*connection](&p.t.objects, conn, "connection")
	if err != nil {
		return bound{}, err
	}
	decoded, err := openKey(k, p.t.setup.Mode)
	if err != nil {
		return bound{}, &framework.Error{Peer: c.peer, Err: err}
	}
	return bound{by: conn, flow: c.flow, to: target{addr: decoded.addr, bytes: decoded.bytes, rkey: decoded.rkey, id: decoded.id}}, nil
}

func (p *proxy) free(s slot, limit uint32) error {
	p.mu.Lock()
	defer p.mu.Unlock()
	return p.freeLocked(s, limit)
}

func (p *proxy) freeLocked(s slot, limit uint32) error {
	switch {
	case s.number >= limit:
		return fmt.Errorf("%w: slot %d: expected 0 to %d", framework.ErrInvalid, s.number, limit-1)
	case p.ended:
		return fmt.Errorf("%w: the proxy has ended", framework.ErrClosed)
	case p.used[s]:
		return fmt.Errorf("%w: slot %d was bound before; a slot is written once", framework.ErrInvalid, s.number)
	}
	return nil
}

func (p *proxy) bind(s slot, limit uint32, v bound) error {
	p.mu.Lock()
	defer p.mu.Unlock()
	if err := p.freeLocked(s, limit); err != nil {
		return err
	}
	p.used[s] = true
	if s.semaphore {
		p.semaphore[s.number].Store(&v)
	} else {
		p.memory[s.number] = v
	}
	if v.flow != nil && !slices.Contains(p.flows, v.flow) {
		p.flows = append(p.flows, v.flow)
	}
	return nil
}

// Forget empties the slots that were bound with ids that are closed. Where memory goes away
// it waits for requests that may still read it.
func (p *proxy) Forget(closed map[framework.ID]bool) {
	p.mu.Lock()
	defer p.mu.Unlock()
	had, memory := false, false
	gone := map[*flow]bool{}
	forgotten := func(b *bound) bool {
		if b == nil || b.by == 0 || !closed[b.by] {
			return false
		}
		had, memory = true, memory || b.own != nil
		if b.flow != nil {
			gone[b.flow] = true
		}
		return true
	}
	for i := range p.memory {
		if b := &p.memory[i]; forgotten(b) {
			*b = bound{}
		}
	}
	for i := range p.semaphore {
		if s := &p.semaphore[i]; forgotten(s.Load()) {
			s.Store(nil)
		}
	}
	if !had {
		return
	}
	if memory {
		limit := time.Now().Add(settleLimit)
		for _, f := range p.flows {
			for time.Now().Before(limit) {
				if _, busy, err := f.progress(); !busy || err != nil {
					break
				}
				ring.Yield()
			}
		}
	}
	p.flows = slices.DeleteFunc(p.flows, func(f *flow) bool { return gone[f] })
	p.pending = slices.DeleteFunc(p.pending, func(w flush) bool { return gone[w.flow] })
	p.open.Store(len(p.pending) > 0)
}

// settleLimit bounds the wait for requests; those that fail end by themselves.
const settleLimit = 2 * time.Second

// Wait returns why the proxy has ended.
func (p *proxy) Wait(ctx context.Context) error {
	if err := p.Base.Wait(ctx); err != nil {
		return p.t.failure("proxy", err)
	}
	return nil
}

// Start drains the ring.
func (p *proxy) Start(ctx context.Context, share framework.Share) error {
	err := ctx.Err()
	if err == nil {
		err = p.Base.Start(ctx, share)
	}
	if err != nil {
		return p.t.failure("start proxy", err)
	}
	return nil
}

// Help implements framework.Helper: it posts and counts on the thread of the caller that
// pushes or waits.
func (p *proxy) Help(waits bool) (soon bool) {
	if waits {
		if r := p.t.receiver.Load(); r != nil {
			r.help()
			soon = true
		}
	}
	left := p.Lend(waits)
	return soon || left || p.open.Load()
}

// Stop performs the pushed triggers, and ends.
func (p *proxy) Stop(ctx context.Context) error {
	p.stopping.Store(true)
	stop := context.AfterFunc(ctx, func() { p.halt.Store(true) })
	err := p.Base.Stop(ctx)
	stop()
	p.mu.Lock()
	p.ended = true
	p.records.Close()
	p.mu.Unlock()
	p.t.objects.Leave(p)
	if err != nil {
		return p.t.failure("stop proxy", err)
	}
	return nil
}

var (
	_ framework.Proxy  = (*proxy)(nil)
	_ framework.Helper = (*proxy)(nil)
)
