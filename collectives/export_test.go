package collectives

import (
	"context"
	"encoding/binary"
	"unsafe"

	"github.com/mscclpp-go/mscclpp/collectives/internal/choose"
	"github.com/mscclpp-go/mscclpp/collectives/internal/inter/crosshost"
	"github.com/mscclpp-go/mscclpp/collectives/internal/inter/lanes"
	"github.com/mscclpp-go/mscclpp/collectives/internal/inter/lifetime"
	"github.com/mscclpp-go/mscclpp/collectives/internal/kernelargs"
	"github.com/mscclpp-go/mscclpp/framework/device"
)

// overPorts is the engine of ranks that do not share memory.
func (c *Comm) overPorts() *portsEngine { return c.engines[0].(*portsEngine) }

// SetPacketEpoch makes the next packets those of another epoch. It is for all ranks, while
// none is in a call.
func (c *Comm) SetPacketEpoch(epoch uint64) {
	c.overPorts().mu.Lock()
	defer c.overPorts().mu.Unlock()
	c.overPorts().hierarchy.packets.epoch = epoch
}

// Packets of a Comm over hosts: whether they are used, and how many epochs there were.
func (c *Comm) Packets() (on bool, epochs uint64) {
	c.overPorts().mu.Lock()
	defer c.overPorts().mu.Unlock()
	x := c.overPorts().hierarchy.packets
	return x.on.Load(), x.epoch
}

// Divide makes hosts of more than most ranks count as several, until undo.
func Divide(most int) (undo func()) {
	before := mostTogether
	mostTogether = most
	return func() { mostTogether = before }
}

// Lanes is how many ranks this one has lanes to.
func (c *Comm) Lanes() (n int) {
	c.overPorts().mu.Lock()
	defer c.overPorts().mu.Unlock()
	for _, l := range c.overPorts().To {
		if l.Data != nil {
			n++
		}
	}
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

// StrayPatience is how long a packet has to lie in the place of something else.
const StrayPatience = strayPatience

// PacketCame reports whether the packet of the next epoch has come from the host of a rank. It
// is for the rank's own thread.
func (c *Comm) PacketCame(peer int) bool {
	x := c.overPorts().hierarchy.packets
	g, _ := x.Find(peer)
	slot := device.Bytes(c.overPorts().In)[x.place(g, x.epoch+1):][:x.stride()]
	bytes := binary.LittleEndian.Uint64(slot[lanes.SlotHead-8:])
	return bytes <= x.room && x.whole(slot, x.epoch+1, bytes)
}

// RecvUnder is Recv of so many bytes, whose waits end with ctx.
func (c *Comm) RecvUnder(ctx context.Context, buf unsafe.Pointer, bytes uint64, peer int) error {
	p := c.overPorts()
	p.mu.Lock()
	defer p.mu.Unlock()
	p.Call = lanes.OfMessages()
	return lifetime.Settle(p.Comm, p.Lanes.Exchange(ctx, []kernelargs.Transfer{{Buffer: uintptr(buf), Bytes: bytes, Peer: uint32(peer), Receive: 1}}))
}

// SentBy is how many bytes went to each rank in pieces since mark, which the call before
// gave. All of them have to be of one size.
func (c *Comm) SentBy(mark []uint64) (bytes, next []uint64) {
	p := c.overPorts()
	p.mu.Lock()
	defer p.mu.Unlock()
	bytes, next = make([]uint64, len(p.To)), make([]uint64, len(p.To))
	for peer, l := range p.To {
		next[peer] = l.Sent
		if l.Sent == 0 || mark == nil {
			continue
		}
		head := device.Bytes(p.Out)[p.Slot(peer, l.Sent-1):]
		bytes[peer] = (l.Sent - mark[peer]) * binary.LittleEndian.Uint64(head[lanes.PreambleBytes-8:])
	}
	return bytes, next
}

// Existing lists the algorithms that rows of a table may name for a collective, wherever
// they run.
func Existing(k Collective) []string { return choose.Existing(k) }

// InCall reports whether a call is in progress.
func (c *Comm) InCall() bool { return c.progress.word.Load()&^closing != 0 }
