package collectives

import (
	"github.com/mscclpp-go/mscclpp/collectives/internal/kernelargs"
	"math"
	"strings"
	"unsafe"

	"github.com/mscclpp-go/mscclpp/framework/device"
)

// Packet kernels for few ranks have short arguments, and take what fits into a slot, or
// any message in pieces that do.

// protocol says how a near kernel carries payload.
type protocol struct {
	lines bool // packets of 128 bytes, of which 120 are payload; else of 8, of which 4 are
	twice bool // slices are reduced by one rank each: contributions and results go through a slot

	pieces bool // messages are cut, see kernels/stream.h
}

// Messages in pieces are counted in units of 16 bytes, in 32 bits. What one launch cuts, which
// the kernels round up to whole lines in 32 bits of bytes, is less: what all ranks have in
// common goes in several launches if it is more than launchPart, and of what each rank has
// for each other there can be no more than mostOfLaunch.
const (
	mostInPieces = 32 << 30
	mostOfLaunch = 4<<30 - kernelargs.LinePayload
	launchPart   = 4<<30 - 1<<20
)

const lineUnits = 8 // threads that send a line

// nearProtocol tells from the name of an algorithm what it is; false: no near kernel.
func nearProtocol(name string) (protocol, bool) {
	kind, carrier, _ := strings.Cut(name, "_")
	if kind != "oneshot" && kind != "twoshot" && kind != "direct" && kind != "stream" {
		return protocol{}, false
	}
	return protocol{lines: carrier == "ll128", twice: kind == "twoshot", pieces: kind == "stream"}, true
}

// work is how many bytes of payload the threads of one rank go through.
func (p protocol) work(r *Request) uint64 {
	bytes := r.Count * uint64(r.Type.Size())
	if !p.twice {
		return bytes
	}
	workers := uint64(r.Ranks)
	if r.Collective == Reduce { // all but the root, or of two the root
		workers = max(1, workers-1)
	}
	return (bytes + workers - 1) / workers
}

// units is how many threads can share the work.
func (p protocol) units(r *Request) uint64 {
	if p.lines {
		return (p.work(r) + kernelargs.LinePayload - 1) / kernelargs.LinePayload * lineUnits
	}
	return (p.work(r) + 3) / 4
}

// of is how many bytes a slot has for packets of this protocol.
func (p protocol) of(r *Request) uint64 {
	if p.lines {
		return r.lineSlot
	}
	return r.slot
}

// room is how many bytes of a slot a call takes. In pieces it is a unit for each thread
// of the largest launch, twice.
func (p protocol) room(r *Request) uint64 {
	if p.pieces {
		if r.Bytes > mostInPieces || r.Collective.Wide() && p.work(r) > mostOfLaunch {
			return math.MaxUint64
		}
		return 2 * (streamThreads/lineUnits + 1) * kernelargs.LineRoom
	}
	room := 8 * (p.work(r) + 8)
	if p.lines {
		room = (p.work(r)/kernelargs.LinePayload + 2) * kernelargs.LineRoom
	} else {
		room /= 4
	}
	if p.twice {
		room *= 2
	}
	return room
}

// fillNear prepares the arguments of near kernels.
func (c *Comm) fillNear() {
	for i := range c.near {
		a := &c.near[i]
		k := &c.args.Common
		a.Control, a.State, a.Notes, a.Rank, a.Ranks, a.Check = k.Control, k.State, k.Notes, k.Rank, k.Ranks, k.Check
		a.Area, a.Half, a.Slot = c.geometry.LLArea(i == 1, int(k.Ranks))
		copy(a.Scratch[:], k.Scratch[:min(kernelargs.LLRanks, k.Ranks)])
	}
}

// launchNear launches a kernel with short arguments, which those of the call are in c.args.
func (c *Comm) launchNear(kernel device.Kernel, p protocol, l device.Launch) error {
	a := c.nearArgsFor(p)
	part := launchPart / uint64(a.Element)
	for p.pieces && a.Count > part {
		rest := a.Count - part
		a.Count = part
		if err := c.launchPart(kernel, a, l); err != nil {
			return err
		}
		a.Input, a.Output, a.Count = a.Input+launchPart, a.Output+launchPart, rest
	}
	return c.launchPart(kernel, a, l)
}

func (c *Comm) launchPart(kernel device.Kernel, a *kernelargs.LLArgs, l device.Launch) error {
	next, when := c.residents.enter(&l)
	a.Release = uint32(when)
	return c.residents.keep(next, kernel.Launch(l, unsafe.Pointer(a), unsafe.Sizeof(*a)))
}

// nearArgsFor fills the arguments of one call from those of other kernels.
func (c *Comm) nearArgsFor(p protocol) *kernelargs.LLArgs {
	a := &c.near[0]
	if p.lines {
		a = &c.near[1]
	}
	k := &c.args
	a.Input, a.Output, a.Count, a.Op, a.Element, a.Scale, a.Signature = k.Input, k.Output, k.Count, k.Op, k.Element, k.Scale, k.Signature
	return a
}
