package loopnet

import (
	"context"
	"fmt"
	"sync"
	"sync/atomic"
	"time"

	"github.com/mscclpp-go/mscclpp/framework"
	"github.com/mscclpp-go/mscclpp/framework/kernel"
	"github.com/mscclpp-go/mscclpp/framework/ring"
)

// Limits of the slots that a trigger can cite.
const (
	memories   = 512
	semaphores = kernel.RingFlushWords
)

// proxy drains one ring. Slots are written once, by Bind, and read by the loop.
type proxy struct {
	t          *Transport
	memories   [memories]atomic.Pointer[memory]
	semaphores [semaphores]atomic.Pointer[semaphore]

	mu       sync.Mutex
	ring     *ring.Ring
	streams  map[framework.ID]*stream // by connection
	own      []*region
	stopping atomic.Bool
	broken   atomic.Pointer[error] // a stream has died
	ended    chan struct{}
	cause    error // valid when ended is closed
}

// memory is either own memory or a peer's.
type memory struct {
	local  *region
	stream *stream
	key    key
}

type semaphore struct {
	stream *stream
	key    key
	offset uint64
}

// NewProxy implements framework.Proxier.
func (t *Transport) NewProxy(context.Context) (framework.Proxy, error) {
	return &proxy{t: t, streams: map[framework.ID]*stream{}, ended: make(chan struct{})}, nil
}

// BindMemory implements framework.Proxy.
func (p *proxy) BindMemory(ctx context.Context, slot uint32, b framework.MemoryBinding) error {
	const op = "bind memory"
	if slot >= memories || (b.Local == 0) == (b.Conn == 0) {
		return failure(op, framework.NoPeer, framework.ErrInvalid, "slot %d: expected less than %d, and own memory or a peer's", slot, memories)
	}
	p.mu.Lock()
	defer p.mu.Unlock()
	if p.memories[slot].Load() != nil {
		return failure(op, framework.NoPeer, framework.ErrInvalid, "slot %d is bound already", slot)
	}
	m := &memory{}
	var err error
	if b.Local != 0 {
		if m.local, err = find[*region](p.t, op, b.Local); err != nil {
			return err
		}
		if !m.local.retain() {
			return failure(op, framework.NoPeer, framework.ErrClosed, "registration %d", b.Local)
		}
		p.own = append(p.own, m.local)
	} else if m.stream, m.key, err = p.reach(ctx, op, b.Conn, b.Key); err != nil {
		return err
	}
	p.memories[slot].Store(m)
	return nil
}

// BindSemaphore implements framework.Proxy.
func (p *proxy) BindSemaphore(ctx context.Context, slot uint32, b framework.SemaphoreBinding) error {
	const op = "bind semaphore"
	if slot >= semaphores {
		return failure(op, framework.NoPeer, framework.ErrInvalid, "slot %d: expected less than %d", slot, semaphores)
	}
	p.mu.Lock()
	defer p.mu.Unlock()
	if p.semaphores[slot].Load() != nil {
		return failure(op, framework.NoPeer, framework.ErrInvalid, "slot %d is bound already", slot)
	}
	s, k, err := p.reach(ctx, op, b.Conn, b.Key)
	if err != nil {
		return err
	}
	if b.Offset%8 != 0 || k.Bytes < 8 || b.Offset > k.Bytes-8 {
		return failure(op, s.peer, framework.ErrInvalid, "word at %d of %d bytes: expected 8 aligned bytes within", b.Offset, k.Bytes)
	}
	p.semaphores[slot].Store(&semaphore{s, k, b.Offset})
	return nil
}

// reach returns the stream over which a key's memory is reached, and opens it when
// it is first needed.
func (p *proxy) reach(ctx context.Context, op string, conn framework.ID, parcel framework.Parcel) (*stream, key, error) {
	c, err := find[*connection](p.t, op, conn)
	if err != nil {
		return nil, key{}, err
	}
	k, err := c.key(parcel)
	if err != nil {
		return nil, key{}, wrap(op, c.peer, err)
	}
	if s := p.streams[conn]; s != nil {
		return s, k, nil
	}
	if p.stopping.Load() {
		return nil, key{}, failure(op, c.peer, framework.ErrClosed, "the proxy was stopped")
	}
	tcp, err := c.dial(ctx)
	if err != nil {
		return nil, key{}, wrap(op, c.peer, err)
	}
	s := newStream(c.peer, tcp, p.t.config.Buffer, func(err error) { p.broken.CompareAndSwap(nil, &err) })
	p.streams[conn] = s
	return s, k, nil
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
		return wrap("start proxy", framework.NoPeer, err)
	}
	p.ring = r
	go p.run()
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

// Stop implements framework.Proxy. When ctx ends first, the streams are cut: the
// peer may have stopped reading.
func (p *proxy) Stop(ctx context.Context) error {
	p.mu.Lock()
	first, running := !p.stopping.Swap(true), p.ring != nil
	p.mu.Unlock()
	if first && !running {
		p.free()
		close(p.ended)
	}
	select {
	case <-p.ended:
		return nil
	case <-ctx.Done():
		p.cut()
		return failure("stop proxy", framework.NoPeer, framework.ErrUnavailable, "%v", ctx.Err())
	}
}

// nap bounds the sleep of an idle loop, and so how late it learns of a dead stream
// or of Stop.
const nap = 2 * time.Millisecond

func (p *proxy) run() {
	err := p.drain()
	if err != nil {
		p.cause = wrap("proxy", framework.PeerOf(err), err)
	}
	p.ring.Fail(p.cause)
	p.free()
	p.ring.Close()
	close(p.ended)
}

// drain performs triggers until Stop, or until one cannot be performed.
func (p *proxy) drain() error {
	for queued := false; ; {
		if broken := p.broken.Load(); broken != nil {
			return *broken
		}
		trigger, pos, ok := p.ring.Poll()
		switch {
		case ok:
			if err := p.perform(trigger, pos); err != nil {
				return err
			}
			p.ring.Pop()
			queued = true
		case queued: // no push just now: send the bytes that were held back
			if err := p.each((*stream).push); err != nil {
				return err
			}
			queued = false
		case p.stopping.Load():
			return p.each((*stream).settle)
		default:
			p.ring.Park(nap)
		}
	}
}

// perform turns one trigger into frames: data, then signal, then flush.
func (p *proxy) perform(t kernel.Trigger, pos uint64) error {
	kind, slot := t.Kind(), t.Slot()
	if slot >= semaphores || p.semaphores[slot].Load() == nil {
		return fmt.Errorf("trigger %#x %#x cites semaphore %d, which is not bound: %w", t.Fst, t.Snd, slot, framework.ErrInvalid)
	}
	if kind&kernel.TriggerData != 0 {
		if err := p.put(t); err != nil {
			return err
		}
	}
	s := p.semaphores[slot].Load()
	if kind&kernel.TriggerSignal != 0 {
		if err := s.stream.send(frame{Kind: frameSignal, Region: s.key.ID, Offset: s.offset}, nil); err != nil {
			return err
		}
	}
	if kind&kernel.TriggerFlush != 0 {
		return s.stream.ask(func() { p.ring.Complete(slot, pos) })
	}
	return nil
}

func (p *proxy) put(t kernel.Trigger) error {
	bytes, from, to := t.Bytes(), t.From(), t.To()
	src, dst := p.memories[t.Src()].Load(), p.memories[t.Dst()].Load()
	if src == nil || dst == nil || src.local == nil || dst.stream == nil {
		return fmt.Errorf("put from memory %d to %d: expected bound memory, own and a peer's: %w", t.Src(), t.Dst(), framework.ErrInvalid)
	}
	data, err := src.local.slice(from, bytes)
	if err != nil {
		return fmt.Errorf("source of a put: %w", err)
	}
	if to > dst.key.Bytes || bytes > dst.key.Bytes-to {
		return fmt.Errorf("target of a put: %d bytes at %d of memory of %d: %w", bytes, to, dst.key.Bytes, framework.ErrInvalid)
	}
	return dst.stream.send(frame{Kind: framePut, Region: dst.key.ID, Offset: to, Bytes: bytes}, data)
}

// each calls f on every stream.
func (p *proxy) each(f func(*stream) error) error {
	p.mu.Lock()
	list := make([]*stream, 0, len(p.streams))
	for _, s := range p.streams {
		list = append(list, s)
	}
	p.mu.Unlock()
	for _, s := range list {
		if err := f(s); err != nil {
			return err
		}
	}
	return nil
}

// cut ends all streams.
func (p *proxy) cut() {
	p.mu.Lock()
	defer p.mu.Unlock()
	for _, s := range p.streams {
		s.conn.Close()
	}
}

// free gives back what the proxy holds. An answer that is being taken writes to
// the ring, which must still be there.
func (p *proxy) free() {
	p.cut()
	p.mu.Lock()
	defer p.mu.Unlock()
	for _, s := range p.streams {
		<-s.over
	}
	for _, r := range p.own {
		r.release()
	}
	p.own = nil
}
