package comm

import (
	"context"
	"fmt"
	"unsafe"

	"github.com/mscclpp-go/mscclpp/framework"
	"github.com/mscclpp-go/mscclpp/framework/kernel"
)

// MemoryChannels returns one channel to every rank over memory that was exchanged, each
// with semaphores of its own; the element of the rank itself is zero. Collective. Dst
// of a handle is the peer's part; Src and Packets are the rank's own. The channels live
// as long as the exchanged memory is open.
func (c *Communicator) MemoryChannels(ctx context.Context, s *Symmetric) ([]kernel.MemoryChannelHandle, error) {
	handles := make([]kernel.MemoryChannelHandle, c.Size())
	err := c.setUp(ctx, opMemoryChannels, func(ctx context.Context) error {
		pairs, err := c.pairUp(ctx, opMemoryChannels, c.others(), c.symmetric(s))
		if err != nil {
			return err
		}
		for _, p := range pairs {
			handles[p.peer] = kernel.MemoryChannelHandle{
				Semaphore: c.semaphoreHandle(p, c.outbound(p)),
				Dst:       s.Peer(p.peer),
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

// outbound is where this rank raises the peer's counter.
func (c *Communicator) outbound(p pair) uintptr {
	return c.links[linkKey{framework.KindMemory, p.peer, 0}].inbox.addr + uintptr(p.theirs)*semaphoreStride
}

// others lists all ranks but this one, ascending.
func (c *Communicator) others() []int {
	others := make([]int, 0, c.Size())
	for r := range c.Size() {
		if r != c.Rank() {
			others = append(others, r)
		}
	}
	return others
}

// MemoryChannel is a channel to one peer through mapped memory.
type MemoryChannel struct {
	lifetime
	handle kernel.MemoryChannelHandle
	pair   pair
	remote remote
}

// MemoryChannel builds a channel to one peer. Both ends call it, each with the memory
// that it opens to the other.
func (c *Communicator) MemoryChannel(ctx context.Context, peer int, m *Memory) (*MemoryChannel, error) {
	if err := c.checkPeer(opMemoryChannel, peer); err != nil {
		return nil, err
	}
	ch := &MemoryChannel{}
	err := c.setUp(ctx, opMemoryChannel, func(ctx context.Context) error {
		pairs, err := c.pairUp(ctx, opMemoryChannel, []int{peer}, m.usable())
		if err != nil {
			return err
		}
		ch.pair = pairs[0]
		if err := ch.join(ctx, c, m); err != nil {
			c.control.semaphores.cancel(ch.pair.mine) // either the peer has failed as well, or both end
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
	l, err := c.memoryLink(ctx, ch.pair.peer)
	if err != nil {
		return err
	}
	if err := c.sendKey(ctx, l, ch.pair.peer, m); err != nil {
		return err
	}
	if ch.remote, err = c.recvKey(ctx, l, ch.pair.peer, m); err != nil {
		return err
	}
	ch.handle = kernel.MemoryChannelHandle{
		Semaphore: c.semaphoreHandle(ch.pair, c.outbound(ch.pair)),
		Dst:       ch.remote.addr, Src: m.Addr(), Packets: m.Addr(),
	}
	if err := ch.begin(c, ch, m); err != nil {
		c.undo(ch.remote.close)
		return err
	}
	return nil
}

// Names of the calls, which ranks tell each other.
const (
	opBarrier        = "barrier"
	opAllGather      = "all-gather"
	opExchange       = "exchange"
	opReach          = "reach"
	opSurvey         = "survey"
	opReachPorts     = "reach by ports"
	opMemoryChannels = "memory channels"
	opMemoryChannel  = "memory channel"
	opPortChannel    = "port channel"
	opSwitchChannel  = "switch channel"
	opSplit          = "split"
	opTwin           = "twin"
)

func (c *Communicator) checkPeer(op string, peer int) error {
	if err := c.Err(); err != nil {
		return err
	}
	if peer < 0 || peer >= c.Size() || peer == c.Rank() {
		return c.blame(op, peer, fmt.Errorf("%w: expected another rank, 0 to %d", framework.ErrInvalid, c.Size()-1))
	}
	return nil
}

// Kind implements framework.Channel.
func (ch *MemoryChannel) Kind() framework.Kind { return framework.KindMemory }

// Handle returns what a kernel takes.
func (ch *MemoryChannel) Handle() kernel.MemoryChannelHandle { return ch.handle }

// AppendBinary implements framework.Channel.
func (ch *MemoryChannel) AppendBinary(b []byte) ([]byte, error) {
	return appendHandle(b, &ch.handle), nil
}

// Close makes the peer's memory unreachable.
func (ch *MemoryChannel) Close() error { return ch.shutNow(ch) }

func (ch *MemoryChannel) shut(ctx context.Context) error {
	return ch.end(ch, func() error {
		ch.comm.control.semaphores.close(ch.pair)
		return ch.remote.close(ctx)
	})
}

// appendHandle appends the bytes of a handle as kernels lay it out. Handles hold
// addresses as integers, no Go pointers.
func appendHandle[T any](b []byte, h *T) []byte {
	return append(b, unsafe.Slice((*byte)(unsafe.Pointer(h)), unsafe.Sizeof(*h))...)
}

var _ framework.Channel = (*MemoryChannel)(nil)
