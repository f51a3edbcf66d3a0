package verbs

// #include "abi.h"
import "C"

import (
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
	flow      *flow
	pair      *pair
	counts    [boxEntries]uint32
	raised    uint64
	roomy     uint64 // when room was made again
	announced uint64 // the count that was last sent to the peer
	often     uint64 // the count is sent after as many
	asked     bool   // to send it now
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
		i.conclude()
		for range f.theirs.receives { // the remaining completions have no owner
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

// help looks at the queues on the thread of a caller that waits for a signal.
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
	if !r.mu.TryLock() { // another thread looks
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
		if i.asked || i.raised-i.announced >= i.often {
			i.announce()
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
	r, err := ids.Find[*registration](&t.objects, to.id, "registration")
	if err != nil {
		return // the memory was closed: no caller waits for the signal
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

// announce makes room again, and writes the number of signals that were counted into the peer's
// mailbox. The word may be read late: then a higher number travels, which is as true.
func (i *incoming) announce() {
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
		i.announced, i.asked = i.raised, false
	}
}

// lastWord is how long the end of a connection may take for the message of conclude.
const lastWord = 50 * time.Millisecond

// conclude sends the peer the count. A peer that closes later cannot ask any more, and would
// learn from an adapter that does not answer.
func (i *incoming) conclude() {
	f := i.flow
	if i.announced == i.raised || f.failed.Load() {
		return
	}
	i.announce()
	f.mu.Lock()
	if f.posted-f.completed >= f.depth { // it would wait for an adapter that does not answer
		f.mu.Unlock()
		return
	}
	err, last := f.markLocked(), f.posted
	f.mu.Unlock()
	for start := time.Now(); err == nil && !f.reached(last) && time.Since(start) < lastWord; ring.Yield() {
		_, _, err = f.progress()
	}
}
