package bench

import (
	"unsafe"

	"github.com/mscclpp-go/mscclpp/framework/kernel"
)

// Call is one collective with everything it needs. Count is the argument of the call,
// per rank as in NCCL.
type Call struct {
	Collective Collective
	In, Out    unsafe.Pointer
	Count      int
	Type       kernel.DataType
	Op         kernel.Op
	Root       int
	Scale      float64 // for premulsum
	Algorithm  string  // "" leaves the choice to the selector
	V          *Blocks // for AllToAllV

	// The facts about the buffers that Place knows.
	InPlace, Registered bool
}

// Blocks are the counts and displacements of an all-to-all-v, in elements.
type Blocks struct {
	SendCounts, SendDispls, RecvCounts, RecvDispls []int
}

// UnevenBlocks gives every pair of ranks a block of between one and ranks units, such
// that all ranks send and receive the same total: the weights 1 + (from+to) mod ranks
// are a Latin square. The total is at most count × ranks.
func UnevenBlocks(count, ranks, rank int) *Blocks {
	unit := blockUnit(count, ranks)
	size := func(from, to int) int { return unit * (1 + (from+to)%ranks) }
	b := &Blocks{}
	send, recv := 0, 0
	for peer := range ranks {
		b.SendCounts, b.SendDispls = append(b.SendCounts, size(rank, peer)), append(b.SendDispls, send)
		b.RecvCounts, b.RecvDispls = append(b.RecvCounts, size(peer, rank)), append(b.RecvDispls, recv)
		send += size(rank, peer)
		recv += size(peer, rank)
	}
	return b
}

// Totals returns how many elements a rank sends and receives.
func (b *Blocks) Totals() (sent, received int) {
	for i := range b.SendCounts {
		sent += b.SendCounts[i]
		received += b.RecvCounts[i]
	}
	return sent, received
}

func blockUnit(count, ranks int) int { return count * ranks / (ranks * (ranks + 1) / 2) }
