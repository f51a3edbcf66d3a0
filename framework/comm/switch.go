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

// SwitchChannel binds m, the rank's own part, into a window over the memory of all
// ranks. Collective. All parts have the same size; the last 128 bytes of each belong to
// the channel and must be zero. ErrUnsupported: no transport with switch channels
// reaches all ranks.
func (c *Communicator) SwitchChannel(ctx context.Context, m *Memory) (*SwitchChannel, error) {
	ch := &SwitchChannel{comm: c}
	err := c.setUp(ctx, opSwitchChannel, func(ctx context.Context) error {
		g, err := c.links.Group(ctx, m)
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
