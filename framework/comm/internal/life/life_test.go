package life

import (
	"context"
	"log/slog"
	"testing"
	"time"
)

func running(grace time.Duration, e *Ending) *Life {
	return New("test", slog.New(slog.DiscardHandler), grace, e, func() {})
}

// slow is a part whose transport does not answer until wake is closed. left is the time
// that its last end was given.
type slow struct {
	Lifetime
	wake chan struct{}
	left time.Duration
}

func (s *slow) end(ctx context.Context) error {
	end, _ := ctx.Deadline()
	s.left = time.Until(end)
	select {
	case <-s.wake:
		return nil
	case <-ctx.Done():
		return ctx.Err()
	}
}

// A part that hangs costs its bound once, not once for each part; a part that answers has it again.
func TestCloseBehindOneThatHangs(t *testing.T) {
	l, wake := running(0, nil), make(chan struct{})
	next := func() *slow {
		s := &slow{wake: wake}
		s.owner, s.release = &l.Parts, s.end
		return s
	}
	if err := next().closeWithin(time.Millisecond); err == nil {
		t.Fatal("a transport that hangs has answered")
	}
	for range 2 {
		if s := next(); s.Close() == nil || s.left > stuckTimeout {
			t.Errorf("closed within %v, expected at most %v for it", s.left, stuckTimeout)
		}
	}
	close(wake)
	if s := next(); s.Close() != nil || s.left > stuckTimeout {
		t.Errorf("closed within %v", s.left)
	}
	if s := next(); s.Close() != nil || s.left <= stuckTimeout {
		t.Errorf("closed within %v, expected %v again", s.left, CloseTimeout)
	}
}

// never is a part whose transport never answers.
func never(l *Life) *Lifetime {
	return &Lifetime{owner: &l.Parts, release: func(ctx context.Context) error {
		<-ctx.Done()
		return ctx.Err()
	}}
}

// A part that has ended before is no sign that what hung answers.
func TestCloseTwiceBehindOneThatHangs(t *testing.T) {
	l := running(0, nil)
	s := never(l)
	if err := s.closeWithin(time.Millisecond); err == nil {
		t.Fatal("a transport that hangs has answered")
	}
	if err := s.Close(); err == nil || !l.stuck.Load() {
		t.Errorf("%v, stuck %v: expected the error of the end, which hung", err, l.stuck.Load())
	}
}

// After a failure all endings together, of all communicators that were made of each other, have a
// part of the time that a rank has when the job is ended.
func TestCloseAfterAFailure(t *testing.T) {
	const grace = 10 * time.Second
	ending := &Ending{}
	world, sub := running(grace, ending), running(grace, ending)
	s := never(world)
	if bound := world.CloseBound(); bound != CloseTimeout {
		t.Errorf("before a failure %v, expected %v", bound, CloseTimeout)
	}
	world.Fail(context.Canceled)
	sub.Fail(context.Canceled)
	start := time.Now()
	first := world.CloseBound()
	if first > grace/failedShare || first <= stuckTimeout {
		t.Errorf("after a failure %v of %v", first, grace)
	}
	ending.by = start.Add(stuckTimeout / 2) // as if the rest were used up
	if err := s.Close(); err == nil || time.Since(start) > first {
		t.Errorf("%v after %v: expected that it waits no longer than the time that is left", err, time.Since(start))
	}
	for _, l := range []*Life{world, sub} {
		if bound := l.CloseBound(); bound > stuckTimeout {
			t.Errorf("after the time is used up there is %v more", bound)
		}
	}
	// Another group fails much later, in a job that has gone on.
	ending.by = start.Add(-grace - time.Second)
	if bound := sub.CloseBound(); bound > grace/failedShare || bound <= stuckTimeout {
		t.Errorf("at a later failure %v of %v", bound, grace)
	}
}
