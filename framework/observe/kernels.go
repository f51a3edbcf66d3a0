package observe

import (
	"slices"
	"sync"
	"sync/atomic"
	"time"
	"unsafe"

	"github.com/mscclpp-go/mscclpp/framework/device"
	"github.com/mscclpp-go/mscclpp/framework/kernel"
)

// Kernels has the kernels of one communicator write records. On the host they write into the ring themselves, which the words of the
// communicator name while records are wanted. On GPUs, whose kernels have no registers for that, the rank looks every millisecond for whom
// a kernel waits: each wait says so in the words every few milliseconds; and streams take the time before and behind a call. The nil Kernels does nothing.
type Kernels struct {
	rank  *Rank
	comm  string
	words *kernel.WaitControl
	ring  *kernel.RecordRing // nil: of a GPU
	spans *spans             // of a device that takes times; else nil
	on    atomic.Bool

	mu     sync.Mutex
	tried  bool
	closed bool
	w      *Writer
	stop   chan struct{} // of looks at a GPU
	done   sync.WaitGroup
}

// Kernels gives the kernels of a communicator a writer. It takes a ring of the region when records are wanted first. ring is memory beside
// words that kernels of the host read, and nil for a GPU. on is the device: calls take times on its streams, if it can.
func (r *Rank) Kernels(comm string, words *kernel.WaitControl, ring *kernel.RecordRing, on device.Device) *Kernels {
	if r == nil {
		return nil
	}
	k := &Kernels{rank: r, comm: comm, words: words, ring: ring, spans: newSpans(on, r.clock, r.graphs)}
	r.mu.Lock()
	defer r.mu.Unlock()
	if r.closed {
		return nil
	}
	r.flowing = true
	r.kernels = append(r.kernels, k)
	return k
}

// timed takes the times of calls now; nil: they have none.
func (k *Kernels) timed() *spans {
	if k == nil || !k.on.Load() {
		return nil
	}
	return k.spans
}

// follow turns the records of kernels on or off, as the switch of the rank is. The caller has looked, or looks again later.
func (k *Kernels) follow() {
	if k == nil || k.on.Load() == k.rank.On() {
		return
	}
	k.mu.Lock()
	defer k.mu.Unlock()
	on := k.rank.On()
	if k.closed || k.on.Load() == on {
		return
	}
	if !on {
		k.turnOff()
		return
	}
	if !k.tried {
		k.tried = true
		k.w = k.rank.writer("kernels of " + k.comm)
	}
	k.on.Store(true)
	if k.w == nil {
		return // there is no ring
	}
	if k.ring == nil {
		k.spans.renew()
		k.stop = make(chan struct{})
		k.done.Go(k.look)
		return
	}
	at := k.w.region
	atomic.StoreUint32(&k.w.head.shared, 1)
	k.ring.Next, k.ring.Records = uintptr(unsafe.Pointer(&k.w.head.next)), uintptr(unsafe.Pointer(at.record(k.w.index, 0)))
	k.ring.Mask, k.ring.Clock = RingRecords-1, uintptr(unsafe.Pointer(&ticks.shared))
	atomic.StoreUint64(&k.words.Records, uint64(uintptr(unsafe.Pointer(k.ring))))
}

func (k *Kernels) turnOff() {
	k.on.Store(false)
	atomic.StoreUint64(&k.words.Records, 0)
	if k.stop != nil {
		close(k.stop)
		k.done.Wait()
		k.stop = nil
	}
}

// count has the records name the calls of a board, of which begun is the number of those that have begun.
func (k *Kernels) count(board int, begun *uint64) {
	if k.ring != nil {
		k.ring.Communicator, k.ring.Calls = callOf(board, 0), uintptr(unsafe.Pointer(begun))
	}
}

// Close lets another writer have the ring. No kernel of the communicator runs any more.
func (k *Kernels) Close() {
	if k == nil {
		return
	}
	k.mu.Lock()
	defer k.mu.Unlock()
	if !k.closed {
		k.closed = true
		k.turnOff()
		k.spans.close()
		k.w.end()
		k.rank.mu.Lock()
		k.rank.kernels = slices.DeleteFunc(k.rank.kernels, func(x *Kernels) bool { return x == k })
		k.rank.mu.Unlock()
	}
}

const (
	looksEvery = time.Millisecond
	longGone   = 12 * looksEvery // a wait says every 2 to 3 ms that it goes on
)

// look writes records of the waits of kernels on a GPU.
func (k *Kernels) look() {
	tick := time.NewTicker(looksEvery)
	defer tick.Stop()
	var peer int32 = -1
	var seen int64
	end := func() {
		if peer >= 0 {
			k.w.write(seen, Wait|End, 0, 0, 0, peer)
			peer = -1
		}
	}
	defer end()
	for {
		select {
		case <-tick.C:
		case <-k.stop:
			k.spans.read(k.w)
			return
		}
		k.spans.read(k.w)
		word, now := atomic.SwapUint32(&k.words.Waiting, 0), k.rank.clock()
		if word == 0 {
			if now-seen > int64(longGone) {
				end()
			}
			continue
		}
		atomic.StoreUint32(&k.words.Waited, word)
		if rank := int32(word) - 1; rank != peer {
			end()
			peer = rank
			k.w.write(now, Wait|Begin, 0, 0, 0, peer)
		}
		seen = now
	}
}
