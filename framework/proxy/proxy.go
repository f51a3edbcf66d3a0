package proxy

import (
	"context"
	"errors"
	"fmt"
	"runtime"
	"runtime/debug"
	"sync"
	"sync/atomic"
	"time"

	"golang.org/x/sys/unix"

	"github.com/mscclpp-go/mscclpp/framework"
	"github.com/mscclpp-go/mscclpp/framework/kernel"
	"github.com/mscclpp-go/mscclpp/framework/observe"
	"github.com/mscclpp-go/mscclpp/framework/ring"
)

// Handler performs one trigger, the one at position pos of the ring. It runs on the
// proxy's thread, one call at a time, in the order of the pushes. It should not
// allocate. A panic ends the proxy as an error does.
type Handler func(t kernel.Trigger, pos uint64) Result

// Result is what the proxy does next.
type Result struct {
	end, later bool
	err        error
}

// Results of a handler.
var (
	Continue = Result{}          // take the next trigger
	End      = Result{end: true} // end in order: the handler wants no more

	// Later leaves the trigger in the ring. A handler that would have to wait returns it
	// where it may not wait: see Service.Help.
	Later = Result{later: true}
)

// Fail ends the proxy because of err. Its class goes into the ring's error word, so that every wait
// for the proxy learns it.
func Fail(err error) Result { return Result{end: true, err: err} }

// Options of a proxy. The zero value is right for producers on the host.
type Options struct {
	// Spin and Yield say how long an idle proxy polls before it yields its core,
	// and how long it yields before it sleeps. 0: 20 µs and 1 ms.
	Spin, Yield time.Duration

	// Park bounds each sleep. A push from the host ends a sleep; kernels of a GPU cannot
	// end it, so a proxy that serves them needs a short bound. 0: 100 ms.
	Park time.Duration

	// Nap bounds each sleep until a push from the host has ended one, since before that
	// the ring may be that of kernels. The first sleeps of a pause are shorter. Those of a
	// long pause, or before the first push, are ten times as long. 0: Park.
	Nap time.Duration

	// CPU pins the thread to one core; 0 leaves it to the system, n means core n-1.
	CPU int

	// Init runs on the thread before the first trigger; an error ends the proxy.
	Init func() error

	// Progress runs between triggers, for handlers that start work and complete it later.
	// While it reports that work is outstanding, the proxy does not sleep, and Stop waits.
	Progress func() (outstanding bool, err error)

	// Records, for a Copier, gets what it takes, submits and sees complete; nil: it goes nowhere.
	Records *observe.Loop

	// Owes reports whether a thread may wait for what Progress completes. While others perform the
	// triggers of a ring, the thread checks for that. Any thread may call it at any time.
	Owes func() bool
}

// Service is a proxy for one ring.
type Service struct {
	ring    *ring.Ring
	handler Handler
	o       Options
	stop    atomic.Int32
	done    chan struct{}
	err     error // after done

	mu      sync.Mutex
	started bool
	ended   bool

	woken  bool // a producer has ended a sleep: there are none that cannot
	crowd  ring.Crowd
	silent bool // something was pushed during a sleep, which went on

	// The turn is that of the thread except while it rests, and else of a helper.
	turn   sync.Mutex
	wanted atomic.Bool   // by a waiting thread
	helped atomic.Uint64 // how many have had it
	left   atomic.Bool   // the last of them has left triggers to the thread
	lent   bool          // one of them has it
	seen   uint64        // of them by the thread
	failed error         // of a handler that one of them has run
	over   bool          // the ring is not to be touched any more
}

const (
	run int32 = iota
	finish
	quit
)

// New returns a proxy that does not run yet. It becomes the ring's only consumer.
// The ring stays the caller's, and must not be closed before the proxy has ended.
func New(r *ring.Ring, h Handler, o Options) *Service {
	if o.Spin == 0 {
		o.Spin = 20 * time.Microsecond
	}
	if o.Yield == 0 {
		o.Yield = time.Millisecond
	}
	if o.Park == 0 {
		o.Park = 100 * time.Millisecond
	}
	return &Service{ring: r, handler: h, o: o, done: make(chan struct{})}
}

// Start begins to drain the ring.
func (s *Service) Start() error {
	s.mu.Lock()
	defer s.mu.Unlock()
	if s.started || s.ended {
		return fmt.Errorf("proxy start: %w: it was started or stopped before", framework.ErrInvalid)
	}
	s.started = true
	go func() {
		runtime.LockOSThread() // and never unlocked: the thread ends, with whatever Init did to it
		s.end(s.main())
	}()
	return nil
}

// Wait waits until the proxy has ended and returns why: nil after Stop or End.
func (s *Service) Wait(ctx context.Context) error {
	select {
	case <-s.done:
		return s.err
	case <-ctx.Done():
		return ctx.Err()
	}
}

// Done is closed when the proxy has ended: from then on it does not touch the ring.
func (s *Service) Done() <-chan struct{} { return s.done }

// Stop performs what was pushed before the call, and ends the proxy. If ctx ends first,
// the rest is dropped, which is an error. A handler that does not return cannot be
// stopped; Stop then returns with ctx.
func (s *Service) Stop(ctx context.Context) error {
	s.mu.Lock()
	if !s.started {
		s.mu.Unlock()
		s.end(nil)
		return nil
	}
	s.mu.Unlock()
	s.stopWith(finish)
	select {
	case <-s.done:
		return nil
	case <-ctx.Done():
	}
	s.stopWith(quit)
	select {
	case <-s.done:
		return s.err
	case <-time.After(grace):
		return fmt.Errorf("proxy stop: %w: a handler does not return", ctx.Err())
	}
}

// Quit tells the proxy to drop what was pushed, and to end. It is for a job that has
// failed, and does not wait.
func (s *Service) Quit() { s.stopWith(quit) }

// stopWith raises the word to stop. Once the proxy has ended the ring may be gone.
func (s *Service) stopWith(how int32) {
	s.mu.Lock()
	defer s.mu.Unlock()
	if s.ended {
		return
	}
	s.stop.Store(max(how, s.stop.Load()))
	s.ring.Wake()
}

// grace is what a handler gets to return once Stop has lost patience.
const grace = 100 * time.Millisecond

func (s *Service) end(err error) {
	s.mu.Lock()
	defer s.mu.Unlock()
	if s.ended {
		return
	}
	s.ended, s.err = true, err
	s.ring.Fail(err)
	close(s.done)
}

// main is the thread. A panic anywhere in it is its error.
func (s *Service) main() (err error) {
	pos := uint64(0)
	s.turn.Lock()
	defer func() {
		if p := recover(); p != nil {
			err = panicked(pos, p)
		}
		s.over = true
		s.turn.Unlock()
	}()
	if s.o.CPU > 0 {
		var one unix.CPUSet
		one.Set(s.o.CPU - 1)
		_ = unix.SchedSetaffinity(0, &one) // a wish: without it the proxy is slower
	}
	if s.o.Init != nil {
		if err := s.o.Init(); err != nil {
			return fmt.Errorf("proxy init: %w", err)
		}
	}
	// After the request to finish, at most what fits into the ring was pushed before.
	left := -1
	for {
		t, at, ok, err := s.next()
		switch {
		case errors.Is(err, errEnd):
			return nil
		case err != nil || !ok:
			return err
		}
		pos = at
		switch s.stop.Load() {
		case quit:
			return fmt.Errorf("proxy: %w: stopped at trigger %d, before everything that was pushed had been performed", framework.ErrClosed, pos)
		case finish:
			if left < 0 {
				left = s.ring.Slots()
			}
			if left == 0 {
				return nil
			}
			left--
		}
		r := s.handler(t, pos)
		if r.err != nil {
			return rejected(t, pos, r.err)
		}
		s.ring.Pop()
		if r.end {
			return nil
		}
		if s.wanted.Load() {
			s.cede()
		}
	}
}

func panicked(pos uint64, p any) error {
	return fmt.Errorf("proxy: %w: handler of trigger %d panicked: %v\n%s", framework.ErrPlugin, pos, p, debug.Stack())
}

func rejected(t kernel.Trigger, pos uint64, err error) error {
	return fmt.Errorf("proxy: trigger %d (%#x %#x): %w", pos, t.Fst, t.Snd, err)
}

// next waits for a trigger; not ok: the proxy is to end.
func (s *Service) next() (kernel.Trigger, uint64, bool, error) {
	var idle, last time.Time // since when there is nothing, and when that was seen last
	yields, slept := s.o.Yield, false
	for n := 0; ; n++ {
		if s.failed != nil {
			return kernel.Trigger{}, 0, false, s.failed
		}
		if t, pos, ok := s.ring.Poll(); ok {
			if s.o.Progress != nil && n == 0 {
				if _, err := s.o.Progress(); err != nil {
					return t, pos, false, fmt.Errorf("proxy: %w", err)
				}
			}
			if !last.IsZero() {
				now := time.Now()
				s.crowd.Look(last, now)
				s.crowd.Ended(now.Sub(idle), slept, now)
			}
			return t, pos, true, nil
		}
		outstanding := false
		if s.o.Progress != nil {
			var err error
			if outstanding, err = s.o.Progress(); err != nil {
				return kernel.Trigger{}, 0, false, fmt.Errorf("proxy: %w", err)
			}
		}
		if stop := s.stop.Load(); stop == quit || stop == finish && !outstanding {
			t, pos, ok := s.ring.Poll() // triggers that were pushed before the request to stop are visible now
			if stop == quit && outstanding {
				return t, pos, false, fmt.Errorf("proxy: %w: stopped with work outstanding", framework.ErrClosed)
			}
			return t, pos, ok, nil
		}
		if s.spare() {
			idle, last, n, slept = time.Time{}, time.Time{}, 0, false
			continue
		}
		if n%64 != 63 {
			continue
		}
		now := time.Now()
		if idle.IsZero() {
			idle, last = now, now
			if s.woken {
				yields = s.crowd.Budget(s.o.Yield, now)
			}
			continue
		}
		crowded := s.crowd.Look(last, now)
		last = now
		if s.rest(now.Sub(idle), yields, outstanding, crowded) {
			n, last, slept = 64-afterSleep, time.Now(), slept || !outstanding
		}
	}
}

// afterSleep is how often the thread looks before it sleeps again.
const afterSleep = 4

// firstNap is as short as the system's timers are.
const firstNap = 50 * time.Microsecond

// rest reports whether it has slept. In a crowd a proxy sleeps, if it can be woken, in place
// of yielding, and one whose yields were in vain does not for long.
func (s *Service) rest(waited, yields time.Duration, outstanding, crowded bool) (slept bool) {
	switch {
	case waited < s.o.Spin:
	case outstanding && crowded:
		s.turn.Unlock()
		ring.Doze(firstNap)
		s.take()
		return true
	case !outstanding && waited < s.o.Spin+yields && crowded && s.woken:
		s.park(s.o.Yield)
		return true
	case outstanding || waited < s.o.Spin+yields:
		s.turn.Unlock()
		ring.Yield()
		s.take()
	default:
		if s.stop.Load() != run {
			return false
		}
		d := s.o.Park
		if !s.woken && s.o.Nap > 0 {
			d = min(d, s.nap(waited))
		}
		s.park(d)
		return true
	}
	return false
}

// nap is how long a push that cannot wake the proxy may be late, after a pause. The first
// one ever may be later: many rings are never used.
func (s *Service) nap(waited time.Duration) time.Duration {
	if !s.silent {
		return 10 * s.o.Nap
	}
	most := min(max(waited/1024, s.o.Nap), 10*s.o.Nap)
	return min(max(waited/16, firstNap), most)
}

// park sleeps while others may have the turn.
func (s *Service) park(d time.Duration) {
	s.turn.Unlock()
	woken := s.ring.Park(d)
	s.take()
	s.woken = s.woken || woken
	if _, _, there := s.ring.Poll(); there && !woken {
		s.silent = true
	}
}
