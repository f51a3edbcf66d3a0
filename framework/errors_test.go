package framework

import (
	"context"
	"errors"
	"fmt"
	"testing"
)

func TestErrorText(t *testing.T) {
	missing := fmt.Errorf("no usable device: %w", ErrUnavailable)
	for _, c := range []struct {
		err  Error
		want string
	}{
		{Error{Op: "connect", Transport: "ib-host", Peer: 3, Err: missing}, "ib-host connect rank 3: no usable device: unavailable"},
		{Error{Op: "register", Transport: "shm", Peer: NoPeer, Err: ErrClosed}, "shm register: closed"},
		{Error{Op: "wait", Peer: 0, Err: ErrPeer}, "wait rank 0: peer failed"},
		{Error{Op: "start", Transport: "tcp", Peer: NoPeer}, "tcp start"},
	} {
		if got := c.err.Error(); got != c.want {
			t.Errorf("got  %q\nwant %q", got, c.want)
		}
	}
}

func TestClass(t *testing.T) {
	for _, class := range Classes {
		wrapped := fmt.Errorf("outer: %w", &Error{Op: "attach", Peer: 1, Err: fmt.Errorf("inner: %w", class)})
		if got := Class(wrapped); got != class {
			t.Errorf("Class(%v) = %v", wrapped, got)
		}
	}
	for _, err := range []error{nil, errors.New("plain"), context.Canceled} {
		if got := Class(err); got != nil {
			t.Errorf("Class(%v) = %v, want none", err, got)
		}
	}
}

// The wire code of a class is its place in Classes, so the order is frozen.
func TestClassOrder(t *testing.T) {
	want := []string{"unavailable", "unsupported", "invalid", "peer failed", "closed", "plugin gone"}
	if len(Classes) != len(want) {
		t.Fatalf("%d classes, want %d", len(Classes), len(want))
	}
	for i, c := range Classes {
		if c.Error() != want[i] {
			t.Errorf("class %d is %q, want %q: wire codes must not move", i+1, c, want[i])
		}
	}
}

func TestPeerOf(t *testing.T) {
	inner := &Error{Op: "put", Peer: 5, Err: ErrPeer}
	outer := &Error{Op: "all-reduce", Peer: NoPeer, Err: fmt.Errorf("step 2: %w", inner)}
	for _, c := range []struct {
		err  error
		want int
	}{
		{outer, 5},
		{&Error{Op: "x", Peer: 2, Err: inner}, 2}, // the outermost blame wins
		{&Error{Op: "x", Peer: NoPeer, Err: ErrClosed}, NoPeer},
		{errors.New("plain"), NoPeer},
		{nil, NoPeer},
	} {
		if got := PeerOf(c.err); got != c.want {
			t.Errorf("PeerOf(%v) = %d, want %d", c.err, got, c.want)
		}
	}
}
