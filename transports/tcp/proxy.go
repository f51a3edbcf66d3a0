package tcp

import (
	"context"
	"fmt"
	"math"
	"sync"
	"sync/atomic"
	"time"

	"golang.org/x/sys/unix"

	"github.com/mscclpp-go/mscclpp/framework"
	"github.com/mscclpp-go/mscclpp/framework/kernel"
	"github.com/mscclpp-go/mscclpp/framework/observe"
	"github.com/mscclpp-go/mscclpp/framework/ring"
)

const (
	// park bounds how long an idle proxy sleeps. Producers on the host wake it; the
	// bound is for one that dies between its push and the wake-up.
	park = 100 * time.Millisecond
	// doze is the bound where kernels of a GPU push, which cannot wake any thread.
	doze = 50 * time.Microsecond
	// patience is how many triggers are performed before small puts are sent, though
	// more are coming.
	patience = 32
)

// proxies tells those of a process apart, for observers.
var proxies atomic.Int32

// proxy drains one ring.
type proxy struct {
	t        *Transport
	slots    slots
	restless atomic.Bool // kernels of a device push
	stopping atomic.Bool
	broken   atomic.Pointer[error] // why the streams to a peer have ended

	binds  sync.Mutex // held while slots and groups change
	groups map[framework.ID]*outbound
	ring   atomic.Pointer[ring.Ring]
	freed  bool // the ring is unmapped

	records *observe.Loop
	taken   uint64 // position of the trigger that was recorded last; the loop's

	dirty []*outbound // have something that is held back; the loop's
	ended chan struct{}
	cause error // valid when ended is closed
}

// NewProxy returns a proxy for one ring.
func (t *Transport) NewProxy(ctx context.Context) (framework.Proxy, error) {
	if err := ctx.Err(); err != nil {
		return nil, failure("proxy", err)
	}
	p := &proxy{t: t, groups: map[framework.ID]*outbound{}, ended: make(chan struct{})}
	t.made.Enter(p)
	return p, nil
}

// Start drains the ring.
func (p *proxy) Start(ctx context.Context, share framework.Share) error {
	err := ctx.Err()
	if err == nil {
		err = p.start(share)
	}
	if err != nil {
		return failure("start proxy", err)
	}
	return nil
}

func (p *proxy) start(share framework.Share) error {
	p.binds.Lock()
	defer p.binds.Unlock()
	if p.ring.Load() != nil || p.stopping.Load() {
		return fmt.Errorf("%w: it was started before", framework.ErrInvalid)
	}
	r, err := ring.Open(share)
	if err != nil {
		return err
	}
	p.records = observe.ForPlugin(fmt.Sprint("tcp proxy ", proxies.Add(1)))
	p.ring.Store(r)
	go p.run()
	return nil
}

// Wait returns why the proxy has ended.
func (p *proxy) Wait(ctx context.Context) error {
	select {
	case <-p.ended:
		return p.cause
	case <-ctx.Done():
		return failure("proxy", fmt.Errorf("%w: it is still running: %w", framework.ErrUnavailable, ctx.Err()))
	}
}

// Stop performs what was pushed, and ends. When ctx ends first, the streams are cut:
// the peer may have stopped reading.
func (p *proxy) Stop(ctx context.Context) error {
	p.binds.Lock()
	first, running := !p.stopping.Swap(true), p.ring.Load() != nil
	if first && running {
		p.wake()
	}
	p.binds.Unlock()
	if first && !running {
		p.free()
		close(p.ended)
	}
	select {
	case <-p.ended:
		return nil
	case <-ctx.Done():
		p.binds.Lock()
		for _, g := range p.groups {
			g.finish(&framework.Error{Peer: g.peer, Err: fmt.Errorf("%w: the proxy was stopped", framework.ErrClosed)}, true)
		}
		p.binds.Unlock()
		return failure("stop proxy", fmt.Errorf("%w: what was pushed could not be sent in time: %w", framework.ErrUnavailable, ctx.Err()))
	}
}

// end makes the loop end because of a peer.
func (p *proxy) end(why error) {
	p.broken.CompareAndSwap(nil, &why)
	p.wake()
}

// wake ends the sleep of the loop. There is no ring before the start, and none after
// the end, when there are no groups either.
func (p *proxy) wake() {
	if r := p.ring.Load(); r != nil && !p.freed {
		r.Wake()
	}
}

func (p *proxy) run() {
	if err := p.drain(); err != nil {
		p.cause = failure("proxy", err)
	}
	p.ring.Load().Fail(p.cause)
	p.free()
	p.records.Close()
	close(p.ended)
}

// drain performs triggers until Stop, or until one cannot be performed. Asked to
// stop, it performs at most what fits into the ring: that was pushed before.
func (p *proxy) drain() error {
	idle, queue := newBackoff(p.t.config), p.ring.Load()
	last := ^uint64(0)
	for run := 0; ; {
		trigger, pos, ok := queue.Poll()
		stopping := p.stopping.Load()
		if broken := p.broken.Load(); broken != nil {
			return *broken
		}
		if stopping && last == ^uint64(0) {
			_, tail := queue.Base()
			last = tail + uint64(queue.Slots())
			continue // triggers that were pushed before are visible now
		}
		if ok && pos != last {
			var err error
			if p.records.Wanted() {
				err = p.performObserved(trigger, pos, queue.Depth())
			} else {
				err = p.perform(trigger, pos)
			}
			if err != nil {
				return err
			}
			queue.Pop()
			idle.reset()
			if run++; run%patience == 0 {
				if err := p.push(); err != nil {
					return err
				}
			}
			continue
		}
		if len(p.dirty) > 0 {
			if err := p.push(); err != nil {
				return err
			}
			continue
		}
		if stopping {
			return p.settle()
		}
		p.records.Rest()
		idle.wait(queue, p.restless.Load())
	}
}

// push sends what was held back.
func (p *proxy) push() error {
	for _, g := range p.dirty {
		if err := g.push(); err != nil && !g.shut() {
			return err
		}
	}
	clear(p.dirty)
	p.dirty = p.dirty[:0]
	return nil
}

// settle waits for all that was sent.
func (p *proxy) settle() error {
	p.binds.Lock()
	groups := make([]*outbound, 0, len(p.groups))
	for _, g := range p.groups {
		groups = append(groups, g)
	}
	p.binds.Unlock()
	for _, g := range groups {
		if err := g.settle(); err != nil {
			return err
		}
	}
	return nil
}

// performObserved is perform, with records of when it began and ended.
func (p *proxy) performObserved(t kernel.Trigger, pos, waiting uint64) error {
	bytes, depth, peer := uint64(0), uint16(min(waiting, math.MaxUint16)), framework.NoPeer
	if t.Kind()&kernel.TriggerData != 0 {
		bytes = t.Bytes()
		if to := p.slots.targets[t.Dst()].Load(); to != nil {
			peer = to.group.peer
		}
	} else if n := t.Slot(); n < semaphores {
		if m := p.slots.marks[n].Load(); m != nil {
			peer = m.group.peer
		}
	}
	p.records.Write(observe.Trigger|observe.Begin, pos, bytes, depth, peer)
	p.taken = pos
	err := p.perform(t, pos)
	p.records.Write(observe.Trigger|observe.End, pos, bytes, depth, peer)
	return err
}

// perform does what one trigger asks for: data, then signal, then flush.
func (p *proxy) perform(t kernel.Trigger, pos uint64) error {
	kind, slot := t.Kind(), t.Slot()
	bad := func(format string, args ...any) error {
		return fmt.Errorf("%w: trigger %#x %#x at position %d: %s", framework.ErrInvalid, t.Fst, t.Snd, pos, fmt.Sprintf(format, args...))
	}
	if kind == 0 {
		return bad("it asks for nothing")
	}
	var r request
	var m *mark
	if kind&(kernel.TriggerSignal|kernel.TriggerFlush) != 0 {
		if slot < semaphores {
			m = p.slots.marks[slot].Load()
		}
		if m == nil {
			return bad("semaphore %d is not bound", slot)
		}
		if kind&kernel.TriggerSignal != 0 {
			r.signal = m
		}
		r.flush, r.word, r.at = kind&kernel.TriggerFlush != 0, slot, pos
	}
	if kind&kernel.TriggerData == 0 {
		return p.send(m.group, r)
	}
	bytes, from, to := t.Bytes(), t.From(), t.To()
	src, dst := p.slots.sources[t.Src()].Load(), p.slots.targets[t.Dst()].Load()
	if src == nil || dst == nil {
		return bad("put from memory %d to %d: expected bound memory, own and a peer's", t.Src(), t.Dst())
	}
	if !src.region.retain() {
		return bad("the source was closed")
	}
	defer src.region.release()
	data, err := src.region.slice(from, bytes)
	if err != nil {
		return bad("source: %v", err)
	}
	if to > dst.key.bytes || bytes > dst.key.bytes-to {
		return bad("target: %d bytes at %d of memory of %d", bytes, to, dst.key.bytes)
	}
	if m != nil && m.group != dst.group { // no order is promised between two connections
		if err := p.send(m.group, r); err != nil {
			return err
		}
		r = request{}
	}
	r.data, r.from, r.to, r.offset = data, src.region, dst, to
	return p.send(dst.group, r)
}

func (p *proxy) send(g *outbound, r request) error {
	err := g.send(r)
	if err != nil && g.shut() {
		return nil // this rank has closed the connection, and waits for nothing
	}
	if len(g.held) > 0 && (len(p.dirty) == 0 || p.dirty[len(p.dirty)-1] != g) {
		p.dirty = append(p.dirty, g)
	}
	return err
}

// free gives back what the proxy holds. Nothing completes a flush after that.
func (p *proxy) free() {
	p.t.made.Leave(p)
	p.binds.Lock()
	defer p.binds.Unlock()
	for _, g := range p.groups {
		g.close()
	}
	clear(p.groups)
	for i := range p.slots.sources {
		if s := p.slots.sources[i].Swap(nil); s != nil {
			s.region.release()
		}
	}
	p.freed = true
	if r := p.ring.Load(); r != nil {
		_ = r.Close()
	}
}

// backoff decides what a loop without work does: it polls, yields, and sleeps.
type backoff struct {
	spin, yield time.Duration
	since       time.Time
}

func newBackoff(c Config) *backoff { return &backoff{spin: c.DrainSpin, yield: c.DrainYield} }

func (i *backoff) reset() { i.since = time.Time{} }

func (i *backoff) wait(r *ring.Ring, restless bool) {
	now := time.Now()
	if i.since.IsZero() {
		i.since = now
	}
	switch waited := now.Sub(i.since); {
	case waited < i.spin:
	case waited < i.spin+i.yield:
		_, _, _ = unix.Syscall(unix.SYS_SCHED_YIELD, 0, 0, 0)
	case restless:
		r.Park(doze)
	default:
		r.Park(park)
	}
}

var _ framework.Proxy = (*proxy)(nil)

// mark is a peer's semaphore.
type mark struct {
	target
	offset uint64
}

// slots are what triggers cite. They are written by the control plane and read by
// the drain loop.
type slots struct {
	sources [memories]atomic.Pointer[source]
	targets [memories]atomic.Pointer[target]
	marks   [semaphores]atomic.Pointer[mark]
}
