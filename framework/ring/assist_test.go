package ring

import (
	"errors"
	"testing"
	"time"

	"github.com/mscclpp-go/mscclpp/framework"
	"github.com/mscclpp-go/mscclpp/framework/device"
)

// A push offers its trigger to the consumer in its own process, which may take it at once; a
// wait offers itself until it is over.
func TestAssist(t *testing.T) {
	p, c := pair(t, 4)
	takes, pushes, waits := false, 0, 0
	p.Assist(func(waiting bool) bool {
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
	})
	ctx := deadline(t, 20*time.Second)
	var last uint64
	for i := range uint64(6) { // more than there is room for: the fifth waits
		pos, err := p.PushContext(ctx, device.Trigger{Fst: i})
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
	if pos, err := p.Push(device.Trigger{}); err != nil || !p.Flushed(1, pos) {
		t.Errorf("after a push: %v, flushed %v: expected it to be performed", err, p.Flushed(1, pos))
	}
	if !p.Help() || c.Help() {
		t.Error("whether to ask again soon: expected the answer of who is asked, and no where nobody is")
	}
}

// Park says who has ended it: its time, or somebody.
func TestParkSaysWhetherItWasWoken(t *testing.T) {
	p, c := pair(t, 4)
	if c.Park(time.Millisecond) {
		t.Error("a park that nobody ended was ended by somebody")
	}
	for limit := time.Now().Add(20 * time.Second); ; {
		done := make(chan bool, 1)
		go func() { done <- c.Park(20 * time.Second) }()
		if _, err := p.Push(device.Trigger{}); err != nil {
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
