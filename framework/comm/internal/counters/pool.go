package counters

import (
	"context"
	"encoding/binary"
	"fmt"
	"sync"

	"github.com/mscclpp-go/mscclpp/framework"
	"github.com/mscclpp-go/mscclpp/framework/comm/internal/preamble"
	"github.com/mscclpp-go/mscclpp/framework/kernel"
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

// PairUp begins a call for channels to some peers: they say whether they can go on,
// return what they have closed, and lend each other a semaphore.
func (k *Counters) PairUp(ctx context.Context, rounds preamble.Rounds, op string, peers []int, mine error) ([]Pair, error) {
	pool := &k.Pool
	news := make([][]byte, len(peers))
	for i, r := range peers {
		if mine == nil { // else it would not be sent
			news[i] = appendNumbers(nil, pool.returned(r)...)
		}
	}
	news, err := rounds.Meet(ctx, op, peers, news, mine)
	for i, b := range news {
		numbers, ok := splitNumbers(b)
		if !ok {
			return nil, &framework.Error{Op: op, Peer: peers[i], Err: fmt.Errorf("%w: %d bytes of numbers", framework.ErrPeer, len(b))}
		}
		if err := pool.cease(peers[i], numbers); err != nil {
			return nil, err
		}
	}
	if err != nil {
		return nil, err
	}
	pairs := make([]Pair, 0, len(peers))
	for _, r := range peers {
		n, full := pool.Take(r)
		if mine = full; full != nil {
			break
		}
		pairs = append(pairs, Pair{Peer: r, Mine: n})
	}
	if err := k.lend(ctx, rounds, op, peers, pairs, mine); err != nil {
		for _, p := range pairs {
			pool.Cancel(p.Mine)
		}
		return nil, err
	}
	return pairs, nil
}

// lend tells the peers the numbers of their semaphores here, and learns those of
// this rank over there.
func (k *Counters) lend(ctx context.Context, rounds preamble.Rounds, op string, peers []int, pairs []Pair, mine error) error {
	numbers := make([][]byte, len(peers))
	for i, p := range pairs {
		numbers[i] = appendNumbers(nil, uint32(p.Mine))
	}
	numbers, err := rounds.Meet(ctx, op, peers, numbers, mine)
	if err != nil {
		return err
	}
	for i, b := range numbers {
		got, ok := splitNumbers(b)
		if !ok || len(got) != 1 || got[0] >= Max {
			return &framework.Error{Op: op, Peer: peers[i], Err: fmt.Errorf("%w: semaphore %x, expected 4 bytes below %d", framework.ErrPeer, b, Max)}
		}
		pairs[i].Theirs = int(got[0])
	}
	return nil
}

func appendNumbers(b []byte, numbers ...uint32) []byte {
	for _, n := range numbers {
		b = binary.LittleEndian.AppendUint32(b, n)
	}
	return b
}

func splitNumbers(b []byte) ([]uint32, bool) {
	var numbers []uint32
	for ; len(b) >= 4; b = b[4:] {
		numbers = append(numbers, binary.LittleEndian.Uint32(b))
	}
	return numbers, len(b) == 0
}

// Handle is one end of a semaphore. Outbound is 0 where a proxy raises
// the peer's counter.
func (k *Counters) Handle(p Pair, outbound uintptr) kernel.SemaphoreHandle {
	return kernel.SemaphoreHandle{
		Inbound:  k.InboundAddr(p.Mine),
		Expected: k.ExpectedAddr(p.Mine),
		Outbound: outbound,
		Control:  k.DeviceAddr,
		Peer:     uint32(p.Peer),
		ID:       uint32(p.Mine),
	}
}
