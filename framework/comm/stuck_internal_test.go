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
