package comm

import (
	"context"
	"testing"
	"time"
)

// slow is a part whose transport does not answer until wake is closed. left is the time
// that its last end was given.
type slow struct {
	lifetime
	wake chan struct{}
	left time.Duration
}

func (s *slow) shut(ctx context.Context) error {
	end, _ := ctx.Deadline()
	s.left = time.Until(end)
	select {
	case <-s.wake:
		return nil
	case <-ctx.Done():
		return ctx.Err()
	}
}

// What hangs costs its bound once, not once for each part; what answers has it again.
func TestCloseBehindOneThatHangs(t *testing.T) {
	c := &Communicator{}
	s := &slow{lifetime: lifetime{comm: c}, wake: make(chan struct{})}
	if err := s.shutWithin(time.Millisecond, s); err == nil {
		t.Fatal("a transport that hangs has answered")
	}
	for range 2 {
		if err := s.shutNow(s); err == nil || s.left > stuckTimeout {
			t.Errorf("%v within %v, expected at most %v for it", err, s.left, stuckTimeout)
		}
	}
	close(s.wake)
	if err := s.shutNow(s); err != nil || s.left > stuckTimeout {
		t.Errorf("%v within %v", err, s.left)
	}
	if err := s.shutNow(s); err != nil || s.left <= stuckTimeout {
		t.Errorf("%v within %v, expected %v again", err, s.left, closeTimeout)
	}
}

// A part that has ended before is no sign that what hung answers.
func TestCloseTwiceBehindOneThatHangs(t *testing.T) {
	c := &Communicator{}
	s := &once{lifetime: lifetime{comm: c}}
	if err := s.shutWithin(time.Millisecond, s); err == nil {
		t.Fatal("a transport that hangs has answered")
	}
	if err := s.shutNow(s); err == nil || !c.stuck.Load() {
		t.Errorf("%v, stuck %v: expected the error of the end, which hung", err, c.stuck.Load())
	}
}

// once is a part whose transport never answers.
type once struct{ lifetime }

func (o *once) shut(ctx context.Context) error {
	return o.end(o, func() error {
		<-ctx.Done()
		return ctx.Err()
	})
}

// After a failure all endings together, of all communicators that were made of each other,
// have a part of the time that whoever ends the job leaves a rank.
func TestCloseAfterAFailure(t *testing.T) {
	o := Options{Grace: 10 * time.Second, ending: &ending{}}
	world, sub := &Communicator{opts: o}, &Communicator{opts: o}
	s := &once{lifetime: lifetime{comm: world}}
	if bound := world.closeBound(); bound != closeTimeout {
		t.Errorf("before a failure %v, expected %v", bound, closeTimeout)
	}
	world.failed.Store(true)
	sub.failed.Store(true)
	start := time.Now()
	first := world.closeBound()
	if first > o.Grace/failedShare || first <= stuckTimeout {
		t.Errorf("after a failure %v of %v", first, o.Grace)
	}
	o.ending.by = start.Add(stuckTimeout / 2) // as if the rest were used up
	if err := s.shutNow(s); err == nil || time.Since(start) > first {
		t.Errorf("%v after %v: expected that it waits no longer than the time that is left", err, time.Since(start))
	}
	for _, c := range []*Communicator{world, sub} {
		if bound := c.closeBound(); bound > stuckTimeout {
			t.Errorf("after the time is used up there is %v more", bound)
		}
	}
	// Another group fails much later, in a job that has gone on.
	o.ending.by = start.Add(-o.Grace - time.Second)
	if bound := sub.closeBound(); bound > o.Grace/failedShare || bound <= stuckTimeout {
		t.Errorf("at a later failure %v of %v", bound, o.Grace)
	}
}
