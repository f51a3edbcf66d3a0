package ring

import (
	"runtime"
	"sync"
	"time"
	"unsafe"

	"golang.org/x/sys/unix"
)

// Pace spaces the looks of one who polls for what cannot wake it: briefly at full speed, then
// yielding the core, which may be what it waits for needs, then sleeping, each time for
// longer. There is one for each wait.
type Pace struct {
	crowd       *Crowd
	apart       bool
	start, last time.Time
}

const (
	paceSpin  = 20 * time.Microsecond
	paceYield = time.Millisecond
	paceDoze  = 16 * time.Millisecond

	shortNap = 50 * time.Microsecond  // as short as the system's timers are
	fineNap  = 200 * time.Microsecond // the longest of which the runtime is not told
	longNap  = time.Millisecond       // as short as the runtime's timers are, where the process has nothing else to do
)

// Begin begins a wait. Whoever waits for the same passes the same crowd; nil is none. Apart:
// who does what is waited for needs a core of its own.
func Begin(crowd *Crowd, apart bool) Pace {
	now := time.Now()
	return Pace{crowd: crowd, apart: apart, start: now, last: now}
}

// Rest comes between two looks. What the caller does between two rests takes microseconds.
func (p *Pace) Rest() {
	now := time.Now()
	waited := now.Sub(p.start)
	crowded := p.apart && p.crowd.Look(p.last, now)
	p.last = now
	if waited < paceSpin {
		return
	}
	if p.crowd.Share(now) {
		p.last = time.Now()
	}
	switch {
	case waited < paceYield && !crowded:
		yield()
	case waited < paceDoze:
		doze(min(max(waited/16, shortNap), fineNap))
		p.last = time.Now()
	default:
		time.Sleep(longNap)
		p.last = time.Now()
	}
}

// End ends a wait that has rested.
func (p *Pace) End() {
	if p.apart {
		p.crowd.Look(p.last, time.Now())
	}
}

// The runtime is not told of yields and short sleeps here. It would take away from a thread that
// polls its place among those that run Go code, again and again, and each time look every 20 µs
// whether there is more to take: a thread of its own that is as busy as who polls. So who
// polls gives his place to other goroutines himself. Threads that belong to one goroutine
// cannot, and tell the runtime.

// yield lets other threads have the core.
func yield() { _, _, _ = unix.RawSyscall(unix.SYS_SCHED_YIELD, 0, 0, 0) }

// Yield is yield for threads that belong to one goroutine.
func Yield() { _, _, _ = unix.Syscall(unix.SYS_SCHED_YIELD, 0, 0, 0) }

// doze sleeps on this thread. A signal ends it early, which does no harm.
func doze(d time.Duration) {
	t := unix.NsecToTimespec(d.Nanoseconds())
	_, _, _ = unix.RawSyscall(unix.SYS_NANOSLEEP, uintptr(unsafe.Pointer(&t)), 0, 0)
}

// Doze is doze for threads that belong to one goroutine.
func Doze(d time.Duration) {
	t := unix.NsecToTimespec(d.Nanoseconds())
	_ = unix.Nanosleep(&t, nil)
}

// Crowd notices that more threads want to run than there are cores for, also where these are
// those of a machine below that has fewer than this one sees. There a thread that polls is
// stopped for whole slices, and as often keeps a core from the one that it waits for. So
// for a while it sleeps in place of polling, and then tries again; for longer each time that
// this is in vain. The zero value is ready, and nil is never crowded.
type Crowd struct {
	mu           sync.Mutex
	polled, lost time.Duration // since the last decision
	until        time.Time
	span         time.Duration

	shared time.Time     // when others were last given the place among those that run Go code
	every  time.Duration // how often they are
}

const (
	stopped    = 500 * time.Microsecond // more than a poller does between two looks, and less than a slice
	window     = 10 * time.Millisecond  // of polling, for a decision
	shortCrowd = 20 * time.Millisecond
	longCrowd  = 640 * time.Millisecond
)

// Look is told when a poller has looked last, and now, and reports whether it should sleep.
func (c *Crowd) Look(last, now time.Time) bool {
	if c == nil {
		return false
	}
	c.mu.Lock()
	defer c.mu.Unlock()
	if now.Before(c.until) {
		return true
	}
	gap := now.Sub(last)
	if gap >= stopped {
		c.lost += gap
	} else {
		c.polled += gap
	}
	if c.polled+c.lost < window {
		return false
	}
	crowded := c.lost > c.polled/2
	c.polled, c.lost = 0, 0
	if !crowded {
		c.span = 0
		return false
	}
	c.span = min(max(2*c.span, shortCrowd), longCrowd)
	c.until = now.Add(c.span)
	return true
}

const (
	shortShare = 100 * time.Microsecond
	longShare  = 8 * time.Millisecond // the runtime does it by force after 10
)

// Share lets other goroutines run now and then: often while there are any, and rarely while
// there are none, since each time the runtime wakes a thread that looks for them. It reports
// whether it did.
func (c *Crowd) Share(now time.Time) bool {
	if c == nil {
		runtime.Gosched()
		return true
	}
	c.mu.Lock()
	due := now.Sub(c.shared) >= c.every
	if due {
		c.shared = now
	}
	c.mu.Unlock()
	if !due {
		return false
	}
	runtime.Gosched()
	took := time.Since(now)
	c.mu.Lock()
	if took < stopped {
		c.every = min(max(2*c.every, shortShare), longShare)
	} else {
		c.every = max(c.every/4, shortShare)
	}
	c.mu.Unlock()
	return true
}
