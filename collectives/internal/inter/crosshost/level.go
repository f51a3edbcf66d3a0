// Package crosshost exchanges data between hosts over lanes, for ranks that have the partial results of their hosts: it
// is the level between hosts of collectives in two levels, for any engine that performs the level inside.
//
// Small calls send redundantly: all ranks of a host have its part, and each of them
// gives it to counterparts on the other hosts. Large calls divide the data of a host among its ranks, so that each
// of them sends a part and all adapters are busy. Partial results of a host are added up in the order of the hosts.
package crosshost

import (
	"math"
	"unsafe"

	"github.com/mscclpp-go/mscclpp/collectives/internal/hostreduce"
	"github.com/mscclpp-go/mscclpp/collectives/internal/inter/lanes"
	"github.com/mscclpp-go/mscclpp/collectives/internal/inter/placement"
	"github.com/mscclpp-go/mscclpp/framework/kernel"
)

// Level is the state of the exchanges of one rank. One call at a time uses it.
type Level struct {
	Sizes
	Lanes  *lanes.Lanes
	Spaces [Spaces]Space
	sum    hostreduce.Accumulator
}

// New prepares exchanges.
func New(p *placement.Placement, l *lanes.Lanes) *Level {
	return &Level{Sizes: Sizes{p, l.Piece}, Lanes: l}
}

// Reduction is what is computed of elements.
type Reduction struct {
	Type kernel.DataType
	Op   kernel.Op
}

// Space is memory for intermediate data, kept for the next call.
type Space struct{ words []uint64 }

// Purposes of spaces. Shares of three pieces are under way at a time.
const (
	SpaceShare  = iota // of this rank, in three pieces
	SpacePadded = iota + 2
	SpaceBlock
	SpaceTheirs
	Spaces // how many there are
)

// Bytes returns that much of it.
func (s *Space) Bytes(n uint64) []byte {
	if uint64(len(s.words)) < (n+7)/8 {
		s.words = make([]uint64, (n+7)/8)
	}
	return unsafe.Slice((*byte)(unsafe.Pointer(unsafe.SliceData(s.words))), n)
}

// Partial reports whether the result of a reduction can be had from results of parts
// of the ranks: floats of 8 bits would be rounded twice, and so would averages of
// integers.
func Partial(t kernel.DataType, op kernel.Op) bool {
	switch t {
	case kernel.Float8E4M3, kernel.Float8E5M2, kernel.Float8E4M3B15:
		return false
	case kernel.Float16, kernel.BFloat16, kernel.Float32, kernel.Float64:
		return true
	}
	return op != kernel.Avg
}

// Inner is the reduction inside a host, with its scale. An average becomes a sum of what was made
// smaller, so that it does not become too large for the type: by a power of two, which
// rounds nothing.
func (z *Sizes) Inner(op kernel.Op, scale float64) (kernel.Op, float64) {
	if op == kernel.Avg {
		return kernel.PreMulSum, 1 / z.Smaller()
	}
	return op, scale
}

// Smaller is by how much inputs of an average are made smaller.
func (z *Sizes) Smaller() float64 { return math.Exp2(math.Ceil(math.Log2(float64(z.Most)))) }

// startSum begins the reduction between hosts.
func (h *Level) startSum(r Reduction, bytes uint64) *hostreduce.Accumulator {
	sum, op := &h.sum, r.Op
	if op == kernel.PreMulSum { // done inside
		op = kernel.Sum
	}
	sum.Start(r.Type, op, 0, bytes)
	sum.By = float64(h.Ranks()) / h.Smaller()
	return sum
}

// Names of the algorithms over hosts.
const (
	NamePackets = "hierarchical_packets"
	NameSmall   = "hierarchical_small"
	NameLarge   = "hierarchical_large"
	NameDirect  = "hierarchical_direct" // from memory of a GPU to memory of a GPU
)

// Piece is one piece of a vector under way between hosts.
type Piece struct {
	Direction
	At, Count uint64 // elements of the vector
	Share     []byte // the parts that the ranks of this host have of this rank's share; later the result
}

// Direction says which hosts give and which get. The zero value is a call without a root, in
// which all do both.
type Direction struct {
	Rooted bool
	Gives  bool // it is a broadcast: the root's host gives, the others get. Else a reduction: the reverse
	Home   int  // the root's host
}

// Gets reports whether a host is to have the result.
func (c Direction) Gets(g int) bool { return !c.Rooted || c.Gives != (g == c.Home) }

// Spares reports whether a rank reduces for a root, and has no use for the result.
func (c Direction) Spares(rank, root int) bool { return c.Rooted && rank != root }

// slices reports whether a host has slices of its own in an exchange in two steps.
func (c Direction) slices(g int) bool { return !c.Rooted || g != c.Home }

// Sum reduces what the hosts have in their order: own is that of this one, and theirs
// hands that of another to add.
func (h *Level) Sum(r Reduction, own, to []byte, theirs func(g int, add func(b []byte)) error) error {
	sum := h.startSum(r, uint64(len(own)))
	for g := range h.Hosts {
		if g == h.Host {
			sum.Add(own)
		} else if err := theirs(g, sum.Add); err != nil {
			return err
		}
	}
	sum.Store(to)
	return nil
}
