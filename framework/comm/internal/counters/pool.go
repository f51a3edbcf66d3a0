package counters

import (
	"fmt"
	"sync"
	"unsafe"

	"github.com/mscclpp-go/mscclpp/framework"
)

// The counters of one communicator on one rank.
const (
	Stride = 128 // bytes: two lines, for the adjacent-line prefetcher pairs them
	Max    = 4096
)

// Pool lends the numbers of counters. A counter is raised by a peer, so it is
// free again only when both have closed their channel: this rank does not wait for
// it any more, and the peer has said that it does not raise it any more. The peers
// say so when they next set up a channel with each other.
type Pool struct {
	mu    sync.Mutex
	used  int                 // numbers from here on were never lent
	free  []int               // returned
	lent  map[int]*loan       // by number
	news  map[int][]uint32    // by peer: counters of it that this rank has ceased to raise
	reset func(int) (ok bool) // makes a counter as good as new
}

type loan struct {
	peer           int
	closed, ceased bool // here, and there
}

// Pair is a semaphore of both ends: the counter that the peer raises, and the one
// that this rank raises over there.
type Pair struct{ Peer, Mine, Theirs int }

// Take lends a number to a peer.
func (s *Pool) Take(peer int) (int, error) {
	s.mu.Lock()
	defer s.mu.Unlock()
	n := s.used
	switch last := len(s.free) - 1; {
	case last >= 0:
		n, s.free = s.free[last], s.free[:last]
	case s.used == Max:
		return 0, fmt.Errorf("%w: all %d semaphores of the communicator are in use", framework.ErrUnavailable, Max)
	default:
		s.used++
	}
	if s.lent == nil {
		s.lent, s.news = make(map[int]*loan), make(map[int][]uint32)
	}
	s.lent[n] = &loan{peer: peer}
	return n, nil
}

// Cancel returns a number that no peer has begun to use.
func (s *Pool) Cancel(n int) {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.giveBack(n)
}

// Close says that this end of a semaphore is closed.
func (s *Pool) Close(p Pair) {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.news[p.Peer] = append(s.news[p.Peer], uint32(p.Theirs))
	l := s.lent[p.Mine]
	if l.closed = true; l.ceased {
		s.giveBack(p.Mine)
	}
}

// cease takes note that a peer does not raise some counters any more.
func (s *Pool) cease(peer int, numbers []uint32) error {
	s.mu.Lock()
	defer s.mu.Unlock()
	for _, n := range numbers {
		l := s.lent[int(n)]
		if l == nil || l.peer != peer || l.ceased {
			return &framework.Error{Op: "semaphore", Peer: peer, Err: fmt.Errorf("%w: it returns number %d, which it does not have", framework.ErrPeer, n)}
		}
		if l.ceased = true; l.closed {
			s.giveBack(int(n))
		}
	}
	return nil
}

func (s *Pool) giveBack(n int) {
	delete(s.lent, n)
	if s.reset(n) {
		s.free = append(s.free, n)
	}
}

// returned returns, once, what a peer has to know.
func (s *Pool) returned(peer int) []uint32 {
	s.mu.Lock()
	defer s.mu.Unlock()
	news := s.news[peer]
	delete(s.news, peer)
	return news
}

// Pointer turns the address of mapped memory, which Go does not manage, into a
// Pointer.
func Pointer(addr uintptr) unsafe.Pointer {
	return *(*unsafe.Pointer)(unsafe.Pointer(&addr))
}
