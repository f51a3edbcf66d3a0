package verbs

import (
	"fmt"
	"time"

	"github.com/mscclpp-go/mscclpp/framework"
	"github.com/mscclpp-go/mscclpp/framework/kernel"
	"github.com/mscclpp-go/mscclpp/framework/observe"
	frameproxy "github.com/mscclpp-go/mscclpp/framework/proxy"
	"github.com/mscclpp-go/mscclpp/framework/ring"
)

// operation is the request of one trigger, checked.
type operation struct {
	kind            uint64
	src, dst        *bound // of a put, or nil
	bytes, from, to uint64
	s               *bound // of a signal or a flush, or nil
	slot            uint32 // its number
}

// handle performs one trigger: puts and the signal behind them are posted by one call, and
// a flush is noted.
func (p *proxy) handle(t kernel.Trigger, pos uint64) frameproxy.Result {
	p.mu.Lock()
	defer p.mu.Unlock()
	w := &p.operation
	if err := p.read(t, w); err != nil {
		return frameproxy.Fail(err)
	}
	if w.kind == kernel.TriggerSignal && w.s.left {
		return frameproxy.Continue
	}
	if p.Lent() && !w.room() {
		return frameproxy.Later
	}
	perform := p.perform
	if p.records.Wanted() {
		perform = p.performObserved
	}
	if err := perform(w, pos); err != nil {
		return frameproxy.Fail(err)
	}
	return frameproxy.Continue
}

// performNow is Perform of all but signals by themselves.
func (p *proxy) performNow(t kernel.Trigger) (taken, done bool) {
	turn := p.Borrow()
	if turn == nil {
		return false, false
	}
	var f *flow // once it is locked
	var err error
	p.mu.Lock()
	defer func() {
		if f != nil {
			f.mu.Unlock()
		}
		p.mu.Unlock()
		taken = turn.Return(t, taken, err, recover())
	}()
	w := &p.operation
	if p.read(t, w) != nil {
		return false, false // the pusher gets the error
	}
	to := w.s
	n := 0
	if w.dst != nil {
		if w.bytes > w.dst.flow.longest || to != nil && to.flow != w.dst.flow {
			return false, false
		}
		to = w.dst
		n, _ = p.put(w) // which posts nothing, since it is one request
	}
	signal, flush := w.kind&kernel.TriggerSignal != 0, w.kind&kernel.TriggerFlush != 0
	if d := to.flow.table; d != nil && (signal || flush) {
		if flush || !d.room() || !to.flow.room(w.bytes) {
			return false, false // the peer has to be asked, or waited for
		}
		err = p.signal(w.s, n)
		return true, false
	}
	f = to.flow
	f.mu.Lock()
	if signal {
		f.add(w.s.to, &p.batch[n])
		n++
	}
	var last uint64
	last, taken, err = f.nowLocked(p.batch[:n], signal, flush)
	if taken && flush && err == nil && f.completed < last {
		err = p.awaitAnswer(f, last)
	}
	return taken, taken && flush && err == nil && f.completed >= last
}

// awaitAnswer polls as long as a network takes to answer at most, mostly, and no trigger was
// pushed that would have to wait.
func (p *proxy) awaitAnswer(f *flow, request uint64) error {
	for start := time.Now(); p.ring.Idle() && time.Since(start) < answer; {
		if err := f.pollLocked(); err != nil || f.completed >= request {
			return err
		}
	}
	return nil
}

const answer = 20 * time.Microsecond

// read checks what a trigger cites.
func (p *proxy) read(t kernel.Trigger, w *operation) error {
	*w = operation{kind: t.Kind()}
	if w.kind == 0 {
		return fmt.Errorf("%w: it asks for nothing: expected a put, a signal or a flush", framework.ErrInvalid)
	}
	if w.kind&(kernel.TriggerSignal|kernel.TriggerFlush) != 0 {
		w.slot = t.Slot()
		if w.s = p.bound(w.slot); w.s == nil {
			return fmt.Errorf("%w: semaphore %d is not bound", framework.ErrInvalid, w.slot)
		}
	}
	if w.kind&kernel.TriggerData == 0 {
		return nil
	}
	w.bytes, w.from, w.to = t.Bytes(), t.From(), t.To()
	a, b := t.Src(), t.Dst()
	src, dst := &p.memory[a], &p.memory[b]
	var err error
	switch {
	case src.by == 0:
		err = fmt.Errorf("source memory %d is not bound", a)
	case dst.by == 0:
		err = fmt.Errorf("target memory %d is not bound", b)
	case src.own == nil:
		err = fmt.Errorf("source memory %d is a peer's: expected own memory", a)
	case dst.own != nil:
		err = fmt.Errorf("target memory %d is own memory: expected a peer's", b)
	case w.from > src.own.bytes || w.bytes > src.own.bytes-w.from:
		err = fmt.Errorf("%d bytes at %d of source memory %d, which has %d", w.bytes, w.from, a, src.own.bytes)
	case w.to > dst.to.bytes || w.bytes > dst.to.bytes-w.to:
		err = fmt.Errorf("%d bytes at %d of target memory %d, which has %d", w.bytes, w.to, b, dst.to.bytes)
	default:
		w.src, w.dst = src, dst
		return nil
	}
	return fmt.Errorf("%w: %w", framework.ErrInvalid, err)
}

// room reports whether it can be performed without waiting.
func (w *operation) room() bool {
	if w.dst != nil && !w.dst.flow.room(w.bytes) {
		return false
	}
	if w.s == nil {
		return true
	}
	f := w.s.flow
	if (w.dst == nil || w.dst.flow != f) && !f.room(0) {
		return false
	}
	return f.table == nil || f.table.room()
}

func (p *proxy) perform(w *operation, pos uint64) error {
	if err := p.post(w); err != nil || w.kind&kernel.TriggerFlush == 0 {
		return err
	}
	return p.flush(w, pos)
}

// post hands a put and a signal to the adapter.
func (p *proxy) post(w *operation) error {
	n := 0
	if w.dst != nil {
		var err error
		if n, err = p.put(w); err != nil {
			return err
		}
		if n > 0 && (w.kind&kernel.TriggerSignal == 0 || w.s.flow != w.dst.flow) {
			if _, err := w.dst.flow.post(p.batch[:n], false, &p.halt); err != nil {
				return err
			}
			n = 0
		}
	}
	if w.kind&kernel.TriggerSignal != 0 {
		return p.signal(w.s, n)
	}
	return nil
}

// put stages the writes of one trigger: one, if it is not enormous. It returns how many,
// and leaves room for a signal.
func (p *proxy) put(w *operation) (int, error) {
	left, from, to := w.bytes, w.from, w.to
	own, f := w.src.own, w.dst.flow
	piece := f.longest
	n := 0
	for ; left > 0; n++ {
		if n == batch-1 {
			if _, err := f.post(p.batch[:n], false, &p.halt); err != nil {
				return 0, err
			}
			n = 0
		}
		bytes := min(left, piece)
		r := &p.batch[n]
		*r = request{
			opcode: opWrite, role: carries, bytes: uint32(bytes), local: own.addr + from, lkey: own.lkey,
			remote: w.dst.to.addr + to, rkey: w.dst.to.rkey,
		}
		if w.src.mapped && bytes <= f.inline {
			r.flags = flagInline // the adapter need not fetch it
		}
		left, from, to = left-bytes, from+bytes, to+bytes
	}
	return n, nil
}

// signal posts a signal behind n staged writes.
func (p *proxy) signal(s *bound, n int) error {
	f := s.flow
	if d := f.table; d != nil {
		d.mu.Lock()
		defer d.mu.Unlock()
		immediate, err := d.take(s.number, &p.halt)
		if err != nil {
			return err
		}
		p.batch[n] = d.signal(immediate)
	} else {
		f.add(s.to, &p.batch[n])
	}
	_, err := f.post(p.batch[:n+1], true, &p.halt) // an immediate too, or it would have to be asked for soon
	return err
}

// add makes r raise a peer's counter.
func (f *flow) add(to target, r *request) {
	*r = request{
		opcode: opAdd, role: vouches, bytes: 8, local: f.box.region.addr + boxResult, lkey: f.box.region.lkey,
		remote: to.addr, rkey: to.rkey, value: 1,
	}
}

// flush notes what must have happened before the flush word may be written.
func (p *proxy) flush(w *operation, pos uint64) error {
	f := w.s.flow
	n, err := f.check(&p.halt)
	if err != nil {
		return err
	}
	open := flush{flow: f, request: n, slot: w.slot, pos: pos}
	if f.table != nil {
		if open.signals, err = f.table.inquire(&p.halt); err != nil {
			return err
		}
	}
	p.pending = append(p.pending, open)
	if p.Lent() {
		_, err = p.progressLocked() // it may be done already, and its waiter looks next
	}
	p.open.Store(len(p.pending) > 0)
	return err
}

// progress completes flushes, and reports whether anything is under way.
func (p *proxy) progress() (outstanding bool, err error) {
	p.mu.Lock()
	defer p.mu.Unlock()
	return p.progressLocked()
}

func (p *proxy) progressLocked() (outstanding bool, err error) {
	steps := uint64(0)
	for _, f := range p.flows {
		done, busy, err := f.progress()
		if err != nil {
			return false, err
		}
		steps += done
		if f.table != nil {
			steps += f.counted()
			if p.stopping.Load() && p.ring.Depth() == 0 {
				total, err := f.table.inquire(&p.halt)
				if err != nil {
					return false, err
				}
				busy = busy || f.counted() < total
			}
		}
		outstanding = outstanding || busy
	}
	done := 0
	for _, w := range p.pending {
		if !w.flow.reached(w.request) || w.flow.table != nil && w.flow.counted() < w.signals {
			break
		}
		if p.records.Wanted() {
			p.records.Write(observe.Completed|observe.Instant, w.pos, 0, 0, w.flow.peer)
		}
		p.ring.Complete(w.slot, w.pos)
		done++
	}
	if done > 0 {
		p.pending = p.pending[:copy(p.pending, p.pending[done:])]
		p.open.Store(len(p.pending) > 0)
	}
	outstanding = outstanding || len(p.pending) > 0
	if outstanding {
		p.patience(steps)
	} else {
		p.moved = time.Time{}
		p.records.Rest()
	}
	return outstanding, nil
}

// patience lets others have the core when an answer takes longer than networks take: a peer
// that was stopped, a lost packet, or an adapter that is emulated by these very cores.
func (p *proxy) patience(steps uint64) {
	if steps != p.steps || p.moved.IsZero() {
		p.steps, p.moved = steps, time.Now()
		return
	}
	if time.Since(p.moved) > p.t.config.DrainSpin+p.t.config.DrainYield {
		ring.Doze(breath)
	}
}
