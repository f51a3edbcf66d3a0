package ring

import (
	"runtime"
	"sync"
	"time"
	"unsafe"

	"golang.org/x/sys/unix"
)

// Pace spaces the looks of a thread that polls for something that cannot wake it. The thread first
// polls at full speed for a short time, then yields the core, which its peer may need, then sleeps,
// each time for longer. There is one Pace for each wait.
type Pace struct {
	crowd       *Crowd
	apart       bool
	slept       bool
	yields      time.Duration // before it sleeps
	start, last time.Time
}

const (
	paceSpin  = 20 * time.Microsecond
	paceYield = time.Millisecond
	paceDoze  = 16 * time.Millisecond

	shortNap = 50 * time.Microsecond  // as short as the system's timers are
	fineNap  = 200 * time.Microsecond // the longest that the runtime does not learn of
	longNap  = time.Millisecond       // as short as the runtime's timers are, where the process has nothing else to do
)

// Begin begins a wait. Waits for the same thing pass the same crowd; nil is none. Apart says that
// the thread that is waited for needs a core of its own.
func Begin(crowd *Crowd, apart bool) Pace {
	now := time.Now()
	p := Pace{crowd: crowd, apart: apart, yields: paceYield, start: now, last: now}
	if apart {
		p.yields = crowd.Budget(paceYield, now)
	}
	return p
}

// Rest is called between two looks. The caller's own work between two rests takes
// microseconds.
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
	case waited < p.yields && !crowded:
		yield()
	case waited < paceDoze:
		doze(min(max(waited/16, shortNap), fineNap))
		p.slept, p.last = true, time.Now()
	default:
		time.Sleep(longNap)
		p.slept, p.last = true, time.Now()
	}
}

// End ends a wait that has rested.
func (p *Pace) End() {
	if p.apart {
		now := time.Now()
		p.crowd.Look(p.last, now)
		p.crowd.Ended(now.Sub(p.start), p.slept, now)
	}
}

// The runtime does not learn of yields and short sleeps here. It would take away from a thread that
// polls its place among those that run Go code, again and again, and each time look every 20 µs
// whether there is more to take: a thread of its own that is as busy as the polling one. So the
// polling thread gives its place to other goroutines itself. Threads that belong to one goroutine
// cannot, and tell the runtime.

// yield lets other threads have the core.
func yield() { _, _, _ = unix.RawSyscall(unix.SYS_SCHED_YIELD, 0, 0, 0) }

// Yield is yield for threads that belong to one goroutine.
func Yield() { _, _, _ = unix.Syscall(unix.SYS_SCHED_YIELD, 0, 0, 0) }

// doze sleeps on this thread. A signal ends it early, which does no harm.
func doze(d time.Duration) {
	punctual()
	t := unix.NsecToTimespec(d.Nanoseconds())
	_, _, _ = unix.RawSyscall(unix.SYS_NANOSLEEP, uintptr(unsafe.Pointer(&t)), 0, 0)
}

// Doze is doze for threads that belong to one goroutine.
func Doze(d time.Duration) {
	punctual()
	t := unix.NsecToTimespec(d.Nanoseconds())
	_ = unix.Nanosleep(&t, nil)
}

// punctual has the system's timers end this thread's sleeps when they are over, and not up to
// 50 µs later, together with others.
func punctual() { _, _, _ = unix.RawSyscall(unix.SYS_PRCTL, unix.PR_SET_TIMERSLACK, 1, 0) }

// Crowd notices that more threads want to run than there are cores, also when the
// missing cores are those of the host of a virtual machine. There a thread that polls
// is stopped for whole time slices, and as often keeps a core from the thread that it
// waits for. So for a while it sleeps instead of polling, and then tries polling again;
// the sleeping periods grow each time that polling does not help. The zero value is
// ready to use; a nil Crowd is never crowded.
//
// A poller that keeps a core from the thread that it waits for need not be stopped
// itself: what it waits for comes once it sleeps. So polls without success make the
// next ones shorter, and successful ones make them longer again. Now and then a poll
// has its full length.
type Crowd struct {
	mu           sync.Mutex
	polled, lost time.Duration // since the last decision
	until        time.Time
	span         time.Duration

	vain  int       // more of them: polls that did not bring what they waited for, less those that did
	tried time.Time // when one was last as long as if there were none

	shared time.Time     // when others were last given the place among those that run Go code
	every  time.Duration // how often they are
}

const (
	stopped    = 500 * time.Microsecond // more than a poller does between two looks, and less than a slice
	window     = 10 * time.Millisecond  // of polling, for a decision
	shortCrowd = 20 * time.Millisecond
	longCrowd  = 640 * time.Millisecond
	mostVain   = 6                     // then a wait yields for a 64th of its time
	tryAgain   = 40 * time.Millisecond // and one in so long for all of it
)

// Look records when a poller looked last, and now. It reports whether the poller should
// sleep.
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

// Budget returns for how long a wait that begins now yields before it sleeps: full, or
// a part of it.
func (c *Crowd) Budget(full time.Duration, now time.Time) time.Duration {
	if c == nil {
		return full
	}
	c.mu.Lock()
	defer c.mu.Unlock()
	if c.vain > 0 && now.Sub(c.tried) >= tryAgain {
		c.tried = now
		return full
	}
	return full >> c.vain
}

// Ended records for each wait how long it took, and whether it has slept.
func (c *Crowd) Ended(took time.Duration, slept bool, now time.Time) {
	if c == nil || took < paceSpin || took > paceDoze {
		return // it was over at once, or was for something that takes its time
	}
	c.mu.Lock()
	defer c.mu.Unlock()
	switch {
	case !slept && c.vain > 0:
		c.vain -= 2
	case slept && c.vain < mostVain:
		c.vain += 2
		c.tried = now
	}
}

const (
	shortShare = 100 * time.Microsecond
	longShare  = 8 * time.Millisecond // the runtime does it by force after 10
)

// Share lets other goroutines run now and then: often while there are any, and rarely
// while there are none, since each time the runtime wakes a thread to look for them. It
// reports whether it did.
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
