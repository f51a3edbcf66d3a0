package proxy

import (
	"fmt"
	"runtime"
	"slices"
	"sync"
	"sync/atomic"
	"time"

	"golang.org/x/sys/unix"

	"github.com/mscclpp-go/mscclpp/framework"
	"github.com/mscclpp-go/mscclpp/framework/device"
	"github.com/mscclpp-go/mscclpp/framework/ring"
)

// Forwarder is for transports that cannot write a rank's semaphores: it moves counts
// from their inboxes into the semaphores. It uses plain stores where the host reaches a
// semaphore, else a view of the device's memory or a lane. One thread does it for all
// semaphores; it does not run while nothing is watched.
//
// A count says that data is there, and the data may have come into memory of a device.
// So the forwarder makes what an adapter wrote visible before it passes the count on.
type Forwarder struct {
	view  device.HostView // for words of devices alone; nil: the lane
	lane  *Lane           // for those without a view
	flush func() error    // nil: what a count stands for is visible when the count is
	o     Options
	done  chan struct{}

	mu      sync.Mutex // held while the thread looks at the words
	watched []*Watched
	started bool
	stopped bool
	work    chan struct{} // wakes a thread that has nothing to watch
	err     error
}

// Watched is one word of an inbox and the semaphore that it stands for.
type Watched struct {
	word *uint64
	to   Word
	base uint64 // of the semaphore, less that of the word
	seen uint64 // passed on
	now  uint64 // read in this pass
}

// longestForward is how late a count may be after a long pause.
const longestForward = time.Millisecond

// NewForwarder returns a forwarder without work. It uses the options Spin, Yield, Park
// and CPU. View and lane are ways to words that only a device reaches; the view is used
// if it is not nil, and both are nil if there are no such words. Flush makes visible to
// kernels what adapters wrote before; it is nil if that is not needed.
func NewForwarder(view device.HostView, lane *Lane, flush func() error, o Options) *Forwarder {
	if o.Spin == 0 {
		o.Spin = copierSpin
	}
	if o.Yield == 0 {
		o.Yield = copierYield
	}
	if o.Park == 0 {
		o.Park = copierPark
	}
	return &Forwarder{view: view, lane: lane, flush: flush, o: o, done: make(chan struct{}), work: make(chan struct{}, 1)}
}

// Watch starts to forward what is added to word into the semaphore to, whose count is
// base now. No other thread may write the semaphore until Unwatch.
func (f *Forwarder) Watch(word *uint64, to Word, base uint64) (*Watched, error) {
	f.mu.Lock()
	defer f.mu.Unlock()
	switch {
	case f.stopped:
		return nil, fmt.Errorf("forwarder: %w", framework.ErrClosed)
	case f.err != nil:
		return nil, f.err
	case to.Host == nil && f.view == nil && f.lane == nil:
		return nil, fmt.Errorf("forwarder: %w: a semaphore at %#x of a device, and no way there", framework.ErrInvalid, to.Device)
	}
	seen := atomic.LoadUint64(word)
	w := &Watched{word: word, to: to, base: base - seen, seen: seen}
	f.watched = append(f.watched, w)
	if !f.started {
		f.started = true
		go f.run()
	}
	f.wake()
	return w, nil
}

// Unwatch ends forwarding for w. When it returns, neither word is accessed any more,
// except by what is in progress over the lane or through the view.
func (f *Forwarder) Unwatch(w *Watched) {
	f.mu.Lock()
	defer f.mu.Unlock()
	f.watched = slices.DeleteFunc(f.watched, func(x *Watched) bool { return x == w })
}

func (f *Forwarder) wake() {
	select {
	case f.work <- struct{}{}:
	default:
	}
}

// Stop ends the forwarder.
func (f *Forwarder) Stop() {
	f.mu.Lock()
	first := !f.stopped
	f.stopped = true
	started := f.started
	f.mu.Unlock()
	if first && !started {
		close(f.done)
	}
	f.wake()
	<-f.done
}

// Done is closed when the forwarder has ended: by Stop, or for the reason in Err.
func (f *Forwarder) Done() <-chan struct{} { return f.done }

// Err returns why it has ended, nil after Stop.
func (f *Forwarder) Err() error {
	f.mu.Lock()
	defer f.mu.Unlock()
	return f.err
}

// run is the thread.
func (f *Forwarder) run() {
	runtime.LockOSThread() // and never unlocked: the thread ends with its affinity
	defer close(f.done)
	if f.o.CPU > 0 {
		var one unix.CPUSet
		one.Set(f.o.CPU - 1)
		_ = unix.SchedSetaffinity(0, &one) // a wish, as for proxies
	}
	idle := time.Now()
	for n := 1; ; n++ {
		moved, watching, on := f.pass(n%lookEvery == 0)
		switch {
		case !on:
			return
		case !watching:
			<-f.work
			idle = time.Now()
		case moved:
			idle = time.Now()
		case n%lookEvery == 0:
			f.rest(time.Since(idle))
		}
	}
}

// pass looks at all words once; not on: the thread is to end.
func (f *Forwarder) pass(look bool) (moved, watching, on bool) {
	f.mu.Lock()
	defer f.mu.Unlock()
	if f.stopped {
		return false, false, false
	}
	news := false
	for _, w := range f.watched {
		w.now = atomic.LoadUint64(w.word)
		news = news || w.now != w.seen
	}
	if news && f.flush != nil { // for all counts that were read
		if f.err = f.flush(); f.err != nil {
			return false, true, false
		}
	}
	for _, w := range f.watched {
		if w.now == w.seen {
			continue
		}
		var did submitted
		if did, f.err = f.store(w); f.err != nil {
			return moved, true, false
		}
		if did != noRoom { // else the lane is full, and a later pass tries again
			w.seen, moved = w.now, true
		}
	}
	if look && f.lane != nil {
		if _, f.err = f.lane.look(); f.err != nil {
			return moved, true, false
		}
	}
	return moved, len(f.watched) > 0, true
}

// store raises a semaphore. A count may be skipped: a wait for it sees a higher one.
func (f *Forwarder) store(w *Watched) (submitted, error) {
	value := w.now + w.base
	if w.to.Host != nil {
		atomic.StoreUint64(w.to.Host, value)
		return complete, nil
	}
	if f.view != nil {
		return complete, f.view.Store(w.to.Device, value)
	}
	return f.lane.submit(operation{flush: w.to, pos: value - 1})
}

func (f *Forwarder) rest(waited time.Duration) {
	switch {
	case waited < f.o.Spin:
	case waited < f.o.Spin+f.o.Yield:
		_, _, _ = unix.Syscall(unix.SYS_SCHED_YIELD, 0, 0, 0)
	default: // by the system's timers: the runtime's make each sleep one of a millisecond
		ring.Doze(min(max(waited/64, f.o.Park), longestForward))
	}
}
