package proxy

import (
	"context"
	"errors"
	"fmt"
	"runtime"
	"sync"
	"sync/atomic"
	"time"
	"unsafe"

	"github.com/mscclpp-go/mscclpp/framework"
	"github.com/mscclpp-go/mscclpp/framework/device"
	"github.com/mscclpp-go/mscclpp/framework/ring"
)

// Word is 64 bits of memory that a device can write.
type Word struct {
	Host   *uint64 // here; nil if only devices reach it
	Device uintptr // as the device sees it
}

// Lane is a stream of a device's copy engine: what this rank sends to one peer, in order. It learns
// how far the stream is from words in host memory that the stream itself writes. So looking costs a
// load and no call of the driver, which might have to wait for a capture of a graph.
//
// While nothing is outstanding, the host stores the words that it reaches: a store by
// the host takes nanoseconds, one by a stream microseconds. Behind anything outstanding
// the stream stores them, so that values of a word are never reordered.
//
// A word between two copies on one stream costs them some 15 µs. Behind a large copy,
// words therefore go on a second stream, which waits for marks of the first one, until
// the lane is idle. So the data of a later put may arrive before an earlier signal, but
// the data of an earlier put never arrives after it.
//
// A stream has limited room, and a driver without room blocks its caller. So what
// exceeds the lane's window waits in the lane, and other lanes go on.
type Lane struct {
	engine device.Engine
	stream device.Stream
	words  device.Stream
	join   device.Mark // nil: there is no stream for words
	done   Word
	peer   int

	mu     sync.Mutex
	closed bool
	err    error  // the first of the engine; it stays
	issued uint64 // operations given to the stream
	marked uint64 // of them, those before the last store of how far the stream is
	ended  uint64 // of them, those known to have ended
	last   Word   // the last word that the stream writes; without an address of the host nothing will show its end
	value  uint64 // and what it writes there; the word never had that value before
	large  uint64 // bytes of a copy behind which words go apart
	apart  bool   // they go on the stream for them…
	behind bool   // …which is to wait for copies first
	fresh  bool   // something was issued since the last look
	since  time.Time
	asked  time.Time // when the engine was asked last

	waiting []operation // a ring: those that the stream has no room for
	first   int
	count   int
}

// operation is a trigger with the addresses that its numbers stand for.
type operation struct {
	dst, src uintptr
	bytes    uint64
	counter  *Counter
	flush    Word // to complete, or none
	pos      uint64
	strict   bool // the copy comes behind all words as well
}

const (
	window    = 192                    // operations on a stream, of up to four entries each; drivers have room for 1024 entries
	markEvery = 64                     // operations between two stores of how far the stream is
	backlog   = 1024                   // operations that wait for room
	apartFrom = 1 << 20                // bytes
	markAfter = 20 * time.Microsecond  // without a new operation: the stream stores it once more
	askAfter  = 200 * time.Microsecond // between two questions to the engine, for errors
)

// NewLane opens a stream. Errors name peer; framework.NoPeer is for a lane that serves
// this rank only. The done word is in host memory, is 0, and belongs to this lane only.
func NewLane(engine device.Engine, peer int, done Word) (*Lane, error) {
	stream, err := device.NewSideStream(engine)
	if err != nil {
		return nil, fmt.Errorf("copy engine: %w", typed(err))
	}
	l := &Lane{engine: engine, stream: stream, done: done, peer: peer, large: apartFrom}
	if err := l.addWords(); err != nil {
		return nil, errors.Join(fmt.Errorf("copy engine: %w", typed(err)), engine.CloseStream(stream))
	}
	return l, nil
}

// addWords makes the stream for words, where streams can wait for each other.
func (l *Lane) addWords() (err error) {
	m, ok := l.engine.(device.Marker)
	if !ok {
		return nil
	}
	if l.words, err = device.NewSideStream(l.engine); err != nil {
		return err
	}
	if l.join, err = m.NewMark(); err != nil {
		return errors.Join(err, l.engine.CloseStream(l.words))
	}
	return nil
}

// Counter is a peer's semaphore that only this rank raises, over a lane. A copy engine
// stores values and cannot add, so the rank counts. It starts at 0.
type Counter struct {
	lane  *Lane
	word  Word
	value uint64 // guarded by lane.mu
}

// Counter returns a counter for a word, which must be 0 now.
func (l *Lane) Counter(w Word) *Counter { return &Counter{lane: l, word: w} }

// Copy enqueues a copy behind what was enqueued before.
func (l *Lane) Copy(dst, src uintptr, bytes uint64) error {
	return l.now(operation{dst: dst, src: src, bytes: bytes, strict: true})
}

// Write enqueues the store of a word behind what was enqueued before.
func (l *Lane) Write(addr uintptr, value uint64) error {
	return l.now(operation{flush: Word{Device: addr}, pos: value - 1})
}

// now submits, and waits for room if there is none.
func (l *Lane) now(o operation) error {
	for {
		did, err := l.submit(o)
		if did != noRoom || err != nil {
			return err
		}
		_, _ = l.look() // submit reports the failures that it finds
		runtime.Gosched()
	}
}

// submitted is what became of an operation.
type submitted uint8

const (
	noRoom   submitted = iota // there is no room for it even in the lane: look, and try again
	under                     // it is on the stream, or waits for room there
	complete                  // the host has done it
)

// submit performs an operation, gives it to the stream, or keeps it for later.
func (l *Lane) submit(o operation) (submitted, error) {
	l.mu.Lock()
	defer l.mu.Unlock()
	switch {
	case l.closed:
		return noRoom, l.blame("lane", framework.ErrClosed)
	case l.err != nil:
		return noRoom, l.err
	case l.count == 0 && l.room():
		if err := l.issue(o); err != nil || l.ended < l.issued {
			return under, err
		}
		return complete, nil
	case l.count == backlog:
		return noRoom, nil
	}
	if l.waiting == nil {
		l.waiting = make([]operation, backlog)
	}
	l.waiting[(l.first+l.count)%backlog] = o
	l.count++
	return under, nil
}

func (l *Lane) room() bool { return l.issued-l.progress() < window }

// progress returns how many operations have ended, as far as words of the host tell. When it is
// issued the lane is idle, and no word is looked at any more: its owner may take it away.
func (l *Lane) progress() uint64 {
	if l.ended == l.issued {
		return l.ended
	}
	if l.last.Host != nil && atomic.LoadUint64(l.last.Host) == l.value {
		l.ended = l.issued
	} else {
		l.ended = max(l.ended, atomic.LoadUint64(l.done.Host))
	}
	if l.ended == l.issued {
		l.last = Word{}
	}
	return l.ended
}

// issue performs: data, then the signal, then the end of a flush, which is there when
// all before is. On a lane that is idle the host stores words itself; else the stream
// does when it gets there.
func (l *Lane) issue(o operation) error {
	idle := l.progress() == l.issued
	direct := o.bytes == 0 && idle
	l.apart = l.apart && !idle || l.join != nil && o.bytes >= l.large
	if o.bytes > 0 {
		if o.strict && l.apart {
			if err := after(l.join, l.words, l.stream); err != nil {
				return l.fail("mark", err)
			}
		}
		l.last, l.behind = Word{}, true
		if err := l.engine.Copy(l.stream, o.dst, o.src, o.bytes); err != nil {
			return l.fail(fmt.Sprintf("copy of %d bytes", o.bytes), err)
		}
	}
	if o.counter != nil {
		o.counter.value++
		if err := l.store(&direct, o.counter.word, o.counter.value); err != nil {
			return l.fail("signal", err)
		}
	}
	if o.flush != (Word{}) {
		if err := l.store(&direct, o.flush, o.pos+1); err != nil {
			return l.fail("store of a word", err)
		}
	}
	if direct {
		return nil // the stream was given nothing
	}
	l.issued++
	l.fresh = true
	if l.issued-l.marked >= markEvery {
		return l.mark()
	}
	return nil
}

// store writes a word: directly, until one is met that the host does not reach.
func (l *Lane) store(direct *bool, w Word, value uint64) error {
	if *direct = *direct && w.Host != nil; *direct {
		atomic.StoreUint64(w.Host, value)
		return nil
	}
	l.last, l.value = w, value
	if !l.apart {
		return l.engine.Write(l.stream, w.Device, value)
	}
	if l.behind {
		if err := after(l.join, l.stream, l.words); err != nil {
			return err
		}
		l.behind = false
	}
	return l.engine.Write(l.words, w.Device, value)
}

// after has what a stream is given from here on wait for what another one has been given so far.
func after(m device.Mark, before, behind device.Stream) error {
	return errors.Join(m.Record(before), m.Wait(behind))
}

func (l *Lane) mark() error {
	if err := l.store(new(bool), l.done, l.issued); err != nil {
		return l.fail("mark", err)
	}
	l.marked = l.issued
	return nil
}

func (l *Lane) fail(op string, err error) error {
	if l.err == nil {
		l.err = l.blame(op, err)
	}
	return l.err
}

func (l *Lane) blame(op string, err error) error {
	return &framework.Error{Op: op + " by copy engine", Peer: l.peer, Err: typed(err)}
}

// typed gives an error of a driver a class.
func typed(err error) error {
	if framework.Class(err) != nil {
		return err
	}
	return fmt.Errorf("%w: %w", framework.ErrUnavailable, err)
}

// look moves what waits to the stream, and reports whether something is outstanding.
// A lane that was left alone for a while is marked, if its last word does not tell its
// end, and its engine is asked, since a stream that has failed writes nothing.
func (l *Lane) look() (outstanding bool, err error) {
	l.mu.Lock()
	defer l.mu.Unlock()
	if l.err != nil {
		return false, l.err
	}
	for l.count > 0 && l.room() {
		o := l.waiting[l.first]
		l.first = (l.first + 1) % backlog
		l.count--
		if err := l.issue(o); err != nil {
			return false, err
		}
	}
	if l.progress() == l.issued {
		return l.count > 0, nil // the stream may have ended since there was no room for them
	}
	now := time.Now()
	if l.fresh {
		l.fresh, l.since, l.asked = false, now, now
		return true, nil
	}
	if l.last.Host == nil && l.marked < l.issued && now.Sub(l.since) >= markAfter {
		if err := l.mark(); err != nil {
			return false, err
		}
	}
	if now.Sub(l.asked) >= askAfter {
		l.asked = now
		if _, err := l.engine.Query(l.stream); err != nil {
			return false, l.fail("stream", err)
		}
	}
	return true, nil
}

// Settle waits until all that was enqueued before the call is done or dropped. It never waits in
// the driver, so it ends with ctx whatever the device does. After it returns, of the words written
// before the call only the lane's own are looked at.
func (l *Lane) Settle(ctx context.Context) error {
	start, pace := time.Now(), ring.Begin(nil, false)
	target := ^uint64(0)
	for {
		done, err := l.reached(&target)
		if err != nil || done {
			return err
		}
		if err := ctx.Err(); err != nil {
			l.forget()
			return l.blame("wait", fmt.Errorf("%w: the stream is busy for %v: %w", framework.ErrUnavailable, time.Since(start).Round(time.Millisecond), err))
		}
		if _, err := l.look(); err != nil {
			return err
		}
		pace.Rest()
	}
}

// reached reports whether the stream has done so many operations, or all that there
// are, if that is less. It has the stream write a mark for them.
func (l *Lane) reached(target *uint64) (bool, error) {
	l.mu.Lock()
	defer l.mu.Unlock()
	if l.err != nil {
		return false, l.err
	}
	*target = min(*target, l.issued+uint64(l.count))
	if l.progress() >= *target {
		return true, nil
	}
	if l.issued >= *target && l.marked < *target && l.last.Host == nil {
		return false, l.mark()
	}
	return false, nil
}

// forget has the lane's own word tell its end: the last one written may go away.
func (l *Lane) forget() {
	l.mu.Lock()
	defer l.mu.Unlock()
	l.last = Word{}
}

// Drop forgets what waits for room, for a job that has failed.
func (l *Lane) Drop() {
	l.mu.Lock()
	defer l.mu.Unlock()
	l.count = 0
}

// Close waits for the stream and closes it. If the stream does not end within ctx, it
// is closed all the same, and Close returns an error.
func (l *Lane) Close(ctx context.Context) error {
	l.mu.Lock()
	if l.closed {
		l.mu.Unlock()
		return nil
	}
	l.closed = true
	l.mu.Unlock()
	err := l.Settle(ctx)
	e := l.engine.CloseStream(l.stream)
	if l.join != nil {
		e = errors.Join(e, l.engine.CloseStream(l.words), l.join.Close())
	}
	if err == nil && e != nil {
		err = l.blame("close", e)
	}
	return err
}

// hostPointer turns the address of memory that Go does not manage into a pointer.
func hostPointer(addr uintptr) unsafe.Pointer { return *(*unsafe.Pointer)(unsafe.Pointer(&addr)) }
