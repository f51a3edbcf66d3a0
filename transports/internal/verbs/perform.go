package verbs

import (
	"fmt"
	"time"

	"github.com/mscclpp-go/mscclpp/framework"
	"github.com/mscclpp-go/mscclpp/framework/device"
	frameproxy "github.com/mscclpp-go/mscclpp/framework/proxy"
	"github.com/mscclpp-go/mscclpp/framework/ring"
)

// handle performs one trigger: puts and the signal behind them are posted by one call, and
// a flush is noted.
func (p *proxy) handle(t device.Trigger, pos uint64) frameproxy.Result {
	p.mu.Lock()
	defer p.mu.Unlock()
	if p.Lent() && !p.room(t) {
		return frameproxy.Later
	}
	if err := p.perform(t, pos); err != nil {
		return frameproxy.Fail(err)
	}
	return frameproxy.Continue
}

// room reports whether a trigger can be performed without waiting. One that makes no sense
// can be.
func (p *proxy) room(t device.Trigger) bool {
	kind := t.Snd >> 50 & 7
	if kind&device.TriggerData != 0 {
		if f := p.memory[t.Snd>>41&0x1ff].flow; f != nil && !f.room(t.Fst&0xffffffff) {
			return false
		}
	}
	if number := t.Snd >> 53 & 0x3ff; kind != device.TriggerData && number < semaphores {
		if f := p.semaphore[number].flow; f != nil && (!f.room(0) || f.table != nil && !f.table.room()) {
			return false
		}
	}
	return true
}

func (p *proxy) perform(t device.Trigger, pos uint64) error {
	kind := t.Snd >> 50 & 7
	number := uint32(t.Snd >> 53 & 0x3ff)
	if kind == 0 {
		return fmt.Errorf("%w: it asks for nothing: expected a put, a signal or a flush", framework.ErrInvalid)
	}
	var s *bound
	if kind&(device.TriggerSignal|device.TriggerFlush) != 0 {
		if number >= semaphores || p.semaphore[number].by == 0 {
			return fmt.Errorf("%w: semaphore %d is not bound", framework.ErrInvalid, number)
		}
		s = &p.semaphore[number]
	}
	var to *flow
	n := 0
	if kind&device.TriggerData != 0 {
		src, dst, err := p.ends(t)
		if err != nil {
			return err
		}
		to = dst.flow
		if n, err = p.put(t, src, dst); err != nil {
			return err
		}
	}
	if n > 0 && (s == nil || s.flow != to || kind&device.TriggerSignal == 0) {
		if _, err := to.post(p.batch[:n], false, &p.halt); err != nil {
			return err
		}
		n = 0
	}
	if kind&device.TriggerSignal != 0 {
		if err := p.signal(s, n); err != nil {
			return err
		}
	}
	if kind&device.TriggerFlush != 0 {
		return p.flush(s, number, pos)
	}
	return nil
}

// ends checks what a put cites.
func (p *proxy) ends(t device.Trigger) (src, dst *bound, err error) {
	bytes, from, to := t.Fst&0xffffffff, t.Fst>>32, t.Snd&0xffffffff
	a, b := t.Snd>>32&0x1ff, t.Snd>>41&0x1ff
	src, dst = &p.memory[a], &p.memory[b]
	switch {
	case src.by == 0:
		err = fmt.Errorf("source memory %d is not bound", a)
	case dst.by == 0:
		err = fmt.Errorf("target memory %d is not bound", b)
	case src.own == nil:
		err = fmt.Errorf("source memory %d is a peer's: expected own memory", a)
	case dst.own != nil:
		err = fmt.Errorf("target memory %d is own memory: expected a peer's", b)
	case from > src.own.bytes || bytes > src.own.bytes-from:
		err = fmt.Errorf("%d bytes at %d of source memory %d, which has %d", bytes, from, a, src.own.bytes)
	case to > dst.to.bytes || bytes > dst.to.bytes-to:
		err = fmt.Errorf("%d bytes at %d of target memory %d, which has %d", bytes, to, b, dst.to.bytes)
	default:
		return src, dst, nil
	}
	return nil, nil, fmt.Errorf("%w: %w", framework.ErrInvalid, err)
}

// put stages the writes of one trigger: one, if it is not enormous. It returns how many,
// and leaves room for a signal.
func (p *proxy) put(t device.Trigger, src, dst *bound) (int, error) {
	left, from, to := t.Fst&0xffffffff, t.Fst>>32, t.Snd&0xffffffff
	f := dst.flow
	piece := f.dev.longest()
	n := 0
	for ; left > 0; n++ {
		if n == batch-1 {
			if _, err := f.post(p.batch[:n], false, &p.halt); err != nil {
				return 0, err
			}
			n = 0
		}
		bytes := min(left, piece)
		r := request{
			opcode: opWrite, bytes: uint32(bytes), local: src.own.addr + from, lkey: src.own.lkey,
			remote: dst.to.addr + to, rkey: dst.to.rkey,
		}
		if src.mapped && bytes <= f.inline {
			r.flags = flagInline // the adapter need not fetch it
		}
		p.batch[n] = r
		f.touch(dst.to.addr+to, bytes, dst.to.rkey)
		left, from, to = left-bytes, from+bytes, to+bytes
	}
	return n, nil
}

// signal posts a signal behind n staged writes.
func (p *proxy) signal(s *bound, n int) error {
	f := s.flow
	if f.table != nil {
		d := f.table
		d.mu.Lock()
		defer d.mu.Unlock()
		immediate, err := d.take(s.number, &p.halt)
		if err != nil {
			return err
		}
		p.batch[n] = d.signal(immediate)
		_, err = f.post(p.batch[:n+1], true, &p.halt) // as an atomic, or it would have to be asked for soon
		f.clean()                                     // who hears that it was counted, knows that the data is there
		return err
	}
	p.batch[n] = request{
		opcode: opAdd, bytes: 8, local: f.box.region.addr + boxResult, lkey: f.box.region.lkey,
		remote: s.to.addr, rkey: s.to.rkey, value: 1,
	}
	_, err := f.post(p.batch[:n+1], true, &p.halt)
	f.clean()
	return err
}

// flush notes what must have happened before the flush word may be written.
func (p *proxy) flush(s *bound, number uint32, pos uint64) error {
	f := s.flow
	n, err := f.check(&p.halt)
	if err != nil {
		return err
	}
	w := flush{flow: f, request: n, slot: number, pos: pos}
	if f.table != nil {
		if w.signals, err = f.table.inquire(&p.halt); err != nil {
			return err
		}
	}
	p.pending = append(p.pending, w)
	if p.Lent() {
		_, err = p.progressLocked() // it may be done already, and who waits for it looks next
	}
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
		busy, err := f.progress()
		if err != nil {
			return false, err
		}
		steps += f.done()
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
		if w.flow.done() < w.request || w.flow.table != nil && w.flow.counted() < w.signals {
			break
		}
		p.ring.Complete(w.slot, w.pos)
		done++
	}
	if done > 0 {
		p.pending = p.pending[:copy(p.pending, p.pending[done:])]
	}
	outstanding = outstanding || len(p.pending) > 0
	if outstanding {
		p.patience(steps)
	} else {
		p.moved = time.Time{}
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

const breath = 50 * time.Microsecond
