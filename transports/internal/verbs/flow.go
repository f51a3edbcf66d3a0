package verbs

import (
	"fmt"
	"sync"
	"sync/atomic"
	"time"
	"unsafe"

	"github.com/mscclpp-go/mscclpp/framework"
	"github.com/mscclpp-go/mscclpp/framework/ring"
)

// flow is the sending side of a connection. Requests are numbered from 1 in the order in
// which they are posted, which is that in which they complete.
//
// Few of them ask for a completion: an atomic, the last one that a flush waits for, and
// otherwise one behind which no other is to come, and one in a quarter of the queue. So a put
// by itself is heard of. A connection that is left alone with requests behind the last of these
// gets one more that is.
type flow struct {
	dev     *adapter
	pair    *pair
	box     *mailbox
	peer    int
	inline  uint64 // bytes that travel inside a request
	theirs  address
	depth   uint64
	longest uint64        // bytes of one request
	table   *destinations // of signals by immediates; nil for atomics

	mu        sync.Mutex
	posted    uint64 // number of the last request
	completed uint64 // number of the last that is known to be done
	marked    uint64 // number of the last that will be
	dirty     bool   // puts were posted that nothing behind them vouches for
	last      target // of the last put
	looked    uint64 // posted, when it was looked at
	since     time.Time
	err       error
	failed    atomic.Bool // err is set
}

// fullSpin is how long a full queue is polled before it is looked at now and then.
const fullSpin = 20 * time.Microsecond

// markAfter is how long a connection is left alone before it is marked.
const markAfter = 20 * time.Microsecond

func newFlow(e *endpoint, a address, peer int) *flow {
	f := &flow{dev: e.dev, pair: e.pair, box: e.box, peer: peer, inline: uint64(e.pair.inline), theirs: a, depth: uint64(e.t.config.QueueDepth), longest: e.dev.longest()}
	if most := uint64(e.dev.c.attr.max_qp_wr); most > 0 {
		f.depth = min(f.depth, most)
	}
	if e.t.setup.Mode == Immediate {
		f.table = newDestinations(f, a.receives)
	}
	return f
}

// close drops what is under way, and touches the pair for the last time: another connection
// may take it.
func (f *flow) close() {
	f.mu.Lock()
	defer f.mu.Unlock()
	f.failLocked(fmt.Errorf("%w: the connection was closed", framework.ErrClosed))
	_ = f.pair.reset() // a pair that cannot be reset is replaced with the endpoint
	for range f.depth {
		if n, err := f.pair.pollSent(); n == 0 || err != nil {
			break
		}
	}
}

// fail ends the connection; the first reason stays.
func (f *flow) fail(err error) {
	f.mu.Lock()
	defer f.mu.Unlock()
	f.failLocked(err)
}

func (f *flow) failLocked(err error) {
	if f.err == nil {
		f.err = &framework.Error{Peer: f.peer, Err: err}
		f.failed.Store(true)
	}
}

// problem returns why the connection has ended.
func (f *flow) problem() error {
	if !f.failed.Load() {
		return nil
	}
	f.mu.Lock()
	defer f.mu.Unlock()
	return f.err
}

// post gives requests to the adapter, at most a batch, by one call; known: the last one is
// to complete. While the queue is full it waits, which the adapter bounds: each request
// ends within the time for retries.
func (f *flow) post(rs []request, known bool, halt *atomic.Bool) (uint64, error) {
	f.mu.Lock()
	defer f.mu.Unlock()
	return f.postLocked(rs, known, halt)
}

func (f *flow) postLocked(rs []request, known bool, halt *atomic.Bool) (uint64, error) {
	if err := f.awaitRoom(len(rs), halt); err != nil {
		return 0, err
	}
	return f.submit(rs, known, false)
}

// awaitRoom waits until so many requests fit into the queue.
func (f *flow) awaitRoom(n int, halt *atomic.Bool) error {
	var start time.Time
	for tries := 0; ; tries++ {
		if f.err != nil {
			return f.err
		}
		if f.posted-f.completed+uint64(n) <= f.depth {
			return nil
		}
		if err := f.pollLocked(); err != nil {
			return err
		}
		if halt != nil && halt.Load() {
			return fmt.Errorf("%w: stopped while the queue of requests was full", framework.ErrClosed)
		}
		if tries == 0 {
			start = time.Now()
		}
		if tries%8 == 7 && time.Since(start) > fullSpin {
			f.mu.Unlock()
			ring.Doze(breath) // there is work for longer, and an emulated adapter needs the core for it
			f.mu.Lock()
		}
	}
}

// submit gives requests to the adapter; look: and takes completions, by the same call.
func (f *flow) submit(rs []request, known, look bool) (uint64, error) {
	n := f.posted
	for i := range rs {
		r := &rs[i]
		n++
		switch r.role {
		case carries: // the check that follows is of where the data went: another device's memory is behind another bus
			f.dirty, f.last = true, target{addr: r.remote, bytes: uint64(r.bytes), rkey: r.rkey}
		case vouches:
			f.dirty = false
		}
		last := i == len(rs)-1
		if last && (known || f.marked <= f.completed || n-f.marked >= f.depth/4) {
			r.flags |= flagSignaled
		}
		if r.flags&flagSignaled != 0 {
			f.marked = n
		}
		f.pair.stage(i, n, r)
	}
	came, err := f.pair.post(len(rs), look)
	if err != nil {
		f.failLocked(err)
		return 0, f.err
	}
	f.posted = n
	return n, f.sentLocked(came, nil)
}

// nowLocked posts requests if they fit into the queue, and says which one is the last. For a
// flush it is one whose completion means that all earlier puts are visible, and completions
// are taken by the same call: the answer of an adapter that is emulated is there by then.
func (f *flow) nowLocked(rs []request, known, flush bool) (last uint64, taken bool, err error) {
	if f.failed.Load() || f.posted-f.completed+uint64(len(rs))+1 > f.depth {
		return 0, false, nil // the pusher gets the error, or waits
	}
	last = f.posted
	if len(rs) > 0 {
		if last, err = f.submit(rs, known, flush && known); err != nil {
			return 0, true, err
		}
	}
	if flush && (f.dirty || f.marked != f.posted) {
		one := [1]request{f.proof()}
		if last, err = f.submit(one[:], true, true); err != nil {
			return 0, true, err
		}
		f.dirty = false
	}
	return last, true, nil
}

// pollLocked takes completions.
func (f *flow) pollLocked() error {
	if f.err != nil {
		return f.err
	}
	return f.sentLocked(f.pair.pollSent())
}

// sentLocked takes the first n completions of the pair.
func (f *flow) sentLocked(n int, err error) error {
	if err != nil {
		f.failLocked(err)
		return f.err
	}
	for i := range f.pair.sent[:n] {
		c := &f.pair.sent[i]
		if c.status != 0 {
			f.failLocked(statusError(f.dev, fmt.Sprintf("request %d of %d to %s", c.wr_id, f.posted, f.theirs.device), completionOf(c)))
			continue
		}
		f.completed = max(f.completed, uint64(c.wr_id))
	}
	return f.err
}

// room reports whether a put of so many bytes, a signal and two checks can be posted at once.
// A connection that has failed has room: it fails the post at once.
func (f *flow) room(bytes uint64) bool {
	pieces := uint64(1)
	if bytes > f.longest {
		pieces = (bytes + f.longest - 1) / f.longest
	}
	if pieces > batch {
		return false
	}
	f.mu.Lock()
	defer f.mu.Unlock()
	if f.posted-f.completed+pieces+3 <= f.depth || f.pollLocked() != nil {
		return true
	}
	return f.posted-f.completed+pieces+3 <= f.depth
}

// progress takes completions, and sees to it that there will be one for what is under way.
// Done is how many requests are known to be done.
func (f *flow) progress() (done uint64, outstanding bool, err error) {
	f.mu.Lock()
	defer f.mu.Unlock()
	if f.err != nil {
		return 0, false, f.err
	}
	if f.posted != f.completed {
		if err := f.pollLocked(); err != nil {
			return 0, false, err
		}
	}
	if f.posted == f.completed || f.marked == f.posted {
		return f.completed, f.posted != f.completed, nil
	}
	if f.looked != f.posted {
		f.looked, f.since = f.posted, time.Now()
	} else if time.Since(f.since) >= markAfter && f.posted-f.completed < f.depth {
		err = f.markLocked()
	}
	return f.completed, true, err
}

// check returns the number of a request whose completion means that all earlier puts are
// visible at the peer.
//
// The completion of a write alone does not: the peer's adapter answers when it has the
// data. A read that follows is performed behind the writes, and its answer crosses the
// peer's bus behind them. So does that of an atomic; the flow is not dirty behind one.
func (f *flow) check(halt *atomic.Bool) (uint64, error) {
	f.mu.Lock()
	defer f.mu.Unlock()
	return f.checkLocked(halt)
}

func (f *flow) checkLocked(halt *atomic.Bool) (uint64, error) {
	if f.err != nil {
		return 0, f.err
	}
	if !f.dirty && (f.marked == f.posted || f.table != nil) {
		return f.marked, nil // signals by immediates are waited for in another way
	}
	one := [1]request{f.proof()}
	n, err := f.postLocked(one[:], true, halt)
	if err == nil {
		f.dirty = false
	}
	return n, err
}

// proof is a read behind the data whose completion check speaks of.
func (f *flow) proof() request {
	r := f.question()
	if f.dirty {
		r.remote, r.rkey, r.bytes = f.last.addr, f.last.rkey, uint32(min(8, f.last.bytes))
	}
	return r
}

// question is a read of the peer's mailbox.
func (f *flow) question() request {
	box := f.box.region
	return request{opcode: opRead, bytes: 8, local: box.addr + boxResult, lkey: box.lkey, remote: f.theirs.mailbox, rkey: f.theirs.rkey}
}

// markLocked posts a request whose completion means that all earlier ones are done.
func (f *flow) markLocked() error {
	if f.dirty {
		_, err := f.checkLocked(nil)
		return err
	}
	one := [1]request{f.question()}
	_, err := f.postLocked(one[:], true, nil)
	return err
}

// reached reports whether a request is known to be done.
func (f *flow) reached(request uint64) bool {
	f.mu.Lock()
	defer f.mu.Unlock()
	return f.completed >= request
}

// counted returns how many signals the peer's plugin has counted.
func (f *flow) counted() uint64 {
	return atomic.LoadUint64((*uint64)(unsafe.Add(f.box.memory.Addr(), boxCredit)))
}

const breath = 50 * time.Microsecond
