package choose

import (
	"math"
	"strings"

	"github.com/mscclpp-go/mscclpp/collectives/internal/engine"
	"github.com/mscclpp-go/mscclpp/collectives/internal/kernelargs"
	"github.com/mscclpp-go/mscclpp/framework/collective"
)

// Packet kernels for few ranks have short arguments, and take what fits into a slot, or
// any message in pieces that do.

// Slots are how many bytes a peer has room for, in each area.
type Slots [kernelargs.Areas]uint64

// Protocol says how a kernel for LL packets carries payload.
type Protocol struct {
	Area  kernelargs.Area // packets of 8 bytes, of which 4 are payload; lines of 128, of which 120 are; or packets of 16, all of them payload
	Twice bool            // slices are reduced by one rank each: contributions and results go through a slot

	Pieces bool // messages are cut, see kernels/stream.h
}

// Messages in pieces are counted in units of 16 bytes, in 32 bits. Parts that one launch cuts,
// which the kernels round up to whole lines in 32 bits of bytes, are smaller: data that all ranks
// have in common goes in several launches if it is more than LaunchPart, and the data that each
// rank has for each other is limited to mostOfLaunch.
const (
	mostInPieces = 32 << 30
	mostOfLaunch = 4<<30 - kernelargs.LinePayload
	LaunchPart   = 4<<30 - 1<<20
)

const (
	lineUnits   = 8  // threads that send a line
	lamportUnit = 16 // bytes that a thread sends without a flag
)

// llProtocol tells from the name of an algorithm what it is; false: none.
func llProtocol(name string) (Protocol, bool) {
	kind, carrier, _ := strings.Cut(name, "_")
	pieces := kind == "stream" || name == "chain_ll128"
	if kind != "oneshot" && kind != "twoshot" && kind != "direct" && !pieces {
		return Protocol{}, false
	}
	area := kernelargs.PacketArea
	switch carrier {
	case "ll128":
		area = kernelargs.LineArea
	case "lamport":
		area = kernelargs.LamportArea
	}
	return Protocol{Area: area, Twice: kind == "twoshot", Pieces: pieces}, true
}

// work is how many bytes of payload the threads of one rank go through.
func (p Protocol) work(r *engine.Request) uint64 {
	bytes := r.Count * uint64(r.Type.Size())
	if !p.Twice {
		return bytes
	}
	workers := uint64(r.Ranks)
	if r.Collective == collective.Reduce { // all but the root, or of two the root
		workers = max(1, workers-1)
	}
	return (bytes + workers - 1) / workers
}

// units is how many threads can share the work.
func (p Protocol) units(r *engine.Request) uint64 {
	switch p.Area {
	case kernelargs.LineArea:
		return (p.work(r) + kernelargs.LinePayload - 1) / kernelargs.LinePayload * lineUnits
	case kernelargs.LamportArea:
		return (p.work(r) + lamportUnit - 1) / lamportUnit
	}
	return (p.work(r) + 3) / 4
}

// Of is how many bytes a slot has for packets of this protocol.
func (p Protocol) Of(s Slots) uint64 { return s[p.Area] }

// Room is how many bytes of a slot a call takes. In pieces it is a unit for each thread
// of the largest launch, twice.
func (p Protocol) Room(r *engine.Request) uint64 {
	if p.Pieces {
		if r.Bytes > mostInPieces || r.Collective.Wide() && p.work(r) > mostOfLaunch {
			return math.MaxUint64
		}
		return 2 * (streamThreads/lineUnits + 1) * kernelargs.LineRoom
	}
	room := 2 * (p.work(r) + 8)
	switch p.Area {
	case kernelargs.LineArea:
		room = (p.work(r)/kernelargs.LinePayload + 2) * kernelargs.LineRoom
	case kernelargs.LamportArea:
		room = p.work(r) + 2*lamportUnit
	}
	if p.Twice {
		room *= 2
	}
	return room
}

// The sizes and limits of launches on GPUs.
const (
	DeviceLanes  = 32 // with stages and pipes
	BlockThreads = 512

	// Launches of at most this many threads may let the next kernel begin at once.
	EarlyThreads = 16 << 10

	// Messages in pieces: the more loads and stores are under way, the better.
	StreamBlocks  = 128
	streamThreads = kernelargs.MaxLanes * BlockThreads // at most, whatever a table says
)
