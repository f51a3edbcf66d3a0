package comm

import (
	"cmp"
	"context"
	"encoding/binary"
	"fmt"
	"slices"
	"sync"

	"github.com/mscclpp-go/mscclpp/framework"
	"github.com/mscclpp-go/mscclpp/framework/comm/internal/arrange"
	"github.com/mscclpp-go/mscclpp/framework/comm/internal/counters"
	"github.com/mscclpp-go/mscclpp/framework/comm/internal/life"
	"github.com/mscclpp-go/mscclpp/framework/comm/internal/memory"
	"github.com/mscclpp-go/mscclpp/framework/comm/internal/negotiate"
	"github.com/mscclpp-go/mscclpp/framework/comm/internal/preamble"
)

// Symmetric is memory of which every rank knows every other rank's part. Exchange returns it. The parts may differ in size.
type Symmetric struct {
	lifetime life.Lifetime
	comm     *Communicator
	ID       uint64 // the same on all ranks
	own      *Memory
	peers    []negotiate.Remote
	side     *arrange.SideBySide // of Arrange; nil: the peers' memory lies anywhere

	windows negotiate.Bindings

	mu     sync.Mutex
	pairs  []counters.Pair // of the channels over it
	closed bool
}

// Own returns the rank's own part.
func (s *Symmetric) Own() *Memory { return s.own }

// Peer returns the address at which kernels of this rank access another rank's part.
func (s *Symmetric) Peer(rank int) uintptr { return s.peers[rank].Addr }

// OwnAt returns the address at which kernels of another rank access this rank's own part.
func (s *Symmetric) OwnAt(rank int) uintptr { return s.peers[rank].Own }

// Bytes returns the size of a rank's part in bytes.
func (s *Symmetric) Bytes(rank int) uint64 { return s.peers[rank].Bytes }

// Exchange makes m known to all ranks, and makes the memory of all ranks addressable here, over memory channels. Collective: every
// rank contributes one memory. Find returns the result until it is closed.
func (c *Communicator) Exchange(ctx context.Context, m *Memory) (*Symmetric, error) {
	s := &Symmetric{comm: c, own: m, peers: make([]negotiate.Remote, c.Size())}
	err := c.setUp(ctx, opExchange, func(ctx context.Context) error {
		if _, err := c.rounds.Agree(ctx, opExchange, nil, memory.Usable(m)); err != nil {
			return err
		}
		err := s.collect(ctx, c)
		if err == nil {
			err = s.lifetime.Begin(&c.life.Parts, s, s.shut, memory.Users(m))
		}
		if err != nil {
			c.life.Rollback(s.release)
			return err
		}
		c.buffers.number(s)
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
	s.peers[c.Rank()] = negotiate.Remote{Addr: s.own.Addr(), Own: s.own.Addr(), Bytes: s.own.Bytes()}
	links, err := c.links.LinkAll(ctx)
	if err != nil {
		return err
	}
	others := c.links.Others()
	for _, peer := range others {
		if err := c.links.SendKey(ctx, links[peer], peer, s.own); err != nil {
			return err
		}
	}
	for _, peer := range others {
		var err error
		if s.peers[peer], err = c.links.RecvKey(ctx, links[peer], peer, s.own); err != nil {
			return err
		}
	}
	for _, peer := range others {
		where := binary.LittleEndian.AppendUint64(nil, uint64(s.peers[peer].Addr))
		if err := c.boot.Send(ctx, peer, preamble.TagKeys, framework.Parcel{Data: where}); err != nil {
			return err
		}
	}
	for _, peer := range others {
		where, err := c.boot.Recv(ctx, peer, preamble.TagKeys)
		if err != nil {
			return err
		}
		where.Close()
		if len(where.Data) != 8 {
			return &framework.Error{Op: "exchange", Peer: peer, Err: fmt.Errorf("%w: address of %d bytes, expected 8", framework.ErrPeer, len(where.Data))}
		}
		s.peers[peer].Own = uintptr(binary.LittleEndian.Uint64(where.Data))
	}
	return nil
}

// Close makes the peers' memory unreachable, and Find no longer returns it. The rank's own memory stays.
func (s *Symmetric) Close() error { return s.lifetime.Close() }

// Retire has Find no longer return the memory, which stays mapped until Close: for kernels that are still to run.
func (s *Symmetric) Retire() { s.comm.buffers.remove(s) }

func (s *Symmetric) shut(ctx context.Context) error {
	s.comm.buffers.remove(s)
	s.mu.Lock()
	defer s.mu.Unlock()
	s.closed = true
	for _, p := range s.pairs {
		s.comm.counters.Pool.Close(p)
	}
	return cmp.Or(s.windows.Close(ctx), s.release(ctx))
}

// Unbindable reports whether Bind was refused for it.
func (s *Symmetric) Unbindable() bool { return s.windows.Refused() }

func (s *Symmetric) usable() error { return s.keep(nil) }

// keep ends semaphores with the exchanged memory.
func (s *Symmetric) keep(pairs []counters.Pair) error {
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
		if r := &s.peers[i]; r.Close != nil {
			if err := r.Close(ctx); err != nil && first == nil {
				first = err
			}
			r.Close = nil
			r.Addr = 0
		}
	}
	if err := s.side.Close(ctx); first == nil {
		first = err
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

// Exchanged returns this rank's part of the exchanged memory of a number, counted from 0 in the order of addresses. It does
// not allocate.
func (b *buffers) Exchanged(number int) (m *Memory, ok bool) {
	list := b.sorted.Load()
	if list == nil || number >= len(*list) {
		return nil, false
	}
	return (*list)[number].own, true
}

// Exchanges counts what changes the answers of Find: calls of Exchange, and the first of Retire and Close of a Symmetric.
func (b *buffers) Exchanges() uint64 { return b.exchanges.Load() }

// OnExchange adds f to what Exchange, and the first of Retire and Close of a Symmetric, call: memory is exchanged now, or no longer.
func (b *buffers) OnExchange(f func()) {
	b.mu.Lock()
	defer b.mu.Unlock()
	b.changed = append(b.changed, f)
}

func (b *buffers) add(s *Symmetric) {
	b.mu.Lock()
	defer b.mu.Unlock()
	b.list = append(b.list, s)
	b.publish()
}

// number gives exchanged memory its number, which is the same on all ranks.
func (b *buffers) number(s *Symmetric) {
	b.mu.Lock()
	defer b.mu.Unlock()
	b.next++
	s.ID = b.next
}

func (b *buffers) remove(s *Symmetric) {
	b.mu.Lock()
	defer b.mu.Unlock()
	if at := slices.Index(b.list, s); at >= 0 { // or it was retired
		b.list = slices.Delete(b.list, at, at+1)
		b.publish()
	}
}

func (b *buffers) publish() {
	sorted := slices.Clone(b.list)
	slices.SortFunc(sorted, func(a, b *Symmetric) int { // of one memory exchanged twice, the younger is found
		return cmp.Or(cmp.Compare(a.own.Addr(), b.own.Addr()), cmp.Compare(a.ID, b.ID))
	})
	b.sorted.Store(&sorted)
	b.exchanges.Add(1)
	for _, f := range b.changed {
		f()
	}
}
