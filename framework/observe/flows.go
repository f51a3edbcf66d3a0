package observe

import (
	"fmt"
	"sync"
	"sync/atomic"
)

// Flows writes what the host sends over the channels of one communicator, and what it waits for. A signal and the wait that
// it ends have the same number: that of the receiver's semaphore, and how many signals it has got. Several threads may
// use it, and the nil Flows writes nothing.
type Flows struct {
	rank *Rank
	comm string

	mu     sync.Mutex
	number uint64 // of the name of the communicator
	tried  bool
	w      *Writer
	kinds  map[string]uint16 // numbers of the names of transports
	loops  int               // so far
}

// Flows gives the channels of a communicator a writer. It takes a ring when something is written first.
func (r *Rank) Flows(comm string) *Flows {
	if r == nil {
		return nil
	}
	r.mu.Lock()
	defer r.mu.Unlock()
	r.flowing = true
	return &Flows{rank: r, comm: comm}
}

// Loop returns the writer of a loop that performs what the channels ask for.
func (f *Flows) Loop(kind string) *Loop {
	if f == nil {
		return nil
	}
	f.mu.Lock()
	defer f.mu.Unlock()
	f.loops++
	return f.rank.Loop(fmt.Sprintf("%s %d of %s", kind, f.loops, f.comm))
}

// On reports whether records are wanted: a load and a branch.
func (f *Flows) On() bool { return f != nil && atomic.LoadUint32(f.rank.on.Load()) != 0 }

// Now reads the clock of the rank.
func (f *Flows) Now() int64 { return f.rank.clock() }

// Place is an end of a channel: over which transport it leads to which rank of the communicator, and the number of the
// semaphore that its signals raise, or that it waits for.
type Place struct {
	Transport string
	Peer      int
	Semaphore int
}

// FlowOf takes the number of a signal apart: of the name of its communicator, of the semaphore, and which signal it is.
func FlowOf(call uint64) (comm, semaphore int, signal uint32) {
	return int(call >> 48), int(call >> 32 & 0xffff), uint32(call)
}

// Sent says that at a time the rank began to send bytes, and with them, or behind them, a signal: Put comes without one.
func (f *Flows) Sent(e Event, at int64, to Place, signal, bytes uint64) {
	f.write(to, func(transport uint16, call uint64) {
		f.w.write(at, e|Instant, call|uint64(uint32(signal)), bytes, transport, int32(to.Peer))
	})
}

// Waited says that the rank has waited for a signal since a time, and that it has come now.
func (f *Flows) Waited(since int64, from Place, signal uint64) {
	f.write(from, func(transport uint16, call uint64) {
		call |= uint64(uint32(signal))
		f.w.write(since, Wait|Begin, call, 0, transport, int32(from.Peer))
		f.w.write(f.rank.clock(), Wait|End, call, 0, transport, int32(from.Peer))
	})
}

func (f *Flows) write(p Place, write func(transport uint16, call uint64)) {
	f.mu.Lock()
	defer f.mu.Unlock()
	if !f.tried {
		f.tried = true
		f.number = uint64(f.rank.number(f.comm))
		f.w = f.rank.writer("channels of " + f.comm)
		f.kinds = map[string]uint16{}
	}
	if f.w == nil {
		return
	}
	kind, known := f.kinds[p.Transport]
	if !known {
		kind = uint16(f.rank.number(p.Transport))
		f.kinds[p.Transport] = kind
	}
	write(kind, f.number<<48|uint64(uint16(p.Semaphore))<<32)
}

// Close lets another writer have the ring.
func (f *Flows) Close() {
	if f != nil {
		f.mu.Lock()
		defer f.mu.Unlock()
		f.tried = true
		f.w.end()
		f.w = nil
	}
}

// writer makes a writer; nil: the rank is closed, or there is no ring.
func (r *Rank) writer(name string) *Writer {
	r.mu.Lock()
	defer r.mu.Unlock()
	if r.closed {
		return nil
	}
	return newWriter(r.at, name, r.clock)
}
