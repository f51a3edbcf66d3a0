package observe

import (
	"sync/atomic"
)

// Writer is one ring, for one thread at a time. The nil Writer writes nothing.
type Writer struct {
	region region
	index  int
	head   *ring
	on     *uint32
	clock  func() int64
}

func newWriter(r region, name string, clock func() int64) *Writer {
	i := r.takeRing(name)
	if i < 0 {
		return nil
	}
	return &Writer{region: r, index: i, head: r.ring(i), on: &r.header().on, clock: clock}
}

// On reports whether records are wanted.
func (w *Writer) On() bool { return w != nil && atomic.LoadUint32(w.on) != 0 }

// Add writes a record, if records are wanted, with the time of now.
func (w *Writer) Add(e Event, call, bytes uint64, block uint16, peer int32) {
	if w.On() {
		w.write(w.clock(), e, call, bytes, block, peer)
	}
}

// write writes a record in any case. The position is stored behind it, so a reader of
// another process does not take half a record for one.
func (w *Writer) write(at int64, e Event, call, bytes uint64, block uint16, peer int32) {
	*w.region.record(w.index, w.head.next) = Record{Time: at, Call: call, Bytes: bytes, Event: e, Block: block, Peer: peer}
	storeRelease(&w.head.next, w.head.next+1)
}

// end lets another writer have the ring once there is no other one left.
func (w *Writer) end() {
	if w != nil {
		atomic.StoreUint32(&w.head.state, ringEnded)
	}
}
