package transporttest

import (
	"context"
	"fmt"
	"runtime"
	"sync/atomic"
	"time"
	"unsafe"
)

// What follows is the suite acting as a kernel on host memory: the operations of
// the device headers, with their ordering. Go's atomics are sequentially
// consistent, so they give the acquire and release that the headers ask for.

// word is a counter in mapped memory.
func word(b []byte, offset int) *uint64 {
	return (*uint64)(unsafe.Pointer(&b[offset]))
}

// signal raises a peer's counter: what was stored before is visible to whoever
// sees it raised.
func signal(w *uint64) { atomic.AddUint64(w, 1) }

// await waits until ready, within limit. It spins, then yields, then sleeps: on a
// small machine the proxy that it waits for needs its processor.
func await(ctx context.Context, what string, limit time.Duration, ready func() bool) error {
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

// awaitCount waits until a counter reaches want.
func (t *T) awaitCount(what string, w *uint64, want uint64) {
	there := func() bool { return atomic.LoadUint64(w) >= want }
	err := await(t.ctx, what, t.o.CallLimit, func() bool { return there() || t.failed() })
	if err == nil && !there() {
		runtime.Goexit() // another goroutine of the test has failed: it may have been ours to wait for
	}
	if err != nil {
		t.Fatalf("%v: the counter is %d, expected %d", err, atomic.LoadUint64(w), want)
	}
}

// fill writes a pattern that depends on the seed and the position, so that bytes
// of another place or an earlier round are recognized.
func fill(b []byte, seed uint64) {
	for i := range b {
		b[i] = pattern(seed, i)
	}
}

func pattern(seed uint64, i int) byte {
	x := (seed+1)*0x9e3779b97f4a7c15 + uint64(i)*0xbf58476d1ce4e5b9
	return byte(x >> 56)
}

// differs finds the first byte that is not the pattern's.
func differs(b []byte, seed uint64) (int, bool) {
	for i := range b {
		if b[i] != pattern(seed, i) {
			return i, true
		}
	}
	return 0, false
}
