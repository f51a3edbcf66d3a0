package proxy

import (
	"fmt"
	"strings"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"github.com/mscclpp-go/mscclpp/framework"
	"github.com/mscclpp-go/mscclpp/framework/kernel"
	"github.com/mscclpp-go/mscclpp/framework/ring"
)

// sequence is a handler that wants the triggers of each pusher in their order, whether they
// come through the ring or not, and one at a time.
type sequence struct {
	busy            atomic.Bool
	next            [4]uint64
	direct, through uint64
}

func (s *sequence) handle(r *ring.Ring) Handler {
	return func(t kernel.Trigger, pos uint64) Result {
		if !s.busy.CompareAndSwap(false, true) {
			return Fail(fmt.Errorf("%w: two perform triggers at the same time", framework.ErrInvalid))
		}
		defer s.busy.Store(false)
		owner, n := t.From(), t.Bytes()
		if n != s.next[owner] {
			return Fail(fmt.Errorf("%w: trigger %d of pusher %d: expected %d", framework.ErrInvalid, n, owner, s.next[owner]))
		}
		s.next[owner]++
		if pos == atOnce {
			s.direct++
			return Continue
		}
		s.through++
		r.Complete(uint32(owner), pos)
		return Continue
	}
}

// Triggers that go through the ring and ones that do not are performed in the order of their
// goroutine, one at a time, on any thread, and none is left behind.
func TestBorrowKeepsOrder(t *testing.T) {
	var s sequence
	r, b := helped(t, 8, func(r *ring.Ring, _ func() bool) Handler { return s.handle(r) }, Options{})
	const each = 3000
	var all sync.WaitGroup
	for owner := range uint64(len(s.next)) {
		all.Go(func() {
			for n := range uint64(each) {
				trigger := kernel.TriggerFields{From: owner, Bytes: n}.Pack()
				if n%5 != owner {
					if taken, _ := r.Now(trigger); taken {
						continue
					}
				}
				pos, err := r.PushContext(bound(t), trigger)
				if err == nil && n%16 == 0 {
					err = r.WaitFlushed(bound(t), uint32(owner), pos)
				}
				if err != nil {
					t.Error(err)
					return
				}
			}
		})
	}
	all.Wait()
	if err := b.Stop(bound(t)); err != nil {
		t.Fatal(err)
	}
	for owner, n := range s.next {
		if n != each {
			t.Errorf("%d triggers of pusher %d were performed: expected %d", n, owner, each)
		}
	}
	if s.direct == 0 || s.through == 0 {
		t.Errorf("%d triggers at once and %d through the ring: expected some of each", s.direct, s.through)
	}
}

// The turn cannot be borrowed before the start, while another thread has it, while something is in
// the ring, and after the end. A refused request has done nothing.
func TestBorrowIsRefused(t *testing.T) {
	if NewBase(nil, Options{}).Borrow() != nil {
		t.Error("the turn of a proxy that was not started")
	}
	var s sequence
	r, b := helped(t, 8, func(r *ring.Ring, _ func() bool) Handler { return s.handle(r) }, Options{})
	n := uint64(0)
	now := func() bool {
		taken, done := r.Now(kernel.Trigger{Fst: n})
		if taken != done {
			t.Fatalf("taken %v, done %v", taken, done)
		}
		if taken {
			n++
		}
		return taken
	}
	eventually(t, "the thread rests, and its turn can be borrowed", now)
	service := b.running.Load()
	helped := service.helped.Load()
	if taken, _ := r.Now(kernel.Trigger{Fst: refused}); taken || service.helped.Load() != helped {
		t.Error("a trigger that is not performed counts as help")
	}
	eventually(t, "the turn is not kept", func() bool { return !service.taken() }) // the thread may have it for a moment
	service.turn.Lock()
	if now() {
		t.Error("two have the turn")
	}
	pos, ok, err := r.Offer(kernel.Trigger{Fst: n}) // wakes nobody
	if !ok || err != nil {
		t.Fatal(ok, err)
	}
	n++
	service.turn.Unlock()
	if !r.Flushed(0, pos) && now() && !r.Flushed(0, pos) {
		t.Error("a trigger has overtaken one that is in the ring")
	}
	if err := r.WaitFlushed(bound(t), 0, pos); err != nil {
		t.Fatal(err)
	}
	if err := b.Stop(bound(t)); err != nil {
		t.Fatal(err)
	}
	if b.Borrow() != nil {
		t.Error("the turn of a proxy that has ended")
	}
}

// While the turn is borrowed the thread sleeps; once nobody borrows it any more the thread
// is back.
func TestBorrowPutsTheThreadToSleep(t *testing.T) {
	var s sequence
	var looks atomic.Uint64
	r, b := helped(t, 8, func(r *ring.Ring, _ func() bool) Handler { return s.handle(r) }, Options{
		Progress: func() (bool, error) { looks.Add(1); return false, nil },
	})
	n := uint64(0)
	now := func() bool {
		taken, _ := r.Now(kernel.Trigger{Fst: n})
		if taken {
			n++
		}
		return taken
	}
	eventually(t, "one who borrows the turn again and again keeps it", func() bool {
		before := looks.Load()
		for range 1000 {
			now()
		}
		return looks.Load() == before && n > 1000
	})
	last := looks.Load()
	eventually(t, "the thread looks again", func() bool { return looks.Load() > last })
	if err := b.Stop(bound(t)); err != nil {
		t.Fatal(err)
	}
}

// An error and a panic of a borrower of the turn end the proxy, as they do on its thread, and the
// trigger is not pushed once more.
func TestBorrowThatFails(t *testing.T) {
	for what, x := range map[string]struct {
		end  func() Result
		want string
	}{
		"error": {func() Result { return Fail(fmt.Errorf("%w: nonsense", framework.ErrInvalid)) }, "(0x5 0x0): invalid: nonsense"},
		"panic": {func() Result { panic("oops") }, "panicked: oops"},
	} {
		t.Run(what, func(t *testing.T) {
			calls := 0
			r, b := helped(t, 8, func(*ring.Ring, func() bool) Handler {
				return func(kernel.Trigger, uint64) Result { calls++; return x.end() }
			}, Options{})
			eventually(t, "the turn can be borrowed", func() bool {
				taken, done := r.Now(kernel.Trigger{Fst: 5})
				if done {
					t.Fatal("what has failed is done")
				}
				return taken
			})
			err := b.Wait(bound(t))
			if err == nil || !strings.Contains(err.Error(), x.want) || framework.Class(err) == nil || calls != 1 {
				t.Errorf("%d calls, error %v: expected one, and %q", calls, err, x.want)
			}
			if taken, _ := r.Now(kernel.Trigger{Fst: 5}); taken {
				t.Error("a trigger was performed after the end")
			}
			if _, err := r.PushContext(bound(t), kernel.Trigger{}); framework.Class(err) == nil {
				t.Errorf("push after the end: %v", err)
			}
		})
	}
}

// A trigger that is pushed while the turn is borrowed is performed by the borrower or by
// the thread, soon, though nothing waits for it.
func TestBorrowLeavesNothingBehind(t *testing.T) {
	hold, held := make(chan struct{}), make(chan struct{}, 1)
	r, b := helped(t, 8, func(r *ring.Ring, _ func() bool) Handler {
		return func(tr kernel.Trigger, pos uint64) Result {
			if pos != atOnce {
				r.Complete(0, pos)
			} else if tr.Fst == 2 {
				held <- struct{}{}
				<-hold
			}
			return Continue
		}
	}, Options{})
	eventually(t, "the turn can be borrowed", func() bool { taken, _ := r.Now(kernel.Trigger{Fst: 1}); return taken })
	var borrower sync.WaitGroup
	borrower.Go(func() {
		for {
			if taken, _ := r.Now(kernel.Trigger{Fst: 2}); taken {
				return
			}
		}
	})
	<-held
	pos := push(t, r, 3) // which cannot perform it
	if r.Flushed(0, pos) || !b.running.Load().taken() {
		t.Error("a push was performed beside one who has the turn")
	}
	close(hold)
	borrower.Wait()
	start := time.Now()
	eventually(t, "the trigger is performed", func() bool { return r.Flushed(0, pos) })
	if took := time.Since(start); took > 10*time.Second {
		t.Errorf("what was left was performed after %v", took)
	}
}

// A trigger that nothing announces to the thread, neither its producer nor the holder of the turn,
// is performed all the same: the thread does not sleep for long beside it.
func TestTheThreadLooksAgain(t *testing.T) {
	var looks atomic.Uint64 // of the thread, before it sleeps because others do its work
	r, b := helped(t, 8, func(r *ring.Ring, _ func() bool) Handler {
		return func(_ kernel.Trigger, pos uint64) Result {
			if pos != atOnce {
				r.Complete(0, pos)
			}
			return Continue
		}
	}, Options{Owes: func() bool { looks.Add(1); return false }})
	var turn *Service
	eventually(t, "the turn is borrowed, and the thread sleeps beside it", func() bool {
		r.Now(kernel.Trigger{})
		if turn = b.Borrow(); turn == nil {
			return false
		}
		for before, limit := looks.Load(), time.Now().Add(2*longWatch); time.Now().Before(limit); ring.Yield() {
			if looks.Load() > before {
				return true
			}
		}
		turn.Return(kernel.Trigger{}, false, nil, nil) // it had the turn in between, and waits for it
		return false
	})
	pos, ok, err := r.Offer(kernel.Trigger{Fst: 9}) // which does not look whether a thread sleeps
	if !ok || err != nil {
		t.Fatal(ok, err)
	}
	before, start := looks.Load(), time.Now()
	const often = 30
	eventually(t, "the thread looks at the trigger again and again", func() bool { return looks.Load() >= before+often })
	if took := time.Since(start); took > often*longWatch/2 {
		t.Errorf("%d looks at a trigger took %v, expected %v each", often, took, watch)
	}
	if r.Flushed(0, pos) {
		t.Error("the thread has performed a trigger while another had the turn")
	}
	turn.Return(kernel.Trigger{}, false, nil, nil) // which does not look at the ring
	eventually(t, "the trigger is performed", func() bool { return r.Flushed(0, pos) })
}
