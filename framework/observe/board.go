package observe

import (
	"sync/atomic"

	"github.com/mscclpp-go/mscclpp/framework/collective"
	"github.com/mscclpp-go/mscclpp/framework/device"
)

// Board is where one communicator says which call it is in. Calls of one communicator come one at a time. The nil
// Board says nothing.
type Board struct {
	rank    *Rank
	index   int
	shared  *board
	ring    *Writer
	kernels *Kernels
	calls   uint64
	chosen  int64 // when the algorithm of the call was
	open    bool
	name    string // of the algorithm of the call before, and its number
	number  uint32
}

// Clock reads the time for Begin, or returns 0 while no records are wanted.
func (b *Board) Clock() int64 {
	if b == nil || !b.ring.On() {
		return 0
	}
	return b.ring.clock()
}

// Begin says that a call has begun, at the time of Clock, and that its algorithm is chosen now. Its work for a device is enqueued
// on the stream.
func (b *Board) Begin(at int64, kind collective.Kind, bytes uint64, algorithm string, on device.Stream) {
	if b == nil {
		return
	}
	s := b.shared
	if algorithm != b.name {
		b.name, b.number = algorithm, uint32(b.rank.number(algorithm))
	}
	s.kind, s.bytes, s.algorithm = uint32(kind), bytes, b.number
	b.calls = atomic.LoadUint64(&s.begun) + 1
	b.open = true
	if b.ring.On() {
		b.chosen = b.ring.clock()
		if at == 0 {
			at = b.chosen
		}
		atomic.StoreInt64(&s.at, at)
	}
	storeRelease(&s.begun, b.calls)
	b.kernels.follow()
	if s.at != 0 {
		b.kernels.timed().begin(on, callOf(b.index, b.calls), b.chosen)
	}
}

// End says that the call has returned. Without a call, and after Close, it says nothing.
func (b *Board) End() {
	if b == nil || !b.open {
		return
	}
	b.open = false
	s := b.shared
	s.total += s.bytes // the next store makes it visible
	storeRelease(&s.ended, b.calls)
	if s.at != 0 {
		b.ring.called(s, callOf(b.index, b.calls), b.chosen, b.ring.clock())
		b.kernels.timed().end()
		atomic.StoreInt64(&s.at, 0)
	}
}

// Words is where a board is, for calls that C makes while no records are wanted, and no call of Go is in progress. They write what
// Begin and End write: Kind, Bytes and Algorithm before Begun, and Total before Ended.
type Words struct {
	On                         *uint32 // not 0: records are wanted; may be nil
	Begun, Ended, Bytes, Total *uint64
	Kind, Algorithm            *uint32
}

// Words is the zero value for the nil Board.
func (b *Board) Words() (w Words) {
	if b == nil {
		return w
	}
	s := b.shared
	w = Words{Begun: &s.begun, Ended: &s.ended, Bytes: &s.bytes, Total: &s.total, Kind: &s.kind, Algorithm: &s.algorithm}
	if b.ring != nil {
		w.On = b.ring.on
	}
	return w
}

// Close takes the communicator off the list. Its records stay to be read until another one needs the place.
func (b *Board) Close() {
	if b == nil {
		return
	}
	b.rank.mu.Lock()
	defer b.rank.mu.Unlock()
	b.open = false
	b.ring.end()
	atomic.StoreUint32(&b.shared.state, 3)
	b.rank.boards[b.index] = nil
}
