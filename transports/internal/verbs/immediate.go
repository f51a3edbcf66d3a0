package verbs

// #include "abi.h"
import "C"

import (
	"encoding/binary"
	"fmt"
	"runtime"
	"slices"
	"sync"
	"sync/atomic"
	"time"
	"unsafe"

	"github.com/mscclpp-go/mscclpp/framework"
	"github.com/mscclpp-go/mscclpp/framework/ring"
	"github.com/mscclpp-go/mscclpp/transports/internal/ids"
)

// Signals without atomics. The sender gives each counter that it signals to an entry of a
// table in the peer's mailbox, written like any other data. A signal is an empty write with
// an immediate: the number of the entry, and the low bits of how many signals the counter
// has had. The peer's plugin takes it from its queue, rebuilds the 64-bit count, and raises
// the counter itself. Data that was put before is in place by then: requests of one pair are
// performed in order, and the completion of an immediate comes behind them.
//
// Each immediate takes up one reception. The peer tells how many it has counted, by a write
// into the sender's mailbox, after it has made room again; a sender with as many under way
// as the peer has room for waits. So the peer is never without room. It tells so when it has
// counted a quarter of what there is room for, and at once when a flush asks, by a signal to
// an entry that stands for no counter.

// destinations is the sender's side of the table.
type destinations struct {
	flow  *flow
	limit uint64 // signals that the peer has room for

	mu      sync.Mutex
	numbers map[destination]uint32
	counts  [boxEntries]uint32 // low bits of the signals that each entry has had
	sent    uint64
	asked   uint64 // sent, when the peer was asked
}

type destination struct {
	id     framework.ID // of the memory, at the peer
	offset uint64
}

func newDestinations(f *flow, room uint16) *destinations {
	return &destinations{flow: f, limit: uint64(room), numbers: map[destination]uint32{}}
}

// number gives a counter its entry, and writes it for the peer.
func (d *destinations) number(to destination) (uint32, error) {
	d.mu.Lock()
	defer d.mu.Unlock()
	if n, ok := d.numbers[to]; ok {
		return n, nil
	}
	n := uint32(len(d.numbers))
	if n == askEntry {
		return 0, fmt.Errorf("%w: more than %d semaphores over one connection", framework.ErrUnavailable, askEntry)
	}
	box := d.flow.box
	at := boxOut + uint64(n)*boxEntry
	b := box.memory.Bytes()[at : at+boxEntry]
	binary.LittleEndian.PutUint64(b, uint64(to.id))
	binary.LittleEndian.PutUint64(b[8:], to.offset)
	entry := []request{{
		opcode: opWrite, bytes: boxEntry, local: box.region.addr + at, lkey: box.region.lkey,
		remote: d.flow.theirs.mailbox + boxIn + uint64(n)*boxEntry, rkey: d.flow.theirs.rkey,
	}}
	if _, err := d.flow.post(entry, true, nil); err != nil {
		return 0, err
	}
	d.numbers[to] = n
	return n, nil
}

// inquire makes the peer tell what it has counted, and returns what it must have.
func (d *destinations) inquire(halt *atomic.Bool) (uint64, error) {
	d.mu.Lock()
	defer d.mu.Unlock()
	if d.asked == d.sent {
		return d.sent, nil
	}
	immediate, err := d.take(askEntry, halt)
	if err != nil {
		return 0, err
	}
	d.asked = d.sent
	one := [1]request{d.signal(immediate)}
	_, err = d.flow.post(one[:], true, halt)
	return d.sent, err
}

// signal is an empty write with an immediate.
func (d *destinations) signal(immediate uint32) request {
	return request{opcode: opWriteImm, role: vouches, remote: d.flow.theirs.mailbox, rkey: d.flow.theirs.rkey, value: uint64(immediate)}
}

// room reports whether the peer has room for a signal, or says what take does not believe.
func (d *destinations) room() bool {
	d.mu.Lock()
	defer d.mu.Unlock()
	counted := d.flow.counted()
	return counted > d.sent || d.sent-counted < d.limit
}

// take waits until the peer has room, and returns the immediate of the next signal to an
// entry. The caller posts it before anybody else takes one: put makes sure of it.
func (d *destinations) take(n uint32, halt *atomic.Bool) (uint32, error) {
	var start time.Time
	for tries := 0; ; tries++ {
		counted := d.flow.counted()
		if counted > d.sent {
			return 0, fmt.Errorf("%w: it has counted %d signals: expected at most the %d that were sent", framework.ErrPeer, counted, d.sent)
		}
		if d.sent-counted < d.limit {
			break
		}
		if err := d.flow.problem(); err != nil {
			return 0, err
		}
		if halt.Load() {
			return 0, fmt.Errorf("%w: stopped while the peer had no room for a signal", framework.ErrClosed)
		}
		if tries < 100 {
			continue
		}
		// A peer that is gone answers no write, but then none is under way: ask it.
		if start.IsZero() {
			start = time.Now()
		} else if time.Since(start) > askPeerAfter {
			start = time.Time{}
			if err := d.flow.ask(halt); err != nil {
				return 0, err
			}
		}
		if _, _, err := d.flow.progress(); err != nil {
			return 0, err
		}
		ring.Yield()
	}
	d.sent++
	d.counts[n] = (d.counts[n] + 1) & countMask
	return n<<countBits | d.counts[n], nil
}

const askPeerAfter = 500 * time.Millisecond

// ask posts a request that the peer's adapter has to answer.
func (f *flow) ask(halt *atomic.Bool) error {
	one := [1]request{f.question()}
	_, err := f.post(one[:], true, halt)
	return err
}

// receiver counts the immediates of all connections of a device, on one thread.
type receiver struct {
	t    *Transport
	dev  *adapter
	done chan struct{}

	mu      sync.Mutex // held while the thread looks at the queues
	flows   []*incoming
	stopped bool
	work    chan struct{}
	helped  uint64 // how often others have looked
	seen    uint64 // of these, by the thread
}

// incoming is the receiving side of a connection.
type incoming struct {
	flow   *flow
	pair   *pair
	counts [boxEntries]uint32
	raised uint64
	roomy  uint64 // when room was made again
	told   uint64 // the peer
	often  uint64 // it is told after as many
	asked  bool   // to tell now
}

func newReceiver(t *Transport, d *adapter) *receiver {
	r := &receiver{t: t, dev: d, done: make(chan struct{}), work: make(chan struct{}, 1)}
	go r.run()
	return r
}

func (r *receiver) add(f *flow) {
	r.mu.Lock()
	r.flows = append(r.flows, &incoming{flow: f, pair: f.pair, often: uint64(max(1, f.pair.receives/4))})
	f.pair.arm() // wakes a thread that sleeps
	r.mu.Unlock()
	r.wake()
}

// remove returns when the flow's pair is not looked at any more.
func (r *receiver) remove(f *flow) {
	r.mu.Lock()
	defer r.mu.Unlock()
	r.flows = slices.DeleteFunc(r.flows, func(i *incoming) bool {
		if i.flow != f {
			return false
		}
		for range f.theirs.receives { // what is left belongs to nobody
			if n, err := i.pair.pollCame(); n == 0 || err != nil {
				break
			}
		}
		return true
	})
}

func (r *receiver) wake() {
	select {
	case r.work <- struct{}{}:
	default:
	}
}

func (r *receiver) stop() {
	r.mu.Lock()
	r.stopped = true
	r.mu.Unlock()
	r.wake()
	<-r.done
}

// run is the thread: it polls, then yields, then sleeps until the adapter has something.
func (r *receiver) run() {
	runtime.LockOSThread() // and never unlocked, as for proxies
	defer close(r.done)
	idle := time.Now()
	for n := 1; ; n++ {
		moved, any, on, spare := r.pass(false)
		switch {
		case !on:
			return
		case spare:
			r.dev.awaitEvent(receiverWatch)
			idle = time.Now()
		case !any:
			<-r.work
			idle = time.Now()
		case moved:
			idle = time.Now()
		case n%16 != 0:
		case time.Since(idle) < r.t.config.DrainSpin:
		case time.Since(idle) < r.t.config.DrainSpin+r.t.config.DrainYield:
			ring.Yield()
		default:
			if moved, _, on, spare := r.pass(true); on && !moved && !spare {
				r.dev.awaitEvent(receiverSleep)
			}
		}
	}
}

// receiverSleep bounds a sleep, in milliseconds, for the end; receiverWatch one while others
// look at the queues.
const receiverSleep, receiverWatch = 50, 5

// help looks at the queues on the thread of who waits for a signal.
func (r *receiver) help() {
	if !r.mu.TryLock() {
		return
	}
	defer r.mu.Unlock()
	if !r.stopped {
		r.helped++
		r.passLocked(false)
	}
}

// pass looks at all queues; spare: others have done so since the last time.
func (r *receiver) pass(arm bool) (moved, any, on, spare bool) {
	if !r.mu.TryLock() { // somebody does
		return false, true, true, true
	}
	defer r.mu.Unlock()
	if r.stopped {
		return false, false, false, false
	}
	spare = r.seen != r.helped
	r.seen = r.helped
	return r.passLocked(arm && !spare), len(r.flows) > 0, true, spare
}

func (r *receiver) passLocked(arm bool) (moved bool) {
	for _, i := range r.flows {
		if i.flow.failed.Load() {
			continue
		}
		if arm {
			i.pair.arm() // then look: what came before raises no event
		}
		n, err := i.pair.pollCame()
		if err != nil {
			i.flow.fail(err)
			continue
		}
		for k := range i.pair.came[:n] {
			c := completionOf(&i.pair.came[k])
			if c.status == C.rv_wc_wr_flush_err {
				i.flow.blame()
			}
			i.take(r.t, c)
		}
		if i.asked || i.raised-i.told >= i.often {
			i.tell()
		}
		moved = moved || n > 0
	}
	return moved
}

// take counts one immediate.
func (i *incoming) take(t *Transport, c completion) {
	f := i.flow
	if c.status != 0 {
		f.fail(statusError(f.dev, "reception from "+f.theirs.device, c))
		return
	}
	n, count := c.value>>countBits, c.value&countMask
	fresh := (count - i.counts[n]) & countMask
	i.counts[n] = count
	i.raised++
	if fresh == 0 {
		f.fail(fmt.Errorf("%w: signal %d for entry %d came twice", framework.ErrPeer, count, n))
		return
	}
	if n == askEntry {
		i.asked = true
		return
	}
	entry := unsafe.Add(f.box.memory.Addr(), boxIn+uintptr(n)*boxEntry)
	to := destination{
		id:     framework.ID(atomic.LoadUint64((*uint64)(entry))),
		offset: atomic.LoadUint64((*uint64)(unsafe.Add(entry, 8))),
	}
	r, err := ids.Find[*registration](&t.things, to.id, "registration")
	if err != nil {
		return // the memory was closed: nobody waits for the signal
	}
	if !r.raise(to.offset, uint64(fresh)) {
		f.fail(fmt.Errorf("%w: signal for a counter at %d of %d bytes: expected an aligned word of host memory, or of memory with an inbox", framework.ErrPeer, to.offset, r.region.bytes))
	}
}

// blame ends the connection with what a request of its own has failed with, if one has: its
// completion was there before receptions were flushed because of it.
func (f *flow) blame() {
	f.mu.Lock()
	defer f.mu.Unlock()
	for f.err == nil {
		n, err := f.pair.pollSent()
		if n == 0 && err == nil {
			return
		}
		_ = f.sentLocked(n, err)
	}
}

// tell makes room again, and writes the number of signals that were counted into the peer's
// mailbox. The word may be read late: then a higher number travels, which is as true.
func (i *incoming) tell() {
	f := i.flow
	if n := int(i.raised - i.roomy); n > 0 {
		if err := i.pair.repost(n); err != nil {
			f.fail(err)
			return
		}
		i.roomy = i.raised
	}
	f.mu.Lock()
	defer f.mu.Unlock()
	if f.err != nil || f.posted-f.completed >= f.depth {
		if f.pollLocked() != nil || f.posted-f.completed >= f.depth {
			return // later: the sender does not run out of credit for long
		}
	}
	atomic.StoreUint64((*uint64)(unsafe.Add(f.box.memory.Addr(), boxRaised)), i.raised)
	one := [1]request{{
		opcode: opWrite, bytes: 8, local: f.box.region.addr + boxRaised, lkey: f.box.region.lkey,
		remote: f.theirs.mailbox + boxCredit, rkey: f.theirs.rkey,
	}}
	if f.inline >= 8 {
		one[0].flags |= flagInline
	}
	if _, err := f.postLocked(one[:], false, nil); err == nil {
		i.told, i.asked = i.raised, false
	}
}
