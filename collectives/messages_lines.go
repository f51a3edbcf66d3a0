package collectives

import (
	"github.com/mscclpp-go/mscclpp/collectives/internal/kernelargs"
	"math"
	"slices"
	"unsafe"

	"github.com/mscclpp-go/mscclpp/framework/device"
	"github.com/mscclpp-go/mscclpp/framework/kernel"
)

// Names of the algorithms of messages, the best first.
const (
	linesName  = "ll128"
	chunksName = "chunk"
	fewName    = "few_ll128" // the same as linesName, with short arguments
)

// offerMessages chooses among the kernels for messages that there are. Pipes of lines
// are for GPUs whose links keep lines whole, and for scratch that has room for them.
func (c *Comm) offerMessages(found map[string]*algorithm, ranks int) {
	c.messages, c.few, c.chunks = found[linesName], found[fewName], found[chunksName]
	if c.host || c.opts.NoLines || c.geometry.LineLanes == 0 || c.messages == nil {
		c.messages, c.few = c.chunks, nil
	}
	if c.few != nil && ranks > kernelargs.LLRanks {
		c.few = nil
	}
}

// messagesBy is the algorithm of messages with a name, of which "" is the best.
func (c *Comm) messagesBy(name string) *algorithm {
	for _, a := range c.messageAlgorithms() {
		if name == "" || name == a.name {
			return a
		}
	}
	return nil
}

// messageAlgorithms lists them, the best first.
func (c *Comm) messageAlgorithms() []*algorithm {
	all := []*algorithm{c.messages, c.chunks}
	if c.ports != nil && c.ports.hierarchy.mails() {
		all = slices.Insert(all, 0, &algorithm{name: hierarchicalDirect, id: kernelargs.NameID(hierarchicalDirect), collective: SendRecv})
	}
	return slices.DeleteFunc(all, func(a *algorithm) bool { return a == nil })
}

// messageNames lists their names.
func (c *Comm) messageNames() []string {
	var names []string
	for _, a := range c.messageAlgorithms() {
		if !slices.Contains(names, a.name) {
			names = append(names, a.name)
		}
	}
	return names
}

// fillMessages prepares the arguments of the kernels for messages.
func (c *Comm) fillMessages() {
	k, g := &c.args.Common, &c.geometry
	c.groupArgs.Common = *k
	c.groupArgs.Lines = kernelargs.LinePipes{Offset: g.LinePipes, Slots: kernelargs.LineSlots, Groups: g.LineGroups, Lanes: min(g.LineLanes, powerBelow(c.blocks/2))}
	c.groupArgs.LongBytes, c.groupArgs.Beside, c.groupArgs.BesideSlots = longMessage, g.Beside(c.groupArgs.Lines.Lanes), kernelargs.BesideSlots
	if c.host {
		c.groupArgs.LongBytes = math.MaxUint64
	}
	a := &c.fewArgs
	a.Control, a.State, a.Notes, a.Rank, a.Ranks, a.Lines = k.Control, k.State, k.Notes, k.Rank, k.Ranks, c.groupArgs.Lines
	copy(a.Scratch[:], k.Scratch[:min(kernelargs.LLRanks, k.Ranks)])
}

// powerBelow is the largest power of two that is at most n, and at least 1.
func powerBelow(n uint32) uint32 {
	p := uint32(1)
	for p <= n/2 {
		p *= 2
	}
	return p
}

// longMessage is the size from which on a message goes right into the buffer that it is received into,
// where its sender addresses that.
const longMessage = 48 << 20 // on two H200s lines take 105 µs for 32 MiB, 205 for 64; stores 107 and 199

// exchangeLines launches the kernel for a group that is sorted, over pipes of lines.
func (c *Comm) exchangeLines(g *group, alg *algorithm) error {
	lines := &c.groupArgs.Lines
	active, grid, block := lines.Shape(g.list)
	lines.Active = active
	long := func(x kernelargs.Transfer) bool { return x.Bytes >= longMessage }
	few := c.few != nil && len(g.list) <= kernelargs.LLTransfers && !slices.ContainsFunc(g.list, long)
	if few {
		alg = c.few
	}
	l := c.launch
	l.Stream, l.Grid, l.Block, l.Overlap = g.stream, min(grid, c.blocks), min(block, c.mostThreads(alg)), c.residents.most > 0
	k, err := c.messageKernel(alg, g.stream)
	if err != nil {
		return err
	}
	if !few {
		next := c.residents.enterAs(&l, kernelargs.ReleaseMet)
		return c.residents.keep(next, c.launchGroup(k, l, g))
	}
	a := &c.fewArgs
	a.Lines.Active = active
	next, when := c.residents.enter(&l)
	a.Transfers, a.Release = uint32(copy(a.List[:], g.list)), uint32(when)
	a.Signature.Collective = uint32(g.kind)
	return c.residents.keep(next, k.Launch(l, unsafe.Pointer(a), unsafe.Sizeof(*a)))
}

// messageKernel is the kernel of an algorithm of messages, which has no types.
func (c *Comm) messageKernel(alg *algorithm, stream device.Stream) (device.Kernel, error) {
	if alg.loaded[kernel.Uint8] == nil {
		if err := c.load(alg, kernel.Uint8, stream); err != nil {
			return nil, err
		}
	}
	return alg.loaded[kernel.Uint8], nil
}
