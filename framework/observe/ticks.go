package observe

import (
	"math/bits"
	"os"
	"runtime"
	"strings"
	"sync"
	"sync/atomic"
	"time"

	"golang.org/x/sys/unix"

	"github.com/mscclpp-go/mscclpp/framework/kernel"
)

// Now reads the clock of this host, in ns: that of the system since its start, which all processes of a host share. While a rank of this
// process is observed it reads the time-stamp counter, which takes half as long.
func Now() int64 {
	if at, ok := ticks.read(); ok {
		return at
	}
	return system()
}

// Package time reads the clock without a system call, but from an origin of its own, which calibrate finds.
var epoch, epochTime = calibrate()

func calibrate() (origin int64, began time.Time) {
	began = time.Now()
	best := time.Duration(1 << 62)
	for range 16 {
		var t unix.Timespec
		before := time.Since(began)
		if unix.ClockGettime(unix.CLOCK_MONOTONIC, &t) != nil {
			continue
		}
		if took := time.Since(began) - before; took < best {
			best, origin = took, t.Nano()-int64(before+took/2)
		}
	}
	return origin, began
}

func system() int64 { return epoch + int64(time.Since(epochTime)) }

// ticks is the time-stamp counter as a clock of this process. Kernels of the host read the part that is shared.
var ticks = newTickClock(counter, system, counted())

// tickClock follows a clock by a counter that runs evenly. Its time does not jump: what it is wrong by it makes up for until it is renewed.
type tickClock struct {
	shared  kernel.RecordClock
	counter func() uint64
	clock   func() int64
	usable  bool

	mu     sync.Mutex
	last   sample
	seeded bool
}

type sample struct {
	ticks uint64
	at    int64
}

func newTickClock(counter func() uint64, clock func() int64, usable bool) *tickClock {
	return &tickClock{counter: counter, clock: clock, usable: usable}
}

// counted reports whether the system itself takes the time from the counter, and so says that it runs evenly on all processors.
func counted() bool {
	source, err := os.ReadFile("/sys/devices/system/clocksource/clocksource0/current_clocksource")
	return err == nil && runtime.GOARCH == "amd64" && strings.TrimSpace(string(source)) == "tsc"
}

const (
	renewAfter = int64(tick) / 2 // with several ranks in one process
	mostSlew   = 1e-3
	mostWrong  = 100_000 // ns by which a clock is wrong that is not followed any more, but left
)

// renew has the counter follow the clock. It is called every tick.
func (c *tickClock) renew() {
	if !c.usable {
		return
	}
	c.mu.Lock()
	defer c.mu.Unlock()
	now := c.sample()
	if !c.seeded {
		c.last, c.seeded = now, true
		return
	}
	passed, took := now.ticks-c.last.ticks, now.at-c.last.at
	if took < renewAfter {
		return
	}
	rate := float64(took) / float64(passed)
	at := now.at
	if s := &c.shared; s.Mult != 0 {
		at = int64(s.NS + scaled(now.ticks-s.TSC, s.Mult))
		if wrong := now.at - at; wrong > mostWrong || wrong < -mostWrong { // the process stood still, or the counter does not run evenly
			c.publish(kernel.RecordClock{})
			c.last = now
			return
		}
		rate *= 1 + max(-mostSlew, min(mostSlew, float64(now.at-at)/float64(tick)))
	}
	c.last = now
	c.publish(kernel.RecordClock{TSC: now.ticks, NS: uint64(at), Mult: uint64(rate * (1 << 32)), Most: uint64(float64(10*tick) / rate)})
}

// sample is the quickest of some looks at both.
func (c *tickClock) sample() (best sample) {
	least := uint64(1<<64 - 1)
	for range 5 {
		before := c.counter()
		at := c.clock()
		if took := c.counter() - before; took < least {
			least, best = took, sample{before + took/2, at}
		}
	}
	return best
}

func (c *tickClock) publish(x kernel.RecordClock) {
	s := &c.shared
	turn := atomic.AddUint64(&s.Turn, 1)
	atomic.StoreUint64(&s.TSC, x.TSC)
	atomic.StoreUint64(&s.NS, x.NS)
	atomic.StoreUint64(&s.Mult, x.Mult)
	atomic.StoreUint64(&s.Most, x.Most)
	atomic.StoreUint64(&s.Turn, turn+1)
}

// read is false before the rate of the counter is known, while it is renewed, and when it was not for long.
func (c *tickClock) read() (int64, bool) {
	s := &c.shared
	turn := atomic.LoadUint64(&s.Turn)
	if turn == 0 {
		return 0, false
	}
	tsc, ns, mult, most := atomic.LoadUint64(&s.TSC), atomic.LoadUint64(&s.NS), atomic.LoadUint64(&s.Mult), atomic.LoadUint64(&s.Most)
	passed := c.counter() - tsc
	if turn%2 != 0 || passed >= most || atomic.LoadUint64(&s.Turn) != turn {
		return 0, false
	}
	return int64(ns + scaled(passed, mult)), true
}

// scaled is ticks in ns.
func scaled(ticks, mult uint64) uint64 {
	high, low := bits.Mul64(ticks, mult)
	return high<<32 | low>>32
}
