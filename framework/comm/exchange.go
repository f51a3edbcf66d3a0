package comm

import (
	"cmp"
	"context"
	"encoding/binary"
	"errors"
	"fmt"
	"slices"
	"sync"

	"github.com/mscclpp-go/mscclpp/framework"
)

// Symmetric is memory of which every rank knows every other rank's part. Exchange
// returns it. The parts may differ in size.
type Symmetric struct {
	lifetime
	ID    uint64 // the same on all ranks
	own   *Memory
	peers []remote

	mu     sync.Mutex
	pairs  []pair // of the channels over it
	closed bool
}

type remote struct {
	addr      uintptr
	own       uintptr // this rank's part, as that rank addresses it
	bytes     uint64
	transport *Transport
	close     func(ctx context.Context) error
}

// Own returns the rank's own part.
func (s *Symmetric) Own() *Memory { return s.own }

// Peer returns the address at which kernels of this rank access another rank's part.
func (s *Symmetric) Peer(rank int) uintptr { return s.peers[rank].addr }

// OwnAt returns the address at which kernels of another rank access this rank's own
// part.
func (s *Symmetric) OwnAt(rank int) uintptr { return s.peers[rank].own }

// Bytes returns the size of a rank's part in bytes.
func (s *Symmetric) Bytes(rank int) uint64 { return s.peers[rank].bytes }

// Exchange makes m known to all ranks, and makes the memory of all ranks addressable
// here, over memory channels. Collective: every rank contributes one memory. Find
// returns the result until it is closed.
func (c *Communicator) Exchange(ctx context.Context, m *Memory) (*Symmetric, error) {
	s := &Symmetric{own: m, peers: make([]remote, c.Size())}
	err := c.setUp(ctx, opExchange, func(ctx context.Context) error {
		if _, err := c.agree(ctx, opExchange, nil, m.usable()); err != nil {
			return err
		}
		err := s.collect(ctx, c)
		if err == nil {
			err = s.begin(c, s, m)
		}
		if err != nil {
			c.undo(s.release)
			return err
		}
		c.buffers.add(s)
		return nil
	})
	if err != nil {
		return nil, err
	}
	return s, nil
}

// collect makes the memory of all ranks addressable here.
func (s *Symmetric) collect(ctx context.Context, c *Communicator) error {
	s.peers[c.Rank()] = remote{addr: s.own.Addr(), own: s.own.Addr(), bytes: s.own.Bytes()}
	if err := c.reachAll(ctx); err != nil {
		return err
	}
	others := c.others()
	for _, peer := range others {
		if err := c.sendKey(ctx, c.links[linkKey{framework.KindMemory, peer, 0}], peer, s.own); err != nil {
			return err
		}
	}
	for _, peer := range others {
		var err error
		if s.peers[peer], err = c.recvKey(ctx, c.links[linkKey{framework.KindMemory, peer, 0}], peer, s.own); err != nil {
			return err
		}
	}
	for _, peer := range others {
		where := binary.LittleEndian.AppendUint64(nil, uint64(s.peers[peer].addr))
		if err := c.boot.Send(ctx, peer, tagKeys, framework.Parcel{Data: where}); err != nil {
			return err
		}
	}
	for _, peer := range others {
		where, err := c.boot.Recv(ctx, peer, tagKeys)
		if err != nil {
			return err
		}
		where.Close()
		if len(where.Data) != 8 {
			return &framework.Error{Op: "exchange", Peer: peer, Err: fmt.Errorf("%w: address of %d bytes, expected 8", framework.ErrPeer, len(where.Data))}
		}
		s.peers[peer].own = uintptr(binary.LittleEndian.Uint64(where.Data))
	}
	return nil
}

// reachAll links this rank with all others for memory channels, and makes their
// semaphore counters addressable.
func (c *Communicator) reachAll(ctx context.Context) error {
	for _, peer := range c.pairOrder() {
		_, err := c.memoryLink(ctx, peer)
		var r *refusal
		if errors.As(err, &r) {
			return r.error // this pair is in step, but others wait for both
		}
		if err != nil {
			return err
		}
	}
	return nil
}

// pairOrder lists the other ranks so that, step by step, whole pairs meet: a
// round-robin tournament. In plain ascending order rank 0 would be everybody's
// first, and set-up would take as many steps as there are pairs.
func (c *Communicator) pairOrder() []int {
	n := c.Size()
	if n%2 == 1 {
		n++ // with an odd number one sits out each round
	}
	var order []int
	for round := range n - 1 {
		if p := tournament(c.Rank(), round, n); p < c.Size() && p != c.Rank() {
			order = append(order, p)
		}
	}
	return order
}

// tournament returns whom player meets in a round of the circle method with n
// players, n even.
func tournament(player, round, n int) int {
	last := n - 1
	switch {
	case player == last:
		// The fixed player meets the one whose double is the round.
		for p := range last {
			if (2*p)%last == round%last {
				return p
			}
		}
	case (2*player)%last == round%last:
		return last
	}
	return ((round-player)%last + last) % last
}

// memoryLink is link for memory channels; with it go the semaphore counters of
// both sides.
func (c *Communicator) memoryLink(ctx context.Context, peer int) (*link, error) {
	l, err := c.link(ctx, linkKey{framework.KindMemory, peer, 0})
	if err != nil || l.inbox.addr != 0 {
		return l, err
	}
	return l, c.counters(ctx, l, peer)
}

// counters trades semaphore counters with a peer, and makes those of the peer
// addressable. The peer does the same.
func (c *Communicator) counters(ctx context.Context, l *link, peer int) error {
	if err := c.sendKey(ctx, l, peer, c.control.inbound); err != nil {
		return err
	}
	r, err := c.recvKey(ctx, l, peer, c.control.inbound)
	if err != nil {
		return err
	}
	if r.bytes != c.control.inbound.Bytes() {
		c.undo(r.close)
		return &framework.Error{Op: "link", Peer: peer, Err: fmt.Errorf("%w: %d bytes of semaphores, expected %d", framework.ErrPeer, r.bytes, c.control.inbound.Bytes())}
	}
	l.inbox = r
	return nil
}

// sendKey sends what the peer needs to reach m over l: its size, and the key.
func (c *Communicator) sendKey(ctx context.Context, l *link, peer int, m *Memory) error {
	reg, err := m.registration(ctx, l.transport, c.dev.Info().Device)
	if err != nil {
		return &framework.Error{Op: "register", Peer: framework.NoPeer, Err: err}
	}
	key := reg.Key
	key.Data = append(binary.LittleEndian.AppendUint64(nil, m.Bytes()), key.Data...)
	return c.boot.Send(ctx, peer, tagKeys, key)
}

// recvKey receives what sendKey sent.
func (c *Communicator) recvBareKey(ctx context.Context, peer int) (key framework.Parcel, bytes uint64, err error) {
	key, err = c.boot.Recv(ctx, peer, tagKeys)
	if err != nil {
		return key, 0, err
	}
	if len(key.Data) < 8 {
		key.Close()
		return framework.Parcel{}, 0, &framework.Error{Op: "exchange", Peer: peer, Err: fmt.Errorf("%w: key of %d bytes, expected at least 8", framework.ErrPeer, len(key.Data))}
	}
	bytes = binary.LittleEndian.Uint64(key.Data)
	key.Data = key.Data[8:]
	return key, bytes, nil
}

// recvKey receives the peer's key and makes its memory addressable. own is the
// rank's memory that was sent the other way.
func (c *Communicator) recvKey(ctx context.Context, l *link, peer int, own *Memory) (remote, error) {
	key, bytes, err := c.recvBareKey(ctx, peer)
	if err != nil {
		return remote{}, err
	}
	defer key.Close()
	reg, err := own.registration(ctx, l.transport, c.dev.Info().Device)
	if err != nil {
		return remote{}, &framework.Error{Op: "register", Peer: framework.NoPeer, Err: err}
	}
	att, err := l.transport.Attach(ctx, l.conn, reg.ID, []framework.Parcel{key})
	if err != nil {
		return remote{}, &framework.Error{Op: "attach", Peer: peer, Err: err}
	}
	p, err := c.perform(ctx, att, stepsContext{transport: l.transport, members: []int{peer}, own: own})
	if err != nil {
		return remote{}, &framework.Error{Op: "attach", Peer: peer, Err: err}
	}
	if len(p.mapped) != 1 || p.mapped[0] == nil || p.mapped[0].Bytes() < bytes {
		c.undo(p.close)
		return remote{}, &framework.Error{Op: "attach", Peer: peer, Err: fmt.Errorf("%w: %s did not map the %d bytes of the peer", framework.ErrPlugin, l.transport.Name, bytes)}
	}
	return remote{addr: p.mapped[0].Addr(), bytes: bytes, transport: l.transport, close: p.close}, nil
}

// Close makes the peers' memory unreachable, and Find no longer returns it. The rank's
// own memory stays.
func (s *Symmetric) Close() error { return s.shutNow(s) }

func (s *Symmetric) shut(ctx context.Context) error {
	return s.end(s, func() error {
		s.comm.buffers.remove(s)
		s.mu.Lock()
		defer s.mu.Unlock()
		s.closed = true
		for _, p := range s.pairs {
			s.comm.control.semaphores.close(p)
		}
		return s.release(ctx)
	})
}

func (s *Symmetric) usable() error {
	s.mu.Lock()
	defer s.mu.Unlock()
	if s.closed {
		return fmt.Errorf("%w: the exchanged memory was closed", framework.ErrClosed)
	}
	return nil
}

// keep ends semaphores with the exchanged memory.
func (s *Symmetric) keep(pairs []pair) error {
	s.mu.Lock()
	defer s.mu.Unlock()
	if s.closed {
		return fmt.Errorf("%w: the exchanged memory was closed", framework.ErrClosed)
	}
	s.pairs = append(s.pairs, pairs...)
	return nil
}

func (s *Symmetric) release(ctx context.Context) error {
	var first error
	for i := range s.peers {
		if r := &s.peers[i]; r.close != nil {
			if err := r.close(ctx); err != nil && first == nil {
				first = err
			}
			r.close = nil
			r.addr = 0
		}
	}
	return first
}

// Find returns the exchanged memory that contains the range, and the offset in bytes at
// which the range starts in it. It does not allocate.
func (c *Communicator) Find(addr uintptr, bytes uint64) (s *Symmetric, offset uint64, ok bool) {
	list := c.buffers.sorted.Load()
	if list == nil {
		return nil, 0, false
	}
	lo, hi := 0, len(*list)
	for lo < hi { // the last buffer that starts at or before addr
		mid := (lo + hi) / 2
		if (*list)[mid].own.Addr() <= addr {
			lo = mid + 1
		} else {
			hi = mid
		}
	}
	if lo == 0 {
		return nil, 0, false
	}
	s = (*list)[lo-1]
	offset = uint64(addr - s.own.Addr())
	if offset > s.own.Bytes() || bytes > s.own.Bytes()-offset {
		return nil, 0, false
	}
	return s, offset, true
}

func (b *buffers) add(s *Symmetric) {
	b.mu.Lock()
	defer b.mu.Unlock()
	b.next++
	s.ID = b.next
	b.list = append(b.list, s)
	b.publish()
}

func (b *buffers) remove(s *Symmetric) {
	b.mu.Lock()
	defer b.mu.Unlock()
	b.list = slices.DeleteFunc(b.list, func(x *Symmetric) bool { return x == s })
	b.publish()
}

func (b *buffers) publish() {
	sorted := slices.Clone(b.list)
	slices.SortFunc(sorted, func(a, b *Symmetric) int { // of one memory exchanged twice, the younger is found
		return cmp.Or(cmp.Compare(a.own.Addr(), b.own.Addr()), cmp.Compare(a.ID, b.ID))
	})
	b.sorted.Store(&sorted)
}
