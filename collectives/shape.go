package collectives

import (
	"github.com/mscclpp-go/mscclpp/collectives/internal/kernelargs"
	"math"

	"github.com/mscclpp-go/mscclpp/framework/device"
)

const (
	deviceLanes   = 32 // with stages and pipes
	deviceThreads = 512

	// Launches of at most this many threads may let the next kernel begin at once.
	earlyThreads = 16 << 10

	// Messages in pieces: the more loads and stores are under way, the better.
	streamBlocks  = 128
	streamThreads = kernelargs.MaxLanes * deviceThreads // at most, whatever a table says
)

// shape says how a kernel is launched on a GPU: what a row of the table says, or what
// was measured on H200s with NVLink for messages of this size.
func (c *Comm) shape(a *algorithm, r *Request, row *Row) (l device.Launch) {
	l = c.launch
	if c.host {
		return l
	}
	switch {
	case a.isNear && a.near.pieces:
		l.Grid, l.Block = streamBlocks, deviceThreads
	case a.isNear:
		l.Grid, l.Block = nearShape(a.near, a.near.units(r))
	case a.wide():
		l.Grid, l.Block = wideShape(a, r)
	case a.kernel.Collective == "barrier":
		l.Grid, l.Block = 1, 32
	}
	if row != nil && row.Blocks > 0 {
		l.Grid = uint32(row.Blocks)
	}
	if row != nil && row.Threads > 0 {
		l.Block = uint32(row.Threads)
	}
	// Whole warps: lines need them, and nothing is gained by others.
	l.Block = min((l.Block+31)/32*32, c.mostThreads(a))
	l.Grid = min(l.Grid, c.blocks)
	if a.isNear && a.near.pieces {
		l.Block = min(l.Block, deviceThreads)
	}
	l.Overlap = c.residents.most > 0 && (a.isNear || a.wide() || a.kernel.Collective == "barrier")
	return l
}

func (c *Comm) mostThreads(a *algorithm) uint32 {
	if a.kernel.MaxThreads > 0 {
		return uint32(a.kernel.MaxThreads)
	}
	return deviceThreads
}

// nearShape gives every thread one unit, as long as the device has room for that: a
// thread that waits for one packet waits once. Small blocks spread few packets over
// more of the device's ports. These are the shapes that were fastest on two H200s, and
// for all-reduce on four; with others near them calls take up to a tenth longer.
func nearShape(p protocol, units uint64) (grid, block uint32) {
	steps := wordSteps
	if p.lines {
		steps = lineSteps
	}
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
)

// wideShape is for kernels that reach into registered buffers, and for shares. What one root
// reads comes over many links, and few blocks take it all.
func wideShape(a *algorithm, r *Request) (grid, block uint32) {
	reads := r.Collective == Reduce && a.direct() || r.Collective == Broadcast && !a.pushes()
	switch {
	case a.belts():
		return 128, 512
	case reads && r.Bytes > 8<<20:
		return 32, 512
	case r.Collective == AllReduce && r.Bytes <= 2<<20:
		return 32, uint32(128 * min(r.Ranks, 4))
	case a.pushes() && r.Bytes <= 2<<20:
		return 96, 256
	case a.pushes() && r.Bytes <= 48<<20, r.Bytes <= 2<<20:
		return 128, 256
	}
	return 128, 512
}
