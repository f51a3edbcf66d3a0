package kernelargs

import (
	"fmt"

	"github.com/mscclpp-go/mscclpp/framework"
)

// Geometry is how scratch is divided. It is the same on all ranks: it follows from
// the size, the number of ranks and the number of lanes.
type Geometry struct {
	Total       uint64
	Lanes       uint32 // with stages and pipes
	Mailboxes   uint32 // lanes that have mailboxes alone, those included
	Packets     uint64
	PacketHalf  uint64
	Places      uint32 // for packets and lines in a half: one for each rank, or for the only peer
	Lines       uint64 // on GPUs
	LineHalf    uint64
	Lamport     uint64 // packets without a flag, behind all else: see WithLamport
	LamportHalf uint64
	Stages      uint64
	StageSlot   uint64
	Pipes       uint64 // also of chunks between barriers, and of the bytes beside pipes of lines: see pipeline.h and transfers_lines.h
	PipeSlot    uint64 // with its header; own pipes lie before them, of OwnPipeSlot or as much
	LinePipes   uint64 // on GPUs
	LineLanes   uint32 // with pipes of lines; 0: no room for any
	LineGroups  uint32 // of 16 lines, in a slot of theirs
	LineBytes   uint64 // of a line as it lies there
}

// How the parts of scratch are divided.
const (
	StageSlots = 4
	PipeSlots  = 4
	LineSlots  = 8 // of pipes of lines

	CacheLine      = 64
	Burst          = 512 // the bytes that a warp stores at once: links carry them in lines of 128 bytes, or in one more where they begin between two
	PipeHeader     = 64
	OwnPipeSlot    = 7 << 10 // at most: what a rank sends itself seldom goes through pipes
	mostStageSlot  = 1 << 20
	mostPipeSlot   = 256 << 10
	hostPackets    = 4 << 20  // both halves
	devicePackets  = 24 << 20 // on GPUs
	deviceLines    = 80 << 20 // for two-shot sums of 8 MiB, whatever the number of ranks
	mostLamport    = 16 << 20 // both halves: one-shot sums of 4 MiB of two ranks
	slotUnit       = 256
	LeastAnnounced = 48 << 10
	mostPipeChunk  = 64 << 10
	MostFetched    = 32 << 10 // the bytes that the loops of a block of 512 threads take at once
	MostPassedOn   = 16 << 10 // of a root's message, which is over four steps after its last chunk was put
	BesideSlots    = 4
	leastBeside    = 32 << 10

	LinePayload   = 120 // bytes of payload in a line
	DeviceLine    = 128 // bytes of a line
	LineRoom      = 256 // bytes of scratch for one where two packets stand for what one store cannot carry
	linesOfAGroup = 16

	// Of messages, as many lanes as there can be blocks that send beside as many that
	// receive, and slots that a block of 512 threads fills twice at once.
	MostLineLanes  = 64
	mostLineGroups = 8
)

// Two GPUs of NVIDIA's gain nothing from more than this. Communicators of two are frequent, and each has scratch of its own.
const (
	packetsOfTwo    = 17 << 18           // both halves, with a place for each rank: one-shot sums of 512 KiB
	lamportOfTwo    = 4 * (3<<20 + 4096) // the same: reduce-scatters of 6 MiB
	stageSlotOfTwo  = 16 << 10           // of last resorts
	pipeSlotOfTwo   = 128 << 10          // a lane of 128 fetches MostFetched at a time
	lineGroupsOfTwo = 4
)

// Divide divides at most scratch bytes: an eighth for packets, a third for lines where
// there are any, and a fourth of the rest for pipes of lines; half of what is left for
// stages, of which GPUs need little: an eighth; the rest for pipes, and none of them more than helps.
// On GPUs line is how many bytes a line takes there, LineRoom or less; 0: on the host.
func Divide(scratch uint64, ranks int, lanes uint32, line uint64) (Geometry, error) {
	n, l, device := uint64(ranks), uint64(lanes), line != 0
	g := Geometry{Lanes: lanes, Mailboxes: lanes, LineBytes: line, Places: uint32(ranks)}
	if device && ranks == 2 {
		g.Places = 1 // a rank sends nothing to itself
	}
	mostPackets, mostStage, mostPipe, mostGroups := uint64(devicePackets), uint64(mostStageSlot), uint64(mostPipeSlot), uint64(mostLineGroups)
	forLines := scratch / 3 // each of LineRoom
	if ranks == 2 && line == DeviceLine {
		forLines = scratch * 33 / 64 // with 128 MiB, pieces of streams have four rows of all threads

		mostPackets, mostStage, mostPipe, mostGroups = packetsOfTwo, stageSlotOfTwo, pipeSlotOfTwo, lineGroupsOfTwo
	}
	if device {
		g.Mailboxes = MaxLanes
	}
	g.Packets = uint64(g.Mailboxes) * n * MailboxBytes
	least := g.Packets + n*l*(64<<10)
	if scratch < least {
		return g, fmt.Errorf("%w: %d bytes of scratch for %d ranks: expected at least %d", framework.ErrInvalid, scratch, ranks, least)
	}
	rest := scratch - g.Packets
	most, staged := uint64(hostPackets), uint64(2)
	if device {
		most, staged = mostPackets, 8
	}
	g.PacketHalf = g.half(min(rest/8, most), ranks)
	g.Lines = g.Packets + 2*g.PacketHalf
	g.Stages = g.Lines
	if device {
		g.LineHalf = g.half(min(forLines, deviceLines)*line/LineRoom, ranks)
		g.Stages += 2 * g.LineHalf
		rest -= 2 * (g.PacketHalf + g.LineHalf)
		rest -= g.divideLinePipes(rest/4, n, mostGroups)
	}
	g.StageSlot = min(rest/staged/(StageSlots*l), mostStage) / Burst * Burst
	g.Pipes = (g.Stages + l*StageSlots*g.StageSlot + Burst - 1) / Burst * Burst
	lines := g.linePipesOf(n)
	g.PipeSlot = min((scratch-lines-g.Pipes)/(l*n*PipeSlots), mostPipe) / Burst * Burst
	g.Pipes += l * PipeSlots * min(g.PipeSlot, OwnPipeSlot)
	g.Total = g.Pipes + l*(n-1)*PipeSlots*g.PipeSlot
	if lines != 0 {
		g.LinePipes = (g.Total + DeviceLine - 1) / DeviceLine * DeviceLine
		g.Total += lines
	}
	return g, nil
}

// divideLinePipes takes what pipes of lines between n ranks need of at most so many
// bytes, and says how much that is. Many short pipes are better than few long ones.
func (g *Geometry) divideLinePipes(most, n, groups uint64) uint64 {
	most -= min(most, DeviceLine) // they begin at a multiple of that
	for g.LineLanes = MostLineLanes; g.LineLanes > 0; g.LineLanes /= 2 {
		if g.LineGroups = uint32(min(most/(uint64(g.LineLanes)*n*LineSlots*linesOfAGroup*LineRoom), groups)); g.LineGroups > 0 {
			return g.linePipesOf(n)
		}
	}
	return 0
}

func (g Geometry) linePipesOf(n uint64) uint64 {
	if g.LineLanes == 0 {
		return 0
	}
	return uint64(g.LineLanes)*n*LineSlots*uint64(g.LineGroups)*linesOfAGroup*g.LineBytes + DeviceLine
}

// Sentinel is what each byte of that area is until a packet arrives: see <mscclpp/sentinel.h>.
const Sentinel = 0xff

// WithLamport adds an area for packets without a flag, five parts of 32 of what scratch has otherwise. It comes on top of that, so that no other algorithm has less.
func (g Geometry) WithLamport(ranks int) Geometry {
	g.Lamport = (g.Total + slotUnit - 1) / slotUnit * slotUnit
	both := min(g.Total*5/32, mostLamport)
	if g.Places == 1 {
		both = min(g.Total*5/16, lamportOfTwo)
	}
	g.LamportHalf = g.half(both, ranks)
	g.Total = g.Lamport + 2*g.LamportHalf
	return g
}

// half is how long each of two halves of packets is that take so many bytes with a place for each rank.
func (g Geometry) half(both uint64, ranks int) uint64 {
	return both / 2 * uint64(g.Places) / uint64(ranks) / 4096 * 4096
}

// Unlined is the part of scratch that kernels use for lines alone: the rank's own where no lines are sent.
func (g Geometry) Unlined() (at, bytes uint64) { return g.Lines, 2 * g.LineHalf }

// Area is a part of scratch for the packets of kernels for few ranks.
type Area int

// The areas. Each has packets of one kind.
const (
	PacketArea  Area = iota
	LineArea         // lines
	LamportArea      // packets without a flag
	Areas
)

// LLArea is where an area begins, how long each of its halves is, how far the places of two ranks in it are apart, and
// what each has room for. Between two GPUs there is one place, so they are 0 apart.
func (g Geometry) LLArea(a Area, ranks int) (area, half, apart, room uint64) {
	switch a {
	case LineArea:
		area, half = g.Lines, g.LineHalf
	case LamportArea:
		area, half = g.Lamport, g.LamportHalf
	default:
		area, half = g.Packets, g.PacketHalf
	}
	room = half / uint64(g.Places) / slotUnit * slotUnit
	if g.Places > 1 {
		apart = room
	}
	return area, half, apart, room
}

// PipeChunk is how much of a share a lane sends each peer at once when the slots of pipes are
// divided among so many lanes. A lane that tells of less than 48 KiB at a time waits
// longer for its arrival than for the link; and what is in one chunk alone is not summed
// while the rest is on its way.
func (g Geometry) PipeChunk(share uint64, lanes, peers uint32) uint64 {
	most := min(uint64(g.Lanes)*g.PipeSlot/uint64(lanes), mostPipeChunk)
	some := max(share/uint64(lanes)/2, LeastAnnounced/uint64(max(peers, 1)))
	return max(min(some, most)/Burst*Burst, Burst)
}

// ChainChunk is how much a lane of a chain passes on at once, in whole bursts: slots lie a chunk apart. Ranks have the last one late by
// a chunk of all lanes for each rank before them, and a signal for each chunk.
func (g Geometry) ChainChunk(bytes uint64, lanes uint32) uint64 {
	return min(g.PipeChunk(bytes, lanes, 1), max(MostPassedOn, bytes/uint64(lanes)/chainChunks/Burst*Burst))
}

// chainChunks is in how many chunks a lane of a chain passes a message on, if they are not too small.
const chainChunks = 64

// Beside is how much of a long message lies beside each chunk of a pipe of lines, of so many
// lanes: the slots of pipes between two ranks are divided among those of lines. 0: too little to be
// faster than lines.
func (g Geometry) Beside(lanes uint32) uint32 {
	shared := max(1, (lanes+g.Lanes-1)/g.Lanes) // lanes in the slots of one
	n := uint32(PipeSlots*g.PipeSlot) / (shared * BesideSlots) / Burst * Burst
	if n < leastBeside {
		return 0
	}
	return n
}

// Fill puts it into arguments.
func (g Geometry) Fill(c *Common) {
	c.Lanes = g.Lanes
	c.Packets, c.PacketHalf = g.Packets, g.PacketHalf
	c.Stages, c.StageSlot, c.StageSlots = g.Stages, g.StageSlot, StageSlots
	c.Pipes, c.PipeSlot, c.PipeSlots = g.Pipes, g.PipeSlot, PipeSlots
}
