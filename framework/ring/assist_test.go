package ring

import (
	"errors"
	"testing"
	"time"

	"github.com/mscclpp-go/mscclpp/framework"
	"github.com/mscclpp-go/mscclpp/framework/kernel"
)

// helper is a consumer in the process of the producer.
type helper struct {
	help    func(waits bool) bool
	perform func(fst, snd uint64) (taken, done bool)
}

func (h helper) Help(waits bool) bool                       { return h.help(waits) }
func (h helper) Perform(fst, snd uint64) (taken, done bool) { return h.perform(fst, snd) }

// A trigger that is performed at once takes no slot. Triggers that others have pushed meanwhile are
// then offered to the consumer, and a consumer that sleeps and does not take it is woken.
func TestNow(t *testing.T) {
	p, c := pair(t, 4)
	if taken, done := p.Now(kernel.Trigger{Fst: 1}); taken || done {
		t.Error("a trigger was performed where nobody can")
	}
	var taken, done, drains bool
	helps := 0
	meanwhile := func() {}
	p.Assist(helper{
		help: func(waits bool) bool {
			if waits {
				t.Error("one who does not wait says that he does")
			}
			helps++
			for _, _, ok := c.Poll(); ok && drains; _, _, ok = c.Poll() {
				c.Pop()
			}
			return false
		},
		perform: func(fst, snd uint64) (bool, bool) {
			if fst != 5 || snd != 6 {
				t.Errorf("words %d and %d: expected 5 and 6", fst, snd)
			}
			meanwhile()
			return taken, done
		},
	})
	now := func() (bool, bool) { return p.Now(kernel.Trigger{Fst: 5, Snd: 6}) }
	for _, x := range [][2]bool{{false, false}, {true, false}, {true, true}} {
		taken, done = x[0], x[1]
		if a, b := now(); a != taken || b != done || helps != 0 || !c.Idle() {
			t.Errorf("taken %v, done %v, %d helps, idle %v: expected %v, %v, none, and no slot taken", a, b, helps, c.Idle(), taken, done)
		}
	}
	kern := func() { // a producer beside the helper, which helps nobody
		if _, ok, err := p.Offer(kernel.Trigger{Fst: 9}); !ok || err != nil {
			t.Fatal(ok, err)
		}
	}
	meanwhile, drains = kern, true
	if now(); helps != 1 || !c.Idle() {
		t.Errorf("%d helps and idle %v: expected what came meanwhile to be performed by one", helps, c.Idle())
	}
	drains = false
	woken := make(chan bool, 1)
	meanwhile = func() {
		go func() {
			woken <- c.ParkFor(func(bool) time.Duration {
				kern() // after the look that a park begins with
				return 20 * time.Second
			})
		}()
		for limit := time.Now().Add(20 * time.Second); c.Idle() && time.Now().Before(limit); {
		}
	}
	if now(); !<-woken {
		t.Error("a trigger that nobody performs did not wake the consumer")
	}
}

// A push offers its trigger to the consumer in its own process, which may take it at once; a
// wait offers itself until it is over.
func TestAssist(t *testing.T) {
	p, c := pair(t, 4)
	takes, pushes, waits := false, 0, 0
	p.Assist(helper{help: func(waiting bool) bool {
		if waiting {
			waits++
		} else {
			pushes++
		}
		if !takes && waits < 5 {
			return false
		}
		for _, pos, ok := c.Poll(); ok; _, pos, ok = c.Poll() {
			c.Complete(1, pos)
			c.Pop()
		}
		return waiting
	}})
	ctx := deadline(t, 4*time.Minute)
	var last uint64
	for i := range uint64(6) { // more than there is room for: the fifth waits
		pos, err := p.PushContext(ctx, kernel.Trigger{Fst: i})
		if err != nil || pos != i {
			t.Fatalf("push %d: position %d, %v", i, pos, err)
		}
		last = pos
	}
	if pushes != 6 || waits != 5 {
		t.Errorf("asked by %d pushes and %d times by one who waits: expected 6 and 5", pushes, waits)
	}
	if err := p.WaitFlushed(ctx, 1, last); err != nil {
		t.Fatal(err)
	}
	takes = true
	if pos, err := p.Push(kernel.Trigger{}); err != nil || !p.Flushed(1, pos) {
		t.Errorf("after a push: %v, flushed %v: expected it to be performed", err, p.Flushed(1, pos))
	}
	if !p.Help() || c.Help() {
		t.Error("whether to ask again soon: expected the answer of who is asked, and no where nobody is")
	}
}

// Park says what has ended it: its time, or a wake.
func TestParkReportsWhetherItWasWoken(t *testing.T) {
	p, c := pair(t, 4)
	if c.Park(time.Millisecond) {
		t.Error("a park that nobody ended was ended by somebody")
	}
	for limit := time.Now().Add(20 * time.Second); ; {
		done := make(chan bool, 1)
		go func() { done <- c.Park(20 * time.Second) }()
		if _, err := p.Push(kernel.Trigger{}); err != nil {
			t.Fatal(err)
		}
		woken := <-done // the push may have come before
		if _, _, ok := c.Poll(); !ok {
			t.Fatal("nothing is there after a push")
		}
		c.Pop()
		if woken {
			break
		}
		if time.Now().After(limit) {
			t.Fatal("no push has ended a park within 20 s")
		}
	}
	p.Fail(framework.ErrPeer)
	if c.Park(20*time.Second) || !errors.Is(p.Err(), framework.ErrPeer) {
		t.Error("a ring that has ended was slept on")
	}
}
