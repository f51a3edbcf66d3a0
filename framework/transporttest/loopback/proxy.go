package loopback

import (
	"context"
	"fmt"
	"sync"
	"sync/atomic"
	"time"

	"github.com/mscclpp-go/mscclpp/framework"
	"github.com/mscclpp-go/mscclpp/framework/kernel"
	"github.com/mscclpp-go/mscclpp/framework/memfd"
	"github.com/mscclpp-go/mscclpp/framework/ring"
)

// The objects that a trigger can cite: 9 bits of memory, and as many semaphores as the ring has
// flush words.
const (
	maxMemories   = 512
	maxSemaphores = kernel.RingFlushWords
)

// proxy drains one ring on one goroutine. Bindings are written once, and read by
// the goroutine without a lock.
type proxy struct {
	t          *Transport
	memories   [maxMemories]atomic.Pointer[boundMemory]
	semaphores [maxSemaphores]atomic.Pointer[boundSemaphore]

	mu       sync.Mutex
	ring     *ring.Ring
	bound    []*memfd.Memory
	stopping atomic.Bool
	ended    chan struct{}
	cause    error // valid once ended is closed
}

type boundMemory struct {
	mem   *memfd.Memory
	local bool // puts start here; else they end here
}

type boundSemaphore struct{ word *uint64 }

// NewProxy implements framework.Proxier.
func (t *Transport) NewProxy(context.Context) (framework.Proxy, error) {
	if t.byRank {
		return nil, failure("new proxy", framework.NoPeer, framework.ErrUnsupported, "ranks drive port channels themselves")
	}
	return &proxy{t: t, ended: make(chan struct{})}, nil
}

// BindMemory implements framework.Proxy.
func (p *proxy) BindMemory(_ context.Context, slot uint32, b framework.MemoryBinding) error {
	const op = "bind memory"
	if slot >= maxMemories {
		return failure(op, framework.NoPeer, framework.ErrInvalid, "slot %d: expected less than %d", slot, maxMemories)
	}
	if (b.Local == 0) == (b.Conn == 0) {
		return failure(op, framework.NoPeer, framework.ErrInvalid, "slot %d: expected either local or a peer's memory", slot)
	}
	bound := &boundMemory{local: b.Local != 0}
	var err error
	if bound.local {
		bound.mem, err = p.t.openLocal(op, b.Local)
	} else {
		bound.mem, err = p.t.openKey(op, b.Conn, b.Key)
	}
	if err != nil {
		return err
	}
	return p.keep(op, slot, bound.mem, p.memories[slot].CompareAndSwap(nil, bound))
}

// BindSemaphore implements framework.Proxy.
func (p *proxy) BindSemaphore(_ context.Context, slot uint32, b framework.SemaphoreBinding) error {
	const op = "bind semaphore"
	if slot >= maxSemaphores {
		return failure(op, framework.NoPeer, framework.ErrInvalid, "slot %d: expected less than %d", slot, maxSemaphores)
	}
	mem, err := p.t.openKey(op, b.Conn, b.Key)
	if err != nil {
		return err
	}
	if b.Offset%8 != 0 || mem.Len() < 8 || b.Offset > mem.Len()-8 || uintptr(mem.Addr())%8 != 0 {
		mem.Close()
		return failure(op, framework.NoPeer, framework.ErrInvalid, "word at %d of %d bytes: expected 8 aligned bytes within", b.Offset, mem.Len())
	}
	bound := &boundSemaphore{word: wordAt(mem, b.Offset)}
	return p.keep(op, slot, mem, p.semaphores[slot].CompareAndSwap(nil, bound))
}

// keep remembers a mapping that a slot uses, or drops it if the slot was taken.
func (p *proxy) keep(op string, slot uint32, mem *memfd.Memory, free bool) error {
	p.mu.Lock()
	defer p.mu.Unlock()
	if !free {
		mem.Close()
		return failure(op, framework.NoPeer, framework.ErrInvalid, "slot %d is bound already", slot)
	}
	p.bound = append(p.bound, mem)
	return nil
}

// Start implements framework.Proxy.
func (p *proxy) Start(_ context.Context, share framework.Share) error {
	p.mu.Lock()
	defer p.mu.Unlock()
	if p.ring != nil || p.stopping.Load() {
		return failure("start proxy", framework.NoPeer, framework.ErrInvalid, "it was started before")
	}
	r, err := ring.Open(share)
	if err != nil {
		return &framework.Error{Op: "start proxy", Transport: "loopback", Peer: framework.NoPeer, Err: err}
	}
	p.ring = r
	go p.drain()
	return nil
}

// Wait implements framework.Proxy.
func (p *proxy) Wait(ctx context.Context) error {
	select {
	case <-p.ended:
		return p.cause
	case <-ctx.Done():
		return ctx.Err()
	}
}

// Stop implements framework.Proxy.
func (p *proxy) Stop(ctx context.Context) error {
	p.mu.Lock()
	first, r := !p.stopping.Swap(true), p.ring
	p.mu.Unlock()
	if r == nil {
		if first {
			p.release()
			close(p.ended)
		}
		return nil
	}
	select {
	case <-p.ended:
		return nil
	case <-ctx.Done():
		return failure("stop proxy", framework.NoPeer, framework.ErrUnavailable, "%v", ctx.Err())
	}
}

// idle bounds a nap: Stop does not wake the loop, and does not have to.
const idle = 2 * time.Millisecond

func (p *proxy) drain() {
	defer close(p.ended)
	for {
		trigger, pos, ok := p.ring.Poll()
		if !ok {
			if p.stopping.Load() {
				break
			}
			p.ring.Park(idle)
			continue
		}
		if err := p.perform(trigger, pos); err != nil {
			p.cause = &framework.Error{Op: "proxy", Transport: "loopback", Peer: framework.NoPeer, Err: err}
			break
		}
		p.ring.Pop()
	}
	p.ring.Fail(p.cause)
	p.release()
}

// release unmaps everything. No other thread uses the mappings any more.
func (p *proxy) release() {
	p.mu.Lock()
	defer p.mu.Unlock()
	for _, m := range p.bound {
		m.Close()
	}
	p.bound = nil
	if p.ring != nil {
		p.ring.Close()
	}
}

// perform does what one trigger asks for: data, then signal, then flush. Stores through the mapping
// are visible to a reader that sees the signal, and when they are done they are visible: so a flush
// has nothing to wait for.
func (p *proxy) perform(t kernel.Trigger, pos uint64) error {
	size, from, to := t.Bytes(), t.From(), t.To()
	kind, slot := t.Kind(), t.Slot()
	if kind == 0 || slot >= maxSemaphores || p.semaphores[slot].Load() == nil {
		return fmt.Errorf("trigger %#x %#x of type %d cites semaphore %d, which is not bound: %w", t.Fst, t.Snd, kind, slot, framework.ErrInvalid)
	}
	if kind&kernel.TriggerData != 0 {
		src, dst := p.memories[t.Src()].Load(), p.memories[t.Dst()].Load()
		if src == nil || dst == nil || !src.local || dst.local {
			return fmt.Errorf("trigger cites memory %d and %d: expected bound local and peer's memory: %w", t.Src(), t.Dst(), framework.ErrInvalid)
		}
		if from+size > src.mem.Len() || to+size > dst.mem.Len() {
			return fmt.Errorf("put of %d bytes from %d of %d to %d of %d: %w", size, from, src.mem.Len(), to, dst.mem.Len(), framework.ErrInvalid)
		}
		copy(dst.mem.Bytes()[to:to+size], src.mem.Bytes()[from:from+size])
	}
	if kind&kernel.TriggerSignal != 0 {
		atomic.AddUint64(p.semaphores[slot].Load().word, 1)
	}
	if kind&kernel.TriggerFlush != 0 {
		p.ring.Complete(slot, pos)
	}
	return nil
}

func (t *Transport) openLocal(op string, id framework.ID) (*memfd.Memory, error) {
	t.mu.Lock()
	defer t.mu.Unlock()
	reg, err := find[*registration](t, op, "registration", id)
	if err != nil {
		return nil, err
	}
	return memfd.Open(reg.share.FD, reg.offset, reg.bytes)
}

func (t *Transport) openKey(op string, conn framework.ID, key framework.Parcel) (*memfd.Memory, error) {
	t.mu.Lock()
	defer t.mu.Unlock()
	c, err := find[*connection](t, op, "connection", conn)
	if err != nil {
		return nil, err
	}
	if c.cfg.Kind != framework.KindPort {
		return nil, failure(op, c.peers[0], framework.ErrInvalid, "a %s connection: expected port", c.cfg.Kind)
	}
	offset, bytes, err := t.decodeKey(key)
	if err != nil {
		return nil, &framework.Error{Op: op, Transport: "loopback", Peer: c.peers[0], Err: err}
	}
	return memfd.Open(key.Shares[0].FD, offset, bytes)
}
