package collectives

import (
	"fmt"

	"github.com/mscclpp-go/mscclpp/framework"
)

// geometry is how scratch is divided. It is the same on all ranks: it follows from
// the size, the number of ranks and the number of lanes.
type geometry struct {
	Total      uint64
	Lanes      uint32
	Packets    uint64
	PacketHalf uint64
	Stages     uint64
	StageSlot  uint64
	Pipes      uint64
	PipeSlot   uint64
}

const (
	stageSlots = 4
	pipeSlots  = 4

	line          = 64
	pipeHeader    = 64
	mostStageSlot = 1 << 20
	mostPipeSlot  = 256 << 10
	mostPackets   = 4 << 20 // both halves
)

// layout divides at most scratch bytes: an eighth for packets, half for stages, the
// rest for pipes, and none of them more than helps.
func layout(scratch uint64, ranks int, lanes uint32) (geometry, error) {
	n, l := uint64(ranks), uint64(lanes)
	g := geometry{Lanes: lanes, Packets: l * n * mailboxBytes}
	least := g.Packets + n*l*(64<<10)
	if scratch < least {
		return g, fmt.Errorf("%w: %d bytes of scratch for %d ranks: expected at least %d", framework.ErrInvalid, scratch, ranks, least)
	}
	rest := scratch - g.Packets
	g.PacketHalf = min(rest/8, mostPackets) / 2 / 4096 * 4096
	g.Stages = g.Packets + 2*g.PacketHalf
	g.StageSlot = min(rest/2/(stageSlots*l), mostStageSlot) / line * line
	g.Pipes = g.Stages + l*stageSlots*g.StageSlot
	payload := min((scratch-g.Pipes)/(l*n*pipeSlots)-pipeHeader, mostPipeSlot) / line * line
	g.PipeSlot = payload + pipeHeader
	g.Total = g.Pipes + l*n*pipeSlots*g.PipeSlot
	return g, nil
}

func (g geometry) fill(c *common) {
	c.Lanes = g.Lanes
	c.Packets, c.PacketHalf = g.Packets, g.PacketHalf
	c.Stages, c.StageSlot, c.StageSlots = g.Stages, g.StageSlot, stageSlots
	c.Pipes, c.PipeSlot, c.PipeSlots = g.Pipes, g.PipeSlot, pipeSlots
}
