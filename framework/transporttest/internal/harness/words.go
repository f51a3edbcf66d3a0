package harness

import (
	"context"
	"fmt"
	"runtime"
	"sync/atomic"
	"time"
	"unsafe"
)

// The functions below are the suite acting as a kernel on host memory: the operations of the device
// headers, with their ordering. Go's atomics are sequentially consistent, so they give the acquire
// and release that the headers ask for.

// Word is a counter in mapped memory.
func Word(b []byte, offset int) *uint64 {
	return (*uint64)(unsafe.Pointer(&b[offset]))
}

// Signal raises a peer's counter: what was stored before is visible to a reader that sees it
// raised.
func Signal(w *uint64) { atomic.AddUint64(w, 1) }

// Await waits until ready, within limit. It spins, then yields, then sleeps: on a
// small machine the proxy that it waits for needs its processor.
func Await(ctx context.Context, what string, limit time.Duration, ready func() bool) error {
	start := time.Now()
	for n := 0; ; n++ {
		if ready() {
			return nil
		}
		if n%64 == 63 {
			waited := time.Since(start)
			if ctx.Err() != nil || waited > limit {
				return fmt.Errorf("%s: did not happen within %v", what, waited.Round(time.Millisecond))
			}
			if waited < 200*time.Microsecond {
				runtime.Gosched()
			} else {
				time.Sleep(20 * time.Microsecond)
			}
		}
	}
}

// AwaitCount waits until a counter reaches want.
func (t *T) AwaitCount(what string, w *uint64, want uint64) {
	there := func() bool { return atomic.LoadUint64(w) >= want }
	err := Await(t.ctx, what, t.Options.CallLimit, func() bool { return there() || t.Failed() })
	if err == nil && !there() {
		runtime.Goexit() // another goroutine of the test has failed: it may have been ours to wait for
	}
	if err != nil {
		t.Fatalf("%v: the counter is %d, expected %d", err, atomic.LoadUint64(w), want)
	}
}

// Fill writes a pattern that depends on the seed and the position, so that bytes
// of another place or an earlier round are recognized.
func Fill(b []byte, seed uint64) {
	for i := range b {
		b[i] = Pattern(seed, i)
	}
}

// Pattern is the byte that Fill writes at position i.
func Pattern(seed uint64, i int) byte {
	x := (seed+1)*0x9e3779b97f4a7c15 + uint64(i)*0xbf58476d1ce4e5b9
	return byte(x >> 56)
}

// Differs finds the first byte that is not the pattern's.
func Differs(b []byte, seed uint64) (int, bool) {
	for i := range b {
		if b[i] != Pattern(seed, i) {
			return i, true
		}
	}
	return 0, false
}

// Pointer is an address of mapped memory, which the collector does not move.
func Pointer(addr uintptr) unsafe.Pointer { return *(*unsafe.Pointer)(unsafe.Pointer(&addr)) }

// Alignments and sizes at which bytes are put and got.
var (
	Alignments = []int{0, 1, 2, 3, 4, 7, 8, 12, 15, 16, 31, 63}
	Sizes      = []int{0, 1, 2, 3, 4, 5, 7, 8, 9, 15, 16, 17, 31, 33, 63, 64, 65, 127, 255, 1023, 4096, 4097, 65535}
)
