package comm

import (
	"context"

	"github.com/mscclpp-go/mscclpp/framework"
	"github.com/mscclpp-go/mscclpp/framework/comm/internal/memory"
	"github.com/mscclpp-go/mscclpp/framework/comm/internal/porting"
)

// PortChannel is a channel to one peer whose data a proxy moves. Kernels push
// triggers through its handle; the host can do the same with its methods, without a
// kernel. The methods may be called concurrently.
type PortChannel = porting.Channel

// PortChannel builds a channel to one peer; both ends call it. src is the rank's memory
// that puts read. open is the rank's memory that the peer's puts may write: the Dst of
// the peer. They may be the same.
//
// On the host, src may be any memory (host.Wrap). If the transport can neither map nor
// register it, puts of the host copy what they read before they return, and kernels
// cannot put.
//
// open has to be memory from Alloc, or memory behind a sealed memfd, unless the
// transport is embedded and registers addresses, or the rank drives its streams. For
// other memory the error is ErrUnsupported. The program then uses memory from Alloc,
// and copies the data out of it after Wait.
func (c *Communicator) PortChannel(ctx context.Context, peer int, src, open *Memory) (*PortChannel, error) {
	if err := c.checkPeer(opPortChannel, peer); err != nil {
		return nil, err
	}
	var ch *PortChannel
	err := c.setUp(ctx, opPortChannel, func(ctx context.Context) error {
		mine := memory.Usable(src)
		if mine == nil {
			mine = memory.Usable(open)
		}
		pairs, err := c.counters.PairUp(ctx, c.rounds, opPortChannel, []int{peer}, mine)
		if err != nil {
			return err
		}
		ch, err = c.ports.Open(ctx, pairs[0], src, open)
		return err
	})
	if err != nil {
		return nil, err
	}
	c.ports.Opened(ch)
	return ch, nil
}

// ReachPorts finds out whether the kernels of all ranks can use port channels to each
// rank's peers, from and to memory m of the rank's device: that is, whether the
// transports that join them accept that memory and the semaphores. The relation is
// symmetric: if b is a peer of a, then a is a peer of b. unwilling is the reason why
// this rank has no such memory, or no use for it; m is then ignored.
//
// The answer is the same on all ranks: apart is nil, or says which rank cannot and why.
// In that case the communicator remains usable, while PortChannel would end it.
// Collective.
func (c *Communicator) ReachPorts(ctx context.Context, peers []int, m *Memory, unwilling error) (apart, err error) {
	err = c.setUp(ctx, opReachPorts, func(ctx context.Context) (err error) {
		apart, err = c.links.ReachPorts(ctx, peers, m, unwilling)
		return err
	})
	if err != nil {
		return nil, err
	}
	return apart, nil
}

var _ framework.Channel = (*PortChannel)(nil)
