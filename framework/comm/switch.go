package comm

import (
	"context"

	"github.com/mscclpp-go/mscclpp/framework"
	"github.com/mscclpp-go/mscclpp/framework/comm/internal/life"
	"github.com/mscclpp-go/mscclpp/framework/comm/internal/memory"
	"github.com/mscclpp-go/mscclpp/framework/comm/internal/negotiate"
	"github.com/mscclpp-go/mscclpp/framework/comm/internal/porting"
	"github.com/mscclpp-go/mscclpp/framework/kernel"
)

// SwitchChannel is a window over the memory of all ranks: a store to it reaches all,
// and a load can reduce over all.
type SwitchChannel struct {
	lifetime life.Lifetime
	comm     *Communicator
	handle   kernel.SwitchChannelHandle
	number   int // of the counter of what is expected
	group    *negotiate.Group
}

// Room is how many bytes a window has beside its own memory, the same on all ranks: for Bind. An emulated window has none.
type Room = negotiate.Room

// SwitchChannel binds m, the rank's own part, into a window over the memory of all
// ranks. Collective. All parts have the same size; the last 128 bytes of each belong to
// the channel and must be zero. ErrUnsupported: no transport with switch channels
// reaches all ranks.
func (c *Communicator) SwitchChannel(ctx context.Context, m *Memory, more ...Room) (*SwitchChannel, error) {
	ch := &SwitchChannel{comm: c}
	err := c.setUp(ctx, opSwitchChannel, func(ctx context.Context) error {
		g, err := c.links.Group(ctx, m, more...)
		if err != nil {
			return err
		}
		if err = ch.open(c, g, m); err != nil {
			c.life.Rollback(g.Close)
		}
		return err
	})
	if err != nil {
		return nil, err
	}
	return ch, nil
}

func (ch *SwitchChannel) open(c *Communicator, g *negotiate.Group, m *Memory) error {
	number, err := c.counters.Pool.Take(framework.NoPeer)
	if err != nil {
		return err
	}
	c.counters.Clear(number)
	ch.number, ch.group = number, g
	ch.handle = kernel.SwitchChannelHandle{
		Local:    m.Addr(),
		Window:   g.Window.Addr(),
		Bytes:    m.Bytes() - negotiate.SwitchTail,
		Stride:   g.Stride,
		Flag:     m.Bytes() - negotiate.SwitchTail,
		Expected: c.counters.ExpectedAddr(number),
		Control:  c.counters.DeviceAddr,
		Rank:     uint32(c.Rank()),
		Ranks:    uint32(c.Size()),
	}
	if err := ch.lifetime.Begin(&c.life.Parts, ch, ch.shut, memory.Users(m)); err != nil {
		c.counters.Pool.Cancel(number)
		return err
	}
	return nil
}

// Bind makes exchanged memory a part of the window, where kernels of all ranks reach it without a copy, until it, the memory or
// the channel is closed. Collective: all ranks pass the same memory, of which their parts have the same size. It returns the
// place in the window, in bytes, which is the same on all ranks. Memory that one rank cannot bind is refused on all, and the
// channel is as good as before. ErrUnsupported: the window has no room, or memory of this kind cannot be bound.
func (ch *SwitchChannel) Bind(ctx context.Context, s *Symmetric) (place uint64, err error) {
	err = ch.comm.setUp(ctx, negotiate.OpBind, func(ctx context.Context) (err error) {
		m := s.own
		if s.usable() != nil || ch.lifetime.Over() {
			m = nil // which is refused on all
		}
		place, err = s.windows.Bind(ctx, ch.group, m, s.ID)
		return err
	})
	return place, err
}

// Bound returns the place of exchanged memory in the window, or why Bind was refused; not known: Bind was not called.
func (ch *SwitchChannel) Bound(s *Symmetric) (place uint64, known bool, refused error) {
	return s.windows.Place(ch.group)
}

// Kind implements framework.Channel.
func (ch *SwitchChannel) Kind() framework.Kind { return framework.KindSwitch }

// Handle returns what a kernel takes.
func (ch *SwitchChannel) Handle() kernel.SwitchChannelHandle { return ch.handle }

// AppendBinary implements framework.Channel.
func (ch *SwitchChannel) AppendBinary(b []byte) ([]byte, error) {
	return porting.AppendHandle(b, &ch.handle), nil
}

// Close takes the rank's memory out of the window.
func (ch *SwitchChannel) Close() error { return ch.lifetime.Close() }

func (ch *SwitchChannel) shut(ctx context.Context) error {
	ch.comm.counters.Pool.Cancel(ch.number)
	return ch.group.Close(ctx)
}

var _ framework.Channel = (*SwitchChannel)(nil)
