package intra

import (
	"unsafe"

	"github.com/mscclpp-go/mscclpp/collectives/internal/choose"
	"github.com/mscclpp-go/mscclpp/collectives/internal/kernelargs"
	"github.com/mscclpp-go/mscclpp/framework/device"
)

// llKernels launches the kernels of LL packets for few ranks, which have short arguments.
type llKernels struct {
	args      [2]kernelargs.LLArgs // for packets, for lines
	call      *kernelargs.Args     // of the call that is under way
	residents *residents
}

// slots are how many bytes a peer has room for.
func (x *llKernels) slots() choose.Slots {
	return choose.Slots{Packets: x.args[0].Slot, Lines: x.args[1].Slot}
}

// divide says where packets go in scratch.
func (x *llKernels) divide(g *kernelargs.Geometry, ranks int) {
	for i := range x.args {
		a := &x.args[i]
		a.Area, a.Half, a.Slot = g.LLArea(i == 1, ranks)
	}
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
	a := &x.args[0]
	if p.Lines {
		a = &x.args[1]
	}
	k := x.call
	a.Input, a.Output, a.Count, a.Op, a.Element, a.Scale, a.Signature = k.Input, k.Output, k.Count, k.Op, k.Element, k.Scale, k.Signature
	return a
}
