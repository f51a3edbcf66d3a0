package twolevel

import (
	"encoding/binary"

	"github.com/mscclpp-go/mscclpp/collectives/internal/inter/lanes"
	"github.com/mscclpp-go/mscclpp/framework/device"
)

// These are for tests of whole jobs, and for nothing else.

// SetPacketEpoch makes the next packets those of another epoch. It is for all ranks, while
// none is in a call.
func (h *Engine) SetPacketEpoch(epoch uint64) {
	_ = h.session.Do(func() error { h.packets.epoch = epoch; return nil })
}

// Packets says whether packets are used, and how many epochs there were.
func (h *Engine) Packets() (on bool, epochs uint64) {
	_ = h.session.Do(func() error { on, epochs = h.packets.on.Load(), h.packets.epoch; return nil })
	return on, epochs
}

// PacketCame reports whether the packet of the next epoch has come from the host of a rank. It
// is for the rank's own thread.
func (h *Engine) PacketCame(peer int) bool {
	x := h.packets
	g, _ := x.Find(peer)
	slot := device.Bytes(x.Lanes.In)[x.place(g, x.epoch+1):][:x.stride()]
	bytes := binary.LittleEndian.Uint64(slot[lanes.SlotHead-8:])
	return bytes <= x.room && x.whole(slot, x.epoch+1, bytes)
}
