package stream

// #include "engine.h"
import "C"

import (
	"context"
	"fmt"
	"runtime"
	"sync"
	"time"
	"unsafe"

	"github.com/mscclpp-go/mscclpp/framework"
	"github.com/mscclpp-go/mscclpp/framework/kernel"
	"github.com/mscclpp-go/mscclpp/framework/ring"
)

// framework/ring compares ring.h with Go. This build must have seen the same file: what
// the C side was compiled with is compared once more.
const (
	_ = -(C.mscclpp_ring_tail ^ unsafe.Offsetof(kernel.RingHeader{}.Tail))
	_ = -(C.mscclpp_ring_flush ^ unsafe.Sizeof(kernel.RingHeader{}))
	_ = -uint(C.mscclpp_ring_triggers ^ kernel.RingTriggers)
	_ = -uint(C.mscclpp_stream_semaphores ^ kernel.RingFlushWords)
)

// park bounds how long the thread for kernels sleeps. They wake it; the bound is for one
// that dies in between.
const park = 100 * time.Millisecond

// Queue performs the triggers of one ring. Slots are bound before a trigger cites them.
type Queue struct {
	e    *Engine
	c    *C.mscclpp_stream_ring
	ring *ring.Ring
	idle chan struct{} // the thread for kernels has ended

	stop sync.Once
	late error // of Stop

	once sync.Once
	done chan struct{}
	err  error
}

// Queue begins to perform what is pushed to a ring, which stays the caller's.
func (e *Engine) Queue(r *ring.Ring) (*Queue, error) {
	e.mu.Lock()
	defer e.mu.Unlock()
	if e.closed {
		return nil, fmt.Errorf("%w: engine for streams", framework.ErrClosed)
	}
	base, tail := r.Base()
	c := C.mscclpp_stream_ring_new(e.c, base, C.uint64_t(r.Slots()), C.uint64_t(tail))
	if c == nil {
		return nil, fmt.Errorf("%w: queue for streams: no memory, or more than %d queues", framework.ErrUnavailable, C.mscclpp_stream_rings)
	}
	q := &Queue{e: e, c: c, ring: r, idle: make(chan struct{}), done: make(chan struct{})}
	e.queues[q] = struct{}{}
	go q.run()
	if e.failed != nil {
		q.fail(e.failed)
	}
	return q, nil
}

func (q *Queue) run() {
	runtime.LockOSThread() // and never unlocked: the thread ends with its changed signal mask
	defer close(q.idle)
	C.mscclpp_stream_ring_run(q.c, C.uint64_t(park))
	var fst, snd C.uint64_t
	reason := C.mscclpp_stream_ring_reason(q.c, &fst, &snd)
	if reason == 0 {
		return
	}
	q.fail(fmt.Errorf("%w: trigger %#x %#x: %s", framework.ErrInvalid, uint64(fst), uint64(snd), explain(uint32(reason))))
}

func explain(reason uint32) string {
	switch reason {
	case C.mscclpp_stream_bad_type:
		return "it asks for nothing"
	case C.mscclpp_stream_unbound_source:
		return "its source is not bound to own memory"
	case C.mscclpp_stream_unbound_target:
		return "its target is not bound to a peer's memory"
	case C.mscclpp_stream_unbound_semaphore:
		return "its semaphore is not bound"
	case C.mscclpp_stream_source_range:
		return "it reads beyond the end of its source"
	case C.mscclpp_stream_target_range:
		return "it writes beyond the end of its target"
	}
	return fmt.Sprintf("reason %d", reason)
}

// fail ends the queue, and ends all waits for room or for a flush.
func (q *Queue) fail(err error) {
	q.once.Do(func() {
		q.err = err
		q.ring.Fail(err)
		close(q.done)
	})
}

// BindSource gives a number to own memory.
func (q *Queue) BindSource(slot uint32, addr uintptr, bytes uint64) error {
	if slot >= C.mscclpp_stream_memories {
		return fmt.Errorf("%w: memory %d: expected a number below %d", framework.ErrInvalid, slot, C.mscclpp_stream_memories)
	}
	C.mscclpp_stream_bind(q.c, &q.c.memory[slot], C.mscclpp_stream_slot{base: (*C.char)(at(addr)), bytes: C.uint64_t(bytes)})
	return nil
}

// BindTarget gives a number to memory that the peer has exposed under a handle.
func (q *Queue) BindTarget(slot uint32, l *Link, handle uint32, bytes uint64) error {
	if slot >= C.mscclpp_stream_memories {
		return fmt.Errorf("%w: memory %d: expected a number below %d", framework.ErrInvalid, slot, C.mscclpp_stream_memories)
	}
	C.mscclpp_stream_bind(q.c, &q.c.memory[slot], C.mscclpp_stream_slot{link: l.c, handle: C.uint32_t(handle), bytes: C.uint64_t(bytes)})
	return nil
}

// BindSemaphore gives a number to a word of memory that the peer has exposed.
func (q *Queue) BindSemaphore(slot uint32, l *Link, handle uint32, offset uint64) error {
	if slot >= C.mscclpp_stream_semaphores {
		return fmt.Errorf("%w: semaphore %d: expected a number below %d", framework.ErrInvalid, slot, C.mscclpp_stream_semaphores)
	}
	C.mscclpp_stream_bind(q.c, &q.c.semaphore[slot], C.mscclpp_stream_slot{link: l.c, handle: C.uint32_t(handle), offset: C.uint64_t(offset)})
	return nil
}

// Unbind takes back numbers of memory and of a semaphore. A trigger that still cites
// one of them ends the queue.
func (q *Queue) Unbind(source, target, semaphore uint32) {
	C.mscclpp_stream_bind(q.c, &q.c.memory[source], C.mscclpp_stream_slot{})
	C.mscclpp_stream_bind(q.c, &q.c.memory[target], C.mscclpp_stream_slot{})
	C.mscclpp_stream_bind(q.c, &q.c.semaphore[semaphore], C.mscclpp_stream_slot{})
}

// Drain performs what was pushed, as far as the sockets take it. The rest goes on while a thread
// waits, or by the engine's thread.
func (q *Queue) Drain() { C.mscclpp_stream_drain(q.c) }

// Later is Drain that waits for the next one, but not for long: the engine's thread looks.
func (q *Queue) Later() { C.mscclpp_stream_later(q.c) }

// Await drives a link until a word is at least as large as wanted, or for a slice of
// time, and reports whether it is. waited is how long the caller has waited before.
func (q *Queue) Await(l *Link, word *uint64, wanted uint64, waited, slice time.Duration, w Waits) bool {
	return C.mscclpp_stream_await(l.c, q.c, (*C.uint64_t)(unsafe.Pointer(word)), C.uint64_t(wanted), C.uint64_t(waited),
		C.uint64_t(w.Spin), C.uint64_t(w.Spin+w.Yield), C.uint64_t(slice)) != 0
}

// MaxHead is how long the head of what is given may be.
const MaxHead = C.mscclpp_stream_title

// Give puts a head, which is copied, and data behind it, from wherever they are, to a bound
// target, and signals. given is false where sockets are full, and nothing was done; sent
// says that the data is not read any more: else Sent does, and until then it has to stay
// where it is. The offset and the lengths were checked.
func (q *Queue) Give(target, semaphore uint32, to uint64, head, data []byte) (given, sent bool) {
	rc := C.mscclpp_stream_give(q.c, C.uint32_t(target), C.uint32_t(semaphore), C.uint64_t(to),
		unsafe.Pointer(unsafe.SliceData(head)), C.uint64_t(len(head)), unsafe.Pointer(unsafe.SliceData(data)), C.uint64_t(len(data)))
	return rc > 0, rc == 2
}

// Sent sends what sockets take, and reports whether nothing of data is left to be sent.
func (l *Link) Sent(data []byte) bool {
	return C.mscclpp_stream_sent(l.c, unsafe.Pointer(unsafe.SliceData(data)), C.uint64_t(len(data))) != 0
}

// Wait waits until the queue has ended, and returns why: nil after Stop.
func (q *Queue) Wait(ctx context.Context) error {
	select {
	case <-q.done:
		return q.err
	case <-ctx.Done():
		return ctx.Err()
	}
}

// Stop performs what was pushed before the call, and ends the queue. When ctx ends first
// the rest is dropped, and that is an error.
func (q *Queue) Stop(ctx context.Context) error {
	q.stop.Do(func() { q.late = q.end(ctx) })
	return q.late
}

func (q *Queue) end(ctx context.Context) (late error) {
	for q.Drain(); q.ring.Depth() > 0 && q.ring.Err() == nil && late == nil; q.Drain() {
		select {
		case <-time.After(time.Millisecond): // the peer reads slowly
		case <-ctx.Done():
			late = fmt.Errorf("%w: %d triggers could not be sent in time: %w", framework.ErrUnavailable, q.ring.Depth(), ctx.Err())
		}
	}
	q.e.mu.Lock()
	delete(q.e.queues, q)
	q.e.mu.Unlock()
	C.mscclpp_stream_ring_stop(q.c)
	<-q.idle
	q.fail(nil)
	C.mscclpp_stream_ring_free(q.c)
	q.c = nil
	return late
}
