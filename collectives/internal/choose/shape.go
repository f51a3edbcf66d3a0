package choose

import (
	"math"

	"github.com/mscclpp-go/mscclpp/collectives/internal/engine"
	"github.com/mscclpp-go/mscclpp/collectives/internal/kernelargs"
	"github.com/mscclpp-go/mscclpp/framework/collective"
	"github.com/mscclpp-go/mscclpp/framework/device"
)

// Launcher is what the shape of all kernels on a device depends on.
type Launcher struct {
	Host    bool
	Launch  device.Launch // the geometry that kernels suggest
	Blocks  uint32        // the most of one launch
	Overlap bool          // whether launches may overlap
}

// Shape says how a kernel is launched on a GPU: what a row of the table says, or what
// was measured on H200s with NVLink for messages of this size.
func (c *Launcher) Shape(t Traits, mostThreads uint32, r *engine.Request, row *engine.Row) (l device.Launch) {
	l = c.Launch
	if c.Host {
		return l
	}
	barrier := r.Collective == collective.Barrier
	switch {
	case t.LL && t.Protocol.Pieces:
		l.Grid, l.Block = StreamBlocks, BlockThreads
	case t.LL:
		l.Grid, l.Block = llShape(t.Protocol, t.Protocol.units(r))
	case t.Wide():
		l.Grid, l.Block = wideShape(t, r)
	case barrier:
		l.Grid, l.Block = 1, 32
	}
	if row != nil && row.Blocks > 0 {
		l.Grid = uint32(row.Blocks)
	}
	if row != nil && row.Threads > 0 {
		l.Block = uint32(row.Threads)
	}
	// Whole warps: lines need them, and nothing is gained by others.
	l.Block = min((l.Block+31)/32*32, mostThreads)
	l.Grid = min(l.Grid, c.Blocks)
	if t.LL && t.Protocol.Pieces {
		l.Block = min(l.Block, BlockThreads)
	}
	l.Overlap = c.Overlap && t.Overlaps()
	return l
}

// MostThreads is the most threads of a block of a kernel; 0: it does not say.
func MostThreads(suggested int) uint32 {
	if suggested > 0 {
		return uint32(suggested)
	}
	return BlockThreads
}

// llShape gives every thread one unit, as long as the device has room for that: a
// thread that waits for one packet waits once. Small blocks spread few packets over
// more of the device's ports. These are the shapes that were fastest on two H200s, and
// for all-reduce on four; with others near them calls take up to a tenth longer.
func llShape(p Protocol, units uint64) (grid, block uint32) {
	steps := [kernelargs.Areas][]shapeStep{wordSteps, lineSteps, lamportSteps}[p.Area]
	s := steps[len(steps)-1]
	for _, x := range steps {
		if units <= x.units {
			s = x
			break
		}
	}
	if s.blocks == 1 {
		return 1, uint32(max(32, min(units, s.threads)))
	}
	return uint32(max(1, min((units+s.threads-1)/s.threads, s.blocks))), uint32(s.threads)
}

// shapeStep is the shape for up to so many units: as many blocks of threads as they
// need, up to blocks.
type shapeStep struct{ units, blocks, threads uint64 }

var (
	wordSteps = []shapeStep{
		{128, 1, 128}, {512, 4, 128}, {4096, 64, 64}, {8192, 64, 128}, {16384, 64, 256}, {math.MaxUint64, 64, 512},
	}
	// Of lines, more than 72 blocks send no faster. Up to 64, two launches leave room to others
	// while the first has only sent, see residents.
	lineSteps = []shapeStep{
		{64, 1, 64}, {320, 5, 64}, {5120, 40, 128}, {16384, 64, 256}, {20480, 64, 320}, {math.MaxUint64, 72, 512},
	}
	// Of packets without a flag: as for as many words.
	lamportSteps = []shapeStep{
		{128, 1, 128}, {512, 4, 128}, {4096, 64, 64}, {8192, 64, 128}, {16384, 64, 256}, {32768, 64, 512}, {math.MaxUint64, 128, 512},
	}
)

// wideShape is for kernels that reach into registered buffers, and for shares. The data that one
// root reads comes over many links, and few blocks take it all.
func wideShape(a Traits, r *engine.Request) (grid, block uint32) {
	reads := r.Collective == collective.Reduce && a.Direct() || r.Collective == collective.Broadcast && !a.pushes()
	switch {
	case a.Divided:
		return 128, 512
	case reads && r.Bytes > 8<<20:
		return 32, 512
	case r.Collective == collective.AllReduce && r.Bytes <= 2<<20:
		return 32, uint32(128 * min(r.Ranks, 4))
	case a.pushes() && r.Bytes <= 2<<20:
		return 96, 256
	case a.pushes() && r.Bytes <= 48<<20, r.Bytes <= 2<<20:
		return 128, 256
	}
	return 128, 512
}
