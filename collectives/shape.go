package collectives

import (
	"github.com/mscclpp-go/mscclpp/framework/gpu"
)

const (
	deviceLanes   = 32 // with stages and pipes
	deviceThreads = 512

	// Launches of at most this many threads let the next kernel begin at once. It waits
	// on the device then, where larger ones would take room from everybody else.
	earlyThreads = 16 << 10
)

// shape says how a kernel is launched on a GPU: what a row of the table says, or what
// was measured on H200s with NVLink for messages of this size (docs/performance.md).
func (c *Comm) shape(a *algorithm, r *Request, row *Row) (l gpu.Launch) {
	l = c.launch
	if c.host {
		return l
	}
	switch {
	case a.isNear:
		l.Grid, l.Block = nearShape(a.near.units(r))
	case a.direct():
		l.Grid, l.Block = directShape(a, r), deviceThreads
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
	l.Overlap = c.overlap && (a.isNear || a.direct() || a.kernel.Collective == "barrier")
	return l
}

func (c *Comm) mostThreads(a *algorithm) uint32 {
	if a.kernel.MaxThreads > 0 {
		return uint32(a.kernel.MaxThreads)
	}
	return deviceThreads
}

// nearShape gives every thread one unit, as long as the device has room for that:
// a thread that waits for one packet waits once. Small blocks spread few packets over
// more of the device's ports.
func nearShape(units uint64) (grid, block uint32) {
	switch {
	case units <= 256:
		return 1, uint32(max(32, (units+31)/32*32))
	case units <= 1024:
		return uint32((units + 63) / 64), 64
	case units <= 4096:
		return uint32((units + 255) / 256), 256
	}
	return uint32(min((units+511)/512, 128)), 512
}

// directShape: few blocks fill the link when they store, more are needed to have
// enough loads under way.
func directShape(a *algorithm, r *Request) uint32 {
	switch {
	case r.Bytes <= 2<<20:
		return 32
	case r.Bytes <= 8<<20 || a.pushes():
		return 64
	}
	return 128
}
