package intra

import (
	"unsafe"

	"github.com/mscclpp-go/mscclpp/collectives/internal/choose"
	"github.com/mscclpp-go/mscclpp/collectives/internal/kernelargs"
	"github.com/mscclpp-go/mscclpp/framework/device"
	"github.com/mscclpp-go/mscclpp/internal/streamorder"
)

// residents are the blocks that launches of one communicator have on the GPU while they may be
// waiting. Launches overlap: a kernel lets the next one begin, whose blocks stand on the device
// and wait for it, while it may wait for a peer. If they filled the device, no call of another
// communicator could begin; and where the peer has begun with that one, both would wait for ever.
// So some multiprocessors stay free. A few are enough: a block waits for its like on the other ranks
// alone, of messages also for the one beside it, and devices begin with the first blocks of a launch.
//
// Blocks are counted as if each had a multiprocessor for itself. Those of large kernels have; and
// small ones, of which a multiprocessor has room for several, must not stand on all of them when a
// large one of another communicator is to begin.
//
// Captured calls are counted as if they were enqueued. So the count is right within a capture, but may
// be too low for the one call that follows it.
//
// A stream of a green context has some of the multiprocessors: launches on it leave some of these free.
type residents struct {
	most    uint32 // 0: nothing overlaps
	waiting uint32 // when the next launch begins

	stream device.Stream // for which most is
	turn   uint64        // of the order of streams, when it was set
}

// fit sets most for a call on a stream. The device is asked when another stream comes, or may have come with the handle of the last.
func (r *residents) fit(d device.Device, s device.Stream, order *streamorder.Order, o *Options) {
	turn, one := order.Turn()
	if turn == r.turn && one && s == r.stream {
		return
	}
	r.stream, r.turn = s, turn
	p, ok := d.(interface{ StreamProcessors(device.Stream) int })
	if !ok {
		return
	}
	n := d.Info().SMs
	if part := p.StreamProcessors(s); part > 0 {
		n = min(n, part)
	}
	r.most = mostResidents(n, o.Sharing, o.MaxBlocks)
}

// spare is how many multiprocessors of so many are left to others: 4 of an H200's 132.
func spare(multiprocessors uint32) uint32 {
	return min(multiprocessors/4, max(2, multiprocessors/32))
}

// leastCounted bounds the launches as well: a device has at most 128, however small.
const leastCounted = 2

// enter makes room for a launch of a kernel that can be given the moment to let the next one begin, and says when
// that is. Unless there is room for all that may be waiting, the launch begins when all before it have
// ended. The returned value is for keep.
func (r residents) enter(l *device.Launch) (residents, kernelargs.Release) {
	r.squeeze(l)
	when := kernelargs.ReleaseMet
	switch {
	case l.Grid*l.Block <= choose.EarlyThreads && r.waiting+counted(l) <= r.most/2:
		when = kernelargs.ReleaseAtOnce
	case l.Grid <= r.most/2:
		when = kernelargs.ReleaseSent
	}
	return r.behind(l, when), when
}

// enterAs does so for a kernel that cannot.
func (r residents) enterAs(l *device.Launch, when kernelargs.Release) residents {
	r.squeeze(l)
	return r.behind(l, when)
}

// keep takes over what enter returned, unless the launch failed: then nothing is behind it.
func (r *residents) keep(next residents, err error) error {
	if err == nil {
		*r = next
	}
	return err
}

// launch launches a kernel with long arguments.
func (r *residents) launch(k device.Kernel, a *kernelargs.Args, l device.Launch, when kernelargs.Release) error {
	next := r.enterAs(&l, when)
	return r.keep(next, k.Launch(l, unsafe.Pointer(a), unsafe.Sizeof(*a)))
}

func counted(l *device.Launch) uint32 { return max(l.Grid, leastCounted) }

func (r *residents) squeeze(l *device.Launch) {
	if r.waiting+counted(l) > r.most {
		l.Overlap, r.waiting = false, 0
	}
}

// behind is what may be waiting when the launch after l begins.
func (r residents) behind(l *device.Launch, when kernelargs.Release) residents {
	switch when {
	case kernelargs.ReleaseAtOnce:
		r.waiting += counted(l)
	case kernelargs.ReleaseSent:
		r.waiting = counted(l)
	case kernelargs.ReleaseMet:
		r.waiting = 0
	}
	return r
}

// MostBlocks is how many blocks of one launch are resident at once, whatever else the
// ranks that share the device have launched. configured may be 0.
func MostBlocks(multiprocessors, sharing, configured int) uint32 {
	most := uint32(kernelargs.MaxLanes)
	if multiprocessors > 0 {
		share := uint32(max(1, multiprocessors/max(1, sharing)))
		most = min(most, share-spare(share))
	}
	if configured > 0 {
		most = min(most, uint32(configured))
	}
	return most
}

// mostResidents is how many blocks of launches may be waiting: those of two launches, if there is as much
// room, and none where ranks share the device. A user who caps launches at more than half of the device
// wants the rest of it.
func mostResidents(multiprocessors, sharing, configured int) uint32 {
	n, capped, blocks := uint32(multiprocessors), uint32(configured), MostBlocks(multiprocessors, sharing, configured)
	switch {
	case sharing > 1:
		return 0
	case n == 0:
		return 2 * blocks
	case capped > n/2:
		return min(capped, n-spare(n))
	}
	return min(2*blocks, n-spare(n))
}
