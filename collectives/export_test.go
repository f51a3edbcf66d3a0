package collectives

import (
	"context"
	"encoding/binary"
	"unsafe"

	"github.com/mscclpp-go/mscclpp/collectives/internal/choose"
	"github.com/mscclpp-go/mscclpp/collectives/internal/coverage"
	"github.com/mscclpp-go/mscclpp/collectives/internal/inter"
	"github.com/mscclpp-go/mscclpp/collectives/internal/inter/crosshost"
	"github.com/mscclpp-go/mscclpp/collectives/internal/inter/lanes"
	"github.com/mscclpp-go/mscclpp/collectives/internal/inter/lifetime"
	"github.com/mscclpp-go/mscclpp/collectives/internal/inter/twolevel"
	"github.com/mscclpp-go/mscclpp/collectives/internal/kernelargs"
	"github.com/mscclpp-go/mscclpp/framework/comm"
	"github.com/mscclpp-go/mscclpp/framework/device"
)

// overHosted is the engine of ranks that do not share memory.
func (c *Comm) overHosted() *inter.Engine { return c.engines[0].(*inter.Engine) }

// SetPacketEpoch makes the next packets those of another epoch. It is for all ranks, while
// none is in a call.
func (c *Comm) SetPacketEpoch(epoch uint64) { c.overHosted().TwoLevel().SetPacketEpoch(epoch) }

// Packets of a Comm over hosts: whether they are used, and how many epochs there were.
func (c *Comm) Packets() (on bool, epochs uint64) { return c.overHosted().TwoLevel().Packets() }

// Covered is what transports have kernels for, in words.
func Covered(c *comm.Communicator) string { return coverage.Of(c).String() }

// Divide makes hosts of more than most ranks count as several, until restore.
func Divide(most int) (restore func()) {
	before := mostTogether
	mostTogether = most
	return func() { mostTogether = before }
}

// Lanes is how many ranks this one has lanes to.
func (c *Comm) Lanes() (n int) {
	s := c.overHosted().Session()
	_ = s.Do(func() error {
		for _, l := range s.To {
			if l.Data != nil {
				n++
			}
		}
		return nil
	})
	return n
}

// Divided are the parts of a host of so many ranks.
func Divided(ranks, most int) (sizes []int) {
	all := make([]int, ranks)
	for _, part := range divided(all, most) {
		sizes = append(sizes, len(part))
	}
	return sizes
}

// TwoSteps is the share from which on exchanges between more than two hosts go in two steps.
const TwoSteps = crosshost.TwoSteps

// MisplacedPatience is how long a packet has to lie in the place of something else.
const MisplacedPatience = twolevel.MisplacedPatience

// PacketCame reports whether the packet of the next epoch has come from the host of a rank. It
// is for the rank's own thread.
func (c *Comm) PacketCame(peer int) bool { return c.overHosted().TwoLevel().PacketCame(peer) }

// RecvUnder is Recv of so many bytes, whose waits end with ctx.
func (c *Comm) RecvUnder(ctx context.Context, buf unsafe.Pointer, bytes uint64, peer int) error {
	s := c.overHosted().Session()
	return s.Do(func() error {
		s.Call = lanes.OfMessages()
		return lifetime.Settle(s.Comm, s.Exchange(ctx, []kernelargs.Transfer{{Buffer: uintptr(buf), Bytes: bytes, Peer: uint32(peer), Receive: 1}}))
	})
}

// SentBy is how many bytes went to each rank in pieces since mark, which the call before
// gave. All of them have to be of one size.
func (c *Comm) SentBy(mark []uint64) (bytes, next []uint64) {
	s := c.overHosted().Session()
	_ = s.Do(func() error {
		bytes, next = make([]uint64, len(s.To)), make([]uint64, len(s.To))
		for peer, l := range s.To {
			next[peer] = l.Sent
			if l.Sent == 0 || mark == nil {
				continue
			}
			head := device.Bytes(s.Out)[s.Slot(peer, l.Sent-1):]
			bytes[peer] = (l.Sent - mark[peer]) * binary.LittleEndian.Uint64(head[lanes.PreambleBytes-8:])
		}
		return nil
	})
	return bytes, next
}

// Existing lists the algorithms that rows of a table may name for a collective, wherever
// they run.
func Existing(k Collective) []string { return choose.Existing(k) }

// InCall reports whether a call is in progress.
func (c *Comm) InCall() bool { return c.progress.busy() }

// DeviceScratchOf returns the default of Options.Scratch on a GPU.
var DeviceScratchOf = deviceScratch
