package collectives

import "github.com/mscclpp-go/mscclpp/framework/gpu"

// residents are the blocks that launches of one communicator have on the GPU while they may be
// waiting. Launches overlap: a kernel lets the next one begin, whose blocks stand on the device
// and wait for it, while it may wait for a peer. If they filled the device, no call of another
// communicator could begin; and where the peer has begun with that one, both would wait for ever.
// So some multiprocessors stay free. A few are enough: a block waits for its like on the other ranks
// alone, and all devices begin with the first blocks of a launch.
//
// Blocks are counted as if each had a multiprocessor for itself. Those of large kernels have; and
// small ones, of which a multiprocessor has room for several, must not stand on all of them when a
// large one of somebody else is to begin.
type residents struct {
	most    uint32 // 0: nothing overlaps
	waiting uint32 // when the next launch begins
}

// spare is how many multiprocessors of so many are left to others: 4 of an H200's 132.
func spare(multiprocessors uint32) uint32 { return multiprocessors / 32 }

// release is when a kernel lets the next one begin: the twin of Release in kernels/args.h.
type release uint32

const (
	releaseSent   release = iota // everything, and all before it have ended
	releaseAtOnce                // when it begins
	releaseMet                   // its peers, so that it ends whoever else is on the device; or at its end
)

// enter makes room for a launch: it begins when all before it have ended unless there is room for all
// that may be waiting. It chooses when a kernel lets the next one begin that can be told.
func (r *residents) enter(l *gpu.Launch) release {
	r.squeeze(l)
	switch {
	case l.Grid*l.Block <= earlyThreads && r.waiting+l.Grid <= r.most/2:
		r.waiting += l.Grid
		return releaseAtOnce
	case l.Grid <= r.most/2:
		r.waiting = l.Grid
		return releaseSent
	}
	r.waiting = 0
	return releaseMet
}

// enterAs does so for a kernel that cannot be told.
func (r *residents) enterAs(l *gpu.Launch, when release) {
	r.squeeze(l)
	switch when {
	case releaseAtOnce:
		r.waiting += l.Grid
	case releaseMet:
		r.waiting = 0
	}
}

func (r *residents) squeeze(l *gpu.Launch) {
	if r.waiting+l.Grid > r.most {
		l.Overlap, r.waiting = false, 0
	}
}
