package ring

import (
	"sync/atomic"
	"time"
	"unsafe"

	"golang.org/x/sys/unix"

	"github.com/mscclpp-go/mscclpp/framework/kernel"
)

const headerBytes = unsafe.Sizeof(kernel.RingHeader{})

// Poll returns the oldest trigger that was not popped, and its position. It does
// not wait.
func (r *Ring) Poll() (t kernel.Trigger, pos uint64, ok bool) {
	s := r.slot(r.tail)
	snd := atomic.LoadUint64(&s.Snd)
	if snd&commitBit != r.commit(r.tail) {
		return kernel.Trigger{}, 0, false
	}
	return kernel.Trigger{Fst: atomic.LoadUint64(&s.Fst), Snd: snd &^ commitBit}, r.tail, true
}

// Pop frees the slot of the trigger that Poll returned.
func (r *Ring) Pop() {
	r.tail++
	atomic.StoreUint64(&r.header.Tail, r.tail)
}

// Idle reports whether everything that was pushed has been popped, and no push is in
// progress.
func (r *Ring) Idle() bool { return atomic.LoadUint64(&r.header.Head) == r.tail }

// Complete tells flush word i that everything up to position pos is done.
func (r *Ring) Complete(i uint32, pos uint64) { atomic.StoreUint64(r.FlushedAt(i), pos+1) }

// Park sleeps until a producer on the host pushes, Wake is called, or d has passed. It
// may return early. It reports whether a push or Wake has ended it.
func (r *Ring) Park(d time.Duration) (woken bool) {
	return r.ParkFor(func(there bool) time.Duration {
		if there {
			return 0
		}
		return d
	})
}

// ParkFor is like Park, but asks span how long to sleep, at a point from which on
// pushes and Wake end the sleep. There says whether a trigger has come before that. If
// span returns 0, it does not sleep.
func (r *Ring) ParkFor(span func(there bool) time.Duration) (woken bool) {
	word := &r.header.Parked
	atomic.StoreUint32(word, 1)
	// (Not by Poll: a sleeping thread may have lent the consumer's place.)
	if d := span(r.there()); d > 0 && r.Err() == nil {
		futexWait(word, 1, d)
	}
	return atomic.SwapUint32(word, 0) == 0
}

// Wake ends Park.
func (r *Ring) Wake() {
	if atomic.SwapUint32(&r.header.Parked, 0) != 0 {
		futexWake(&r.header.Parked)
	}
}

// The futex is a shared one: the two sides are different processes.

func futexWait(word *uint32, value uint32, d time.Duration) {
	const opWait = 0
	ts := unix.NsecToTimespec(d.Nanoseconds())
	// Every outcome, EAGAIN, EINTR and ETIMEDOUT included, means: look again.
	_, _, _ = unix.Syscall6(unix.SYS_FUTEX, uintptr(unsafe.Pointer(word)), opWait, uintptr(value), uintptr(unsafe.Pointer(&ts)), 0, 0)
}

func futexWake(word *uint32) {
	const opWake, all = 1, 1<<31 - 1
	_, _, _ = unix.Syscall6(unix.SYS_FUTEX, uintptr(unsafe.Pointer(word)), opWake, all, 0, 0, 0)
}
