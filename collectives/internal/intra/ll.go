package intra

import (
	"unsafe"

	"github.com/mscclpp-go/mscclpp/collectives/internal/choose"
	"github.com/mscclpp-go/mscclpp/collectives/internal/kernelargs"
	"github.com/mscclpp-go/mscclpp/framework/device"
)

// llKernels launches the kernels of LL packets for few ranks, which have short arguments.
type llKernels struct {
	args      [kernelargs.Areas]kernelargs.LLArgs
	call      *kernelargs.Args // of the call that is under way
	residents *residents
	room      choose.Slots
}

// slots are how many bytes a peer has room for; of lines, if each took LineRoom.
func (x *llKernels) slots() choose.Slots { return x.room }

// divide says where packets go in scratch.
func (x *llKernels) divide(g *kernelargs.Geometry, ranks int) {
	for i := range x.args {
		a := &x.args[i]
		a.Area, a.Half, a.Slot, x.room[i] = g.LLArea(kernelargs.Area(i), ranks)
	}
	x.room[kernelargs.LineArea] *= kernelargs.LineRoom / max(g.LineBytes, kernelargs.DeviceLine)
}

// fill prepares the arguments.
func (x *llKernels) fill() {
	for i := range x.args {
		a, k := &x.args[i], &x.call.Common
		a.Control, a.State, a.Notes, a.Rank, a.Ranks, a.Check = k.Control, k.State, k.Notes, k.Rank, k.Ranks, k.Check
		copy(a.Scratch[:], k.Scratch[:min(kernelargs.LLRanks, k.Ranks)])
	}
}

// launch launches a kernel for the call that is under way.
func (x *llKernels) launch(kernel device.Kernel, p choose.Protocol, l device.Launch) error {
	a := x.argsFor(p)
	part := choose.LaunchPart / uint64(a.Element)
	for p.Pieces && a.Count > part {
		rest := a.Count - part
		a.Count = part
		if err := x.launchPart(kernel, a, l); err != nil {
			return err
		}
		a.Input, a.Output, a.Count = a.Input+choose.LaunchPart, a.Output+choose.LaunchPart, rest
	}
	return x.launchPart(kernel, a, l)
}

func (x *llKernels) launchPart(kernel device.Kernel, a *kernelargs.LLArgs, l device.Launch) error {
	next, when := x.residents.enter(&l)
	a.Release = uint32(when)
	return x.residents.keep(next, kernel.Launch(l, unsafe.Pointer(a), unsafe.Sizeof(*a)))
}

// argsFor fills the arguments of one call from those of other kernels.
func (x *llKernels) argsFor(p choose.Protocol) *kernelargs.LLArgs {
	a, k := &x.args[p.Area], x.call
	a.Input, a.Output, a.Count, a.Op, a.Element, a.Scale, a.Signature = k.Input, k.Output, k.Count, k.Op, k.Element, k.Scale, k.Signature
	return a
}
