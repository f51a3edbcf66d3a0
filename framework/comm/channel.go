package comm

import (
	"context"
	"fmt"

	"github.com/mscclpp-go/mscclpp/framework"
	"github.com/mscclpp-go/mscclpp/framework/comm/internal/counters"
	"github.com/mscclpp-go/mscclpp/framework/comm/internal/life"
	"github.com/mscclpp-go/mscclpp/framework/comm/internal/memory"
	"github.com/mscclpp-go/mscclpp/framework/comm/internal/negotiate"
	"github.com/mscclpp-go/mscclpp/framework/comm/internal/porting"
	"github.com/mscclpp-go/mscclpp/framework/kernel"
)

// MemoryChannels returns one channel to every rank over memory that was exchanged, each
// with semaphores of its own; the element of the rank itself is zero. Collective. Dst
// of a handle is the peer's part; Src and Packets are the rank's own. The channels live
// as long as the exchanged memory is open.
func (c *Communicator) MemoryChannels(ctx context.Context, s *Symmetric) ([]kernel.MemoryChannelHandle, error) {
	handles := make([]kernel.MemoryChannelHandle, c.Size())
	err := c.setUp(ctx, opMemoryChannels, func(ctx context.Context) error {
		pairs, err := c.counters.PairUp(ctx, c.rounds, opMemoryChannels, c.links.Others(), c.symmetric(s))
		if err != nil {
			return err
		}
		for _, p := range pairs {
			handles[p.Peer] = kernel.MemoryChannelHandle{
				Semaphore: c.counters.Handle(p, c.links.Outbound(p)),
				Dst:       s.Peer(p.Peer),
				Src:       s.own.Addr(),
				Packets:   s.own.Addr(),
			}
		}
		return s.keep(pairs)
	})
	if err != nil {
		return nil, err
	}
	return handles, nil
}

// symmetric says why exchanged memory cannot be used here, or nil.
func (c *Communicator) symmetric(s *Symmetric) error {
	if s == nil {
		return fmt.Errorf("%w: no exchanged memory was given", framework.ErrInvalid)
	}
	if s.comm != c {
		return fmt.Errorf("%w: the memory was exchanged in communicator %s", framework.ErrInvalid, s.comm.opts.Name)
	}
	return s.usable()
}

// MemoryChannel is a channel to one peer through mapped memory.
type MemoryChannel struct {
	lifetime life.Lifetime
	comm     *Communicator
	handle   kernel.MemoryChannelHandle
	pair     counters.Pair
	remote   negotiate.Remote
}

// MemoryChannel builds a channel to one peer. Both ends call it, each with the memory
// that it opens to the other.
func (c *Communicator) MemoryChannel(ctx context.Context, peer int, m *Memory) (*MemoryChannel, error) {
	if err := c.checkPeer(opMemoryChannel, peer); err != nil {
		return nil, err
	}
	ch := &MemoryChannel{comm: c}
	err := c.setUp(ctx, opMemoryChannel, func(ctx context.Context) error {
		pairs, err := c.counters.PairUp(ctx, c.rounds, opMemoryChannel, []int{peer}, memory.Usable(m))
		if err != nil {
			return err
		}
		ch.pair = pairs[0]
		if err := ch.join(ctx, c, m); err != nil {
			c.counters.Pool.Cancel(ch.pair.Mine) // either the peer has failed as well, or both end
			return err
		}
		return nil
	})
	if err != nil {
		return nil, err
	}
	return ch, nil
}

// join trades memory with the peer.
func (ch *MemoryChannel) join(ctx context.Context, c *Communicator, m *Memory) error {
	l, err := c.links.MemoryLink(ctx, ch.pair.Peer)
	if err != nil {
		return err
	}
	if err := c.links.SendKey(ctx, l, ch.pair.Peer, m); err != nil {
		return err
	}
	if ch.remote, err = c.links.RecvKey(ctx, l, ch.pair.Peer, m); err != nil {
		return err
	}
	ch.handle = kernel.MemoryChannelHandle{
		Semaphore: c.counters.Handle(ch.pair, c.links.Outbound(ch.pair)),
		Dst:       ch.remote.Addr, Src: m.Addr(), Packets: m.Addr(),
	}
	if err := ch.lifetime.Begin(&c.life.Parts, ch, ch.shut, memory.Users(m)); err != nil {
		c.life.Rollback(ch.remote.Close)
		return err
	}
	return nil
}

// Kind implements framework.Channel.
func (ch *MemoryChannel) Kind() framework.Kind { return framework.KindMemory }

// Handle returns what a kernel takes.
func (ch *MemoryChannel) Handle() kernel.MemoryChannelHandle { return ch.handle }

// AppendBinary implements framework.Channel.
func (ch *MemoryChannel) AppendBinary(b []byte) ([]byte, error) {
	return porting.AppendHandle(b, &ch.handle), nil
}

// Close makes the peer's memory unreachable.
func (ch *MemoryChannel) Close() error { return ch.lifetime.Close() }

func (ch *MemoryChannel) shut(ctx context.Context) error {
	ch.comm.counters.Pool.Close(ch.pair)
	return ch.remote.Close(ctx)
}

var _ framework.Channel = (*MemoryChannel)(nil)
