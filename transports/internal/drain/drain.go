// Package drain performs the triggers of a ring by copying within the memory of
// one host: what a transport's proxy does when the peer's memory can be mapped.
//
// A put copies, a signal raises the peer's counter with release, a flush completes
// at once because a copy has; so each is done when the next one is looked at, and
// nothing is ever outstanding. A trigger that cites what is not bound, or reaches
// beyond it, ends the loop.
package drain

// #cgo CFLAGS: -I${SRCDIR}/../../../framework/kernel/include
// #include <stdlib.h>
// #include "drain.h"
import "C"

import (
	"context"
	"fmt"
	"runtime"
	"runtime/cgo"
	"sync"
	"sync/atomic"
	"time"
	"unsafe"

	"github.com/mscclpp-go/mscclpp/framework"
	"github.com/mscclpp-go/mscclpp/framework/kernel"
	"github.com/mscclpp-go/mscclpp/framework/memfd"
	"github.com/mscclpp-go/mscclpp/framework/observe"
	"github.com/mscclpp-go/mscclpp/framework/ring"
)

// framework/ring compares ring.h with Go. This build must have seen the same file: what
// the C side was compiled with is compared once more.
const (
	_ = -(C.mscclpp_ring_tail ^ unsafe.Offsetof(kernel.RingHeader{}.Tail))
	_ = -(C.mscclpp_ring_flush ^ unsafe.Sizeof(kernel.RingHeader{}))
	_ = -uint(C.mscclpp_ring_triggers ^ kernel.RingTriggers)
	_ = -uint(C.mscclpp_drain_semaphores ^ kernel.RingFlushWords)
)

// Slots that triggers can cite.
const (
	Memories   = C.mscclpp_drain_memories
	Semaphores = C.mscclpp_drain_semaphores
)

// Options of a loop. An idle loop polls, then yields its core, then sleeps until a
// producer wakes it; Park bounds the sleep, for producers that cannot.
type Options struct {
	Spin  time.Duration
	Yield time.Duration
	Park  time.Duration // 0: never sleep
	CPU   int           // -1: any
}

// Loop drains one ring. Slots may be bound and unbound at any time.
type Loop struct {
	c    *C.mscclpp_drain
	done chan struct{}

	mu         sync.Mutex
	ring       *ring.Ring // nil before Start
	memories   [Memories]*memfd.Memory
	semaphores [Semaphores]*memfd.Memory
	used       map[used]bool // slots that were bound once; they are not given out again
	stopped    bool
	ended      bool // nothing can be bound any more
	err        error
}

// number tells the loops of a process apart, for observers.
var number atomic.Int32

type used struct {
	semaphore bool
	slot      uint32
}

// New returns a loop that does not run yet.
func New(o Options) *Loop {
	l := &Loop{c: C.mscclpp_drain_new(), done: make(chan struct{}), used: map[used]bool{}}
	l.c.spin_ns = C.uint64_t(max(o.Spin, 0))
	l.c.yield_ns = C.uint64_t(max(o.Yield, 0))
	l.c.park_ns = C.uint64_t(max(o.Park, 0))
	l.c.cpu = C.int32_t(o.CPU)
	runtime.SetFinalizer(l, func(l *Loop) { C.free(unsafe.Pointer(l.c)) })
	return l
}

// Start drains the ring until Stop, on a thread of its own. The loop owns the ring
// from here on, also after an error.
func (l *Loop) Start(r *ring.Ring) error {
	l.mu.Lock()
	defer l.mu.Unlock()
	if l.ring != nil || l.stopped {
		r.Close()
		return fmt.Errorf("%w: the proxy was started or stopped before", framework.ErrInvalid)
	}
	l.ring = r
	base, tail := r.Base()
	l.c.ring = (*C.char)(base)
	l.c.slots = C.uint64_t(r.Slots())
	l.c.tail = C.uint64_t(tail)
	for n := r.Slots(); n > 1; n >>= 1 {
		l.c.shift++
	}
	o := observe.ForPlugin(fmt.Sprintf("proxy %d", number.Add(1)))
	if o != nil {
		l.c.observed, l.c.observer = (*C.uint32_t)(o.On), C.uintptr_t(cgo.NewHandle(o))
	}
	go func() {
		defer func() {
			if o.Close(); o != nil {
				cgo.Handle(l.c.observer).Delete()
			}
		}()
		runtime.LockOSThread() // and never unlocked: the thread ends with its changed signal mask
		l.finish(cause(l.c, C.mscclpp_drain_loop(l.c)))
	}()
	return nil
}

// Wait waits until the loop has ended, and returns why: nil after Stop.
func (l *Loop) Wait(ctx context.Context) error {
	select {
	case <-l.done:
		return l.err
	case <-ctx.Done():
		return ctx.Err()
	}
}

// Stop performs the triggers pushed before the call, and ends. When ctx ends first the
// rest is dropped, and that is an error. Further calls wait for the same end.
func (l *Loop) Stop(ctx context.Context) error {
	l.mu.Lock()
	started := l.ring != nil
	if !l.stopped {
		l.stopped = true
		if started && !l.ended {
			C.mscclpp_drain_stop(l.c, C.mscclpp_drain_finish)
		}
	}
	l.mu.Unlock()
	if !started {
		l.finish(nil)
		return nil
	}
	select {
	case <-l.done:
		return nil
	case <-ctx.Done():
	}
	l.mu.Lock()
	if !l.ended {
		C.mscclpp_drain_stop(l.c, C.mscclpp_drain_quit)
	}
	l.mu.Unlock()
	<-l.done // within one piece of a copy
	if l.err != nil {
		return l.err
	}
	return nil
}

// finish announces that the loop has ended, and frees the bound slots.
func (l *Loop) finish(err error) {
	l.mu.Lock()
	defer l.mu.Unlock()
	if l.ended {
		return
	}
	l.ended, l.err = true, err
	if l.ring != nil {
		l.ring.Fail(err)
		l.ring.Close()
		l.c.ring = nil
	}
	for _, m := range l.memories {
		closeMemory(m)
	}
	for _, m := range l.semaphores {
		closeMemory(m)
	}
	clear(l.memories[:])
	clear(l.semaphores[:])
	close(l.done)
}

func closeMemory(m *memfd.Memory) {
	if m != nil {
		_ = m.Close() // unmapping what this package mapped does not fail
	}
}

// Stats counts what a loop has done.
type Stats struct {
	Triggers uint64 // performed
	Bytes    uint64 // copied
	Parks    uint64 // times that it slept
}

// Stats may be called at any time.
func (l *Loop) Stats() Stats {
	s := Stats{
		Triggers: uint64(C.mscclpp_drain_count(&l.c.performed)),
		Bytes:    uint64(C.mscclpp_drain_count(&l.c.copied)),
		Parks:    uint64(C.mscclpp_drain_count(&l.c.parked)),
	}
	runtime.KeepAlive(l)
	return s
}
