package proxy

import (
	"fmt"
	"strings"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"golang.org/x/sys/unix"

	"github.com/mscclpp-go/mscclpp/framework"
	"github.com/mscclpp-go/mscclpp/framework/kernel"
	"github.com/mscclpp-go/mscclpp/framework/ring"
)

// helped starts a proxy that lends itself to threads that push and wait.
func helped(t *testing.T, slots int, h func(r *ring.Ring, lent func() bool) Handler, o Options) (*ring.Ring, *Base) {
	t.Helper()
	r := newRing(t, slots)
	var b *Base
	b = NewBase(func(r *ring.Ring) Handler { return h(r, func() bool { return b.Lent() }) }, o)
	share, err := r.Share()
	if err != nil {
		t.Fatal(err)
	}
	defer share.Close()
	if err := b.Start(bound(t), share); err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { _ = b.Stop(bound(t)) })
	r.Assist(lending{b})
	return r, b
}

// lending is a proxy of a transport without a transport.
type lending struct{ b *Base }

func (l lending) Help(waits bool) bool { return l.b.Lend(waits) }

// Perform hands the trigger to the handler, at a position that no push has.
func (l lending) Perform(fst, snd uint64) (taken, done bool) {
	turn := l.b.Borrow()
	if turn == nil {
		return false, false
	}
	t := kernel.Trigger{Fst: fst, Snd: snd}
	var err error
	defer func() { taken = turn.Return(t, taken, err, recover()) }()
	if fst == refused {
		return false, false
	}
	r := turn.handler(t, atOnce)
	err = r.err
	return true, err == nil
}

const (
	atOnce  = 1 << 62
	refused = 1 << 40
)

// eventually fails the test if a condition does not come true.
func eventually(t *testing.T, what string, ready func() bool) {
	t.Helper()
	for limit := time.Now().Add(4 * time.Minute); !ready(); {
		if time.Now().After(limit) {
			t.Fatalf("not within 4 minutes: %s", what)
		}
	}
}

// A push performs the trigger on its own thread once the proxy's thread rests.
func TestHelpOnTheThreadOfThePush(t *testing.T) {
	var last atomic.Int64
	r, _ := helped(t, 64, func(r *ring.Ring, _ func() bool) Handler {
		return func(_ kernel.Trigger, pos uint64) Result {
			last.Store(int64(unix.Gettid()))
			r.Complete(0, pos)
			return Continue
		}
	}, Options{})
	eventually(t, "a trigger is performed by who pushed it", func() bool {
		pos := push(t, r, 1)
		return r.Flushed(0, pos) && last.Load() == int64(unix.Gettid())
	})
}

// Triggers are performed in order and once, on any thread, and a proxy that is stopped has
// performed all of them.
func TestHelpKeepsOrder(t *testing.T) {
	var next, own, lent uint64
	r, b := helped(t, 16, func(r *ring.Ring, isLent func() bool) Handler {
		return func(tr kernel.Trigger, pos uint64) Result {
			if pos != next {
				return Fail(fmt.Errorf("%w: position %d: expected %d", framework.ErrInvalid, pos, next))
			}
			if isLent() {
				if pos%7 == 3 {
					return Later // the thread has to
				}
				lent++
			} else {
				own++
			}
			next++
			r.Complete(0, pos)
			return Continue
		}
	}, Options{})
	const pushers, each = 3, 2000
	var all sync.WaitGroup
	for range pushers {
		all.Go(func() {
			for range each {
				if pos, err := r.PushContext(bound(t), kernel.Trigger{Fst: 1}); err != nil {
					t.Error(err)
				} else if err := r.WaitFlushed(bound(t), 0, pos); err != nil {
					t.Error(err)
				}
			}
		})
	}
	all.Wait()
	if err := b.Stop(bound(t)); err != nil {
		t.Fatal(err)
	}
	if next != pushers*each || own < next/7-1 || lent == 0 {
		t.Errorf("%d triggers, %d by the thread and %d by others: expected %d in all, and some of each", next, own, lent, pushers*each)
	}
}

// A thread that waits for a trigger in the middle of a full ring gets the turn from the proxy's thread.
func TestHelpOfAWaiter(t *testing.T) {
	var lent atomic.Uint64
	r, b := helped(t, 512, func(r *ring.Ring, isLent func() bool) Handler {
		return func(_ kernel.Trigger, pos uint64) Result {
			if isLent() {
				lent.Add(1)
			} else {
				ring.Doze(200 * time.Microsecond) // work that takes a while
			}
			r.Complete(0, pos)
			return Continue
		}
	}, Options{})
	eventually(t, "who waits performs triggers", func() bool {
		b.running.Load().turn.Lock() // a ring that is full before any look
		var last uint64
		for range 400 {
			last = push(t, r, 1)
		}
		before := lent.Load()
		b.running.Load().turn.Unlock()
		if err := r.WaitFlushed(bound(t), 0, last); err != nil {
			t.Fatal(err)
		}
		return lent.Load() > before+share
	})
}

// The thread looks after what nobody waits for any more.
func TestHelpEndsInTheMiddle(t *testing.T) {
	done := make(chan struct{})
	var once sync.Once
	var lent, outstanding atomic.Bool
	r, _ := helped(t, 8, func(_ *ring.Ring, isLent func() bool) Handler {
		return func(kernel.Trigger, uint64) Result {
			if isLent() {
				outstanding.Store(true)
				lent.Store(true)
			}
			return Continue
		}
	}, Options{Progress: func() (bool, error) {
		if outstanding.CompareAndSwap(true, false) {
			once.Do(func() { close(done) })
		}
		return outstanding.Load(), nil
	}})
	eventually(t, "a push is performed by who pushed", func() bool { push(t, r, 1); return lent.Load() })
	select {
	case <-done:
	case <-time.After(4 * time.Minute):
		t.Fatal("nobody makes progress with what was left")
	}
}

// An error, a panic and the end of a handler end the proxy, on whatever thread they happen.
func TestHelpThatFails(t *testing.T) {
	for what, x := range map[string]struct {
		end  func() Result
		want string // "": an end in order
	}{
		"error": {func() Result { return Fail(framework.ErrInvalid) }, "trigger"},
		"panic": {func() Result { panic("oops") }, "panicked: oops"},
		"end":   {func() Result { return End }, ""},
	} {
		t.Run(what, func(t *testing.T) {
			var mine atomic.Bool
			r, b := helped(t, 8, func(_ *ring.Ring, isLent func() bool) Handler {
				return func(kernel.Trigger, uint64) Result {
					if isLent() {
						mine.Store(true)
						return x.end()
					}
					return Continue
				}
			}, Options{})
			eventually(t, "a handler runs on the thread of a push", func() bool {
				_, err := r.PushContext(bound(t), kernel.Trigger{Fst: 1})
				return err != nil || mine.Load()
			})
			err := b.Wait(bound(t))
			if x.want == "" && err != nil || x.want != "" && (err == nil || !strings.Contains(err.Error(), x.want)) {
				t.Errorf("error %v: expected one with %q", err, x.want)
			}
			b.Lend(true) // late: the ring is gone
			if _, err := r.PushContext(bound(t), kernel.Trigger{Fst: 1}); framework.Class(err) == nil {
				t.Errorf("push after the end: %v", err)
			}
		})
	}
}

// A producer that cannot wake the proxy is seen soon, until another one has woken it.
func TestNapsUntilSomebodyWakesIt(t *testing.T) {
	o := Options{Park: 100 * time.Millisecond, Nap: time.Millisecond}
	s := New(newRing(t, 8), func(kernel.Trigger, uint64) Result { return Continue }, o)
	if got := s.nap(0); got != 10*time.Millisecond {
		t.Errorf("a nap of %v before the first push: expected 10 ms", got)
	}
	push(t, s.ring, 1)
	s.turn.Lock()
	if s.park(time.Nanosecond); !s.silent {
		t.Error("a push that did not wake the proxy was not noticed")
	}
	s.ring.Pop()
	s.turn.Unlock()
	for waited, want := range map[time.Duration]time.Duration{
		0:                       firstNap,
		8 * time.Millisecond:    500 * time.Microsecond,
		time.Second:             time.Millisecond,
		5120 * time.Millisecond: 5 * time.Millisecond,
		time.Hour:               10 * time.Millisecond,
	} {
		if got := s.nap(waited); got != want {
			t.Errorf("a nap of %v after %v: expected %v", got, waited, want)
		}
	}
	s.turn.Lock()
	defer s.turn.Unlock()
	if s.park(time.Nanosecond); s.woken {
		t.Error("a sleep that ended by itself was ended by somebody")
	}
	var wakers sync.WaitGroup
	defer wakers.Wait() // before the ring is closed
	var enough atomic.Bool
	defer enough.Store(true)
	wakers.Go(func() {
		for !enough.Load() {
			s.ring.Wake()
			ring.Doze(100 * time.Microsecond)
		}
	})
	for limit := time.Now().Add(4 * time.Minute); !s.woken && time.Now().Before(limit); {
		s.park(20 * time.Second)
	}
	if !s.woken {
		t.Error("a sleep that was ended was not noticed")
	}
}

// While another thread performs triggers the proxy's thread sleeps, although there is one; a
// trigger that the other leaves it performs at once.
func TestHelpLeavesToTheThread(t *testing.T) {
	release := make(chan struct{})
	var entered, asked, threads atomic.Uint64
	r, b := helped(t, 64, func(r *ring.Ring, isLent func() bool) Handler {
		return func(tr kernel.Trigger, pos uint64) Result {
			switch {
			case !isLent():
				threads.Add(1)
			case tr.Fst == 2: // takes long
				entered.Store(1)
				<-release
			case tr.Fst == 3:
				asked.Add(1)
				return Later
			}
			r.Complete(0, pos)
			return Continue
		}
	}, Options{})
	eventually(t, "a trigger is performed by who pushed it", func() bool {
		before := threads.Load()
		return r.Flushed(0, push(t, r, 1)) && threads.Load() == before
	})
	var pusher sync.WaitGroup
	pusher.Go(func() { push(t, r, 2) })
	eventually(t, "the one that takes long has begun", func() bool { return entered.Load() == 1 || threads.Load() > 0 })
	s := b.running.Load()
	if entered.Load() == 1 && !s.taken() {
		t.Error("somebody performs a trigger, and the thread does not see it")
	}
	close(release)
	pusher.Wait()
	start := time.Now()
	pos := push(t, r, 3)
	eventually(t, "the thread performs what was left to it", func() bool { return r.Flushed(0, pos) })
	if took := time.Since(start); asked.Load() > 0 && took > 10*time.Second {
		t.Errorf("what was left was performed after %v", took)
	}
	eventually(t, "nobody performs anything, once the thread sleeps", func() bool { return !s.taken() })
}

// A flush that a kernel on the host asks for is announced, although the producers perform the
// triggers and complete nothing: the thread does.
func TestHelpCompletesForKernels(t *testing.T) {
	var pending atomic.Uint64 // position and one
	var asked atomic.Int64
	var view *ring.Ring
	r, _ := helped(t, 512, func(r *ring.Ring, _ func() bool) Handler {
		view = r
		return func(tr kernel.Trigger, pos uint64) Result {
			if tr.Fst == 7 {
				asked.Store(time.Now().UnixNano())
				pending.Store(pos + 1)
			}
			return Continue
		}
	}, Options{
		Progress: func() (bool, error) {
			pos := pending.Load()
			if pos == 0 || time.Now().UnixNano()-asked.Load() < int64(time.Millisecond) {
				return pos != 0, nil
			}
			view.Complete(0, pos-1)
			pending.Store(0)
			return false, nil
		},
		Owes: func() bool { return pending.Load() != 0 },
	})
	share, err := r.Share()
	if err != nil {
		t.Fatal(err)
	}
	defer share.Close()
	kern, err := ring.Open(share) // pushes as kernels do, and helps nobody
	if err != nil {
		t.Fatal(err)
	}
	defer kern.Close()
	var pusher sync.WaitGroup
	defer pusher.Wait()
	var enough atomic.Bool
	defer enough.Store(true)
	pusher.Go(func() {
		for !enough.Load() {
			if _, err := r.Push(kernel.Trigger{Fst: 1}); err != nil {
				t.Error(err)
				return
			}
			ring.Doze(time.Millisecond)
		}
	})
	for range 20 {
		pos, err := kern.Push(kernel.Trigger{Fst: 7})
		if err != nil {
			t.Fatal(err)
		}
		eventually(t, "a flush of a kernel beside one who pushes", func() bool { return kern.Flushed(0, pos) })
	}
}
