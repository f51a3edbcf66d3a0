package drain

// #include "drain.h"
import "C"

import (
	"fmt"
	"runtime"
	"time"
	"unsafe"

	"github.com/mscclpp-go/mscclpp/framework"
	"github.com/mscclpp-go/mscclpp/framework/memfd"
)

// BindMemory gives memory a number that triggers cite: own memory as the source of
// puts, a peer's as their target. The loop owns the mapping from here on, also
// after an error. A slot is written once.
func (l *Loop) BindMemory(slot uint32, m *memfd.Memory, own bool) error {
	flag := C.uint32_t(0)
	if own {
		flag = 1
	}
	err := l.bind(used{slot: slot}, Memories, func() {
		l.memories[slot] = m
		C.mscclpp_drain_bind_memory(l.c, C.uint32_t(slot), m.Addr(), C.uint64_t(m.Len()), flag)
	})
	if err != nil {
		_ = m.Close()
		return fmt.Errorf("memory slot %d: %w", slot, err)
	}
	return nil
}

// BindSemaphore gives a number to the 64-bit word at the start of m, which must be
// aligned. Ownership is as in BindMemory.
func (l *Loop) BindSemaphore(slot uint32, m *memfd.Memory) error {
	err := l.bind(used{semaphore: true, slot: slot}, Semaphores, func() {
		l.semaphores[slot] = m
		C.mscclpp_drain_bind_semaphore(l.c, C.uint32_t(slot), m.Addr())
	})
	if err != nil {
		_ = m.Close()
		return fmt.Errorf("semaphore slot %d: %w", slot, err)
	}
	return nil
}

func (l *Loop) bind(s used, limit uint32, publish func()) error {
	if s.slot >= limit {
		return fmt.Errorf("%w: expected 0 to %d", framework.ErrInvalid, limit-1)
	}
	l.mu.Lock()
	defer l.mu.Unlock()
	if l.ended || l.stopped {
		return fmt.Errorf("%w: the proxy has ended", framework.ErrClosed)
	}
	if l.used[s] {
		return fmt.Errorf("%w: it was bound before; a slot is written once", framework.ErrInvalid)
	}
	l.used[s] = true
	publish()
	return nil
}

// UnbindMemory takes memory out of a slot. When it returns the loop does not touch
// the memory any more; a trigger that still cites the slot ends the loop.
func (l *Loop) UnbindMemory(slot uint32) {
	l.mu.Lock()
	defer l.mu.Unlock()
	if slot >= Memories || l.memories[slot] == nil {
		return
	}
	C.mscclpp_drain_bind_memory(l.c, C.uint32_t(slot), unsafe.Pointer(nil), 0, 0)
	l.quiesce()
	closeMemory(l.memories[slot])
	l.memories[slot] = nil
}

// UnbindSemaphore is UnbindMemory for semaphores.
func (l *Loop) UnbindSemaphore(slot uint32) {
	l.mu.Lock()
	defer l.mu.Unlock()
	if slot >= Semaphores || l.semaphores[slot] == nil {
		return
	}
	C.mscclpp_drain_bind_semaphore(l.c, C.uint32_t(slot), unsafe.Pointer(nil))
	l.quiesce()
	closeMemory(l.semaphores[slot])
	l.semaphores[slot] = nil
}

// quiesce waits for the end of the trigger that is being performed, which may have
// read the slot before it was emptied. That takes as long as one copy at most.
func (l *Loop) quiesce() {
	turn := C.mscclpp_drain_turn(l.c)
	for n := 0; C.mscclpp_drain_quiet(l.c, turn) == 0; n++ {
		if n < 1000 {
			runtime.Gosched()
		} else {
			time.Sleep(50 * time.Microsecond)
		}
	}
}
