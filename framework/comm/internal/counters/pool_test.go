package counters

import (
	"bytes"
	"errors"
	"testing"

	"github.com/mscclpp-go/mscclpp/framework"
)

func newPool() *Pool { return &Pool{reset: func(int) bool { return true }} }

func TestSemaphoresRunOutAndComeBack(t *testing.T) {
	s := newPool()
	for i := range Max {
		if n, err := s.Take(1); err != nil || n != i {
			t.Fatalf("semaphore %d: %d, %v", i, n, err)
		}
	}
	if _, err := s.Take(1); !errors.Is(err, framework.ErrUnavailable) {
		t.Fatalf("one too many: %v, expected ErrUnavailable", err)
	}
	s.Close(Pair{Peer: 1, Mine: 7, Theirs: 9})
	if _, err := s.Take(1); err == nil {
		t.Fatal("lent again while the peer may raise it")
	}
	if got := s.returned(1); len(got) != 1 || got[0] != 9 {
		t.Fatalf("the peer learns %v, expected 9", got)
	}
	if got := s.returned(1); got != nil {
		t.Fatalf("said twice: %v", got)
	}
	if err := s.cease(1, []uint32{7, 8}); err != nil {
		t.Fatal(err)
	}
	if n, err := s.Take(2); err != nil || n != 7 {
		t.Fatalf("%d, %v: expected 7", n, err)
	}
	s.Close(Pair{Peer: 1, Mine: 8, Theirs: 3}) // the peer was first
	if n, err := s.Take(2); err != nil || n != 8 {
		t.Fatalf("%d, %v: expected 8", n, err)
	}
}

func TestPeersReturnOnlyWhatTheyHave(t *testing.T) {
	s := newPool()
	if _, err := s.Take(1); err != nil {
		t.Fatal(err)
	}
	for name, call := range map[string]func() error{
		"never lent":      func() error { return s.cease(1, []uint32{5}) },
		"lent to another": func() error { return s.cease(2, []uint32{0}) },
		"twice":           func() error { return s.cease(1, []uint32{0, 0}) },
	} {
		if err := call(); !errors.Is(err, framework.ErrPeer) || framework.PeerOf(err) == framework.NoPeer {
			t.Errorf("%s: %v, expected ErrPeer with a rank", name, err)
		}
	}
}

// Counters that the host cannot reset are not lent again.
func TestSemaphoresOfADeviceStayUsed(t *testing.T) {
	s := &Pool{reset: func(int) bool { return false }}
	n, err := s.Take(1)
	if err != nil {
		t.Fatal(err)
	}
	s.Cancel(n)
	if again, err := s.Take(1); err != nil || again == n {
		t.Fatalf("%d again (%v)", again, err)
	}
}

func FuzzNumbers(f *testing.F) {
	f.Add(appendNumbers(nil, 1, 2, 3))
	f.Fuzz(func(t *testing.T, b []byte) {
		numbers, ok := splitNumbers(b)
		if ok != (len(b)%4 == 0) || ok && !bytes.Equal(appendNumbers(nil, numbers...), b) {
			t.Errorf("%x became %v, %v", b, numbers, ok)
		}
	})
}
