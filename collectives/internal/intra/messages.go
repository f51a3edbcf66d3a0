package intra

import (
	"fmt"
	"math"
	"slices"
	"unsafe"

	"github.com/mscclpp-go/mscclpp/collectives/internal/choose"
	"github.com/mscclpp-go/mscclpp/collectives/internal/engine"
	"github.com/mscclpp-go/mscclpp/collectives/internal/kernelargs"
	"github.com/mscclpp-go/mscclpp/framework"
	"github.com/mscclpp-go/mscclpp/framework/collective"
	"github.com/mscclpp-go/mscclpp/framework/comm"
	"github.com/mscclpp-go/mscclpp/framework/device"
)

// fewName is the name of the kernel that does the same as choose.Lines, with short arguments.
const fewName = "few_ll128"

// messenger performs groups of messages.
type messenger struct {
	comm      *comm.Communicator
	host      bool
	best      *algorithm // nil: there is none
	few       *algorithm // for few of them; or nil
	chunks    *algorithm // wherever there are kernels
	launch    device.Launch
	blocks    uint32 // the most of one launch
	residents *residents
	args      kernelargs.TransferArgs
	fewArgs   kernelargs.LLTransferArgs
	lists     engine.Lists // of groups that are longer than the arguments of a launch
}

// offer chooses among the kernels for messages that there are. Pipes of lines
// are for GPUs whose links keep lines whole, and for scratch that has room for them.
func (m *messenger) offer(found map[string]*engine.Kernel, ranks int, lines bool) {
	of := func(name string) *algorithm {
		k := found[name]
		if k == nil {
			return nil
		}
		return &algorithm{Algorithm: engine.New(collective.SendRecv, name), Kernel: k, traits: choose.TraitsOf(name, collective.SendRecv)}
	}
	m.best, m.few, m.chunks = of(choose.Lines), of(fewName), of(choose.Chunk)
	if m.host || !lines || m.best == nil {
		m.best, m.few = m.chunks, nil
	}
	if m.few != nil && ranks > kernelargs.LLRanks {
		m.few = nil
	}
}

// offers lists the algorithms, the best first.
func (m *messenger) offers() (list []*algorithm) {
	for _, a := range []*algorithm{m.best, m.chunks} {
		if a != nil && !slices.Contains(list, a) {
			list = append(list, a)
		}
	}
	return list
}

// kernels lists the kernels that calls may choose.
func (m *messenger) kernels() []*algorithm {
	list := m.offers()
	if m.few != nil {
		list = append(list, m.few)
	}
	return list
}

// by is the algorithm whose kernel serves a group.
func (m *messenger) by(g *engine.Group) (alg *algorithm, err error) {
	if m.best == nil {
		return nil, fmt.Errorf("%w: no transport has a kernel for messages", framework.ErrUnavailable)
	}
	alg = m.best
	for _, a := range [...]*algorithm{m.best, m.chunks} { // not offers, which allocates: this is the path of each call
		if a != nil && a.Algorithm == g.By {
			alg = a
		}
	}
	long := func(x kernelargs.Transfer) bool { return x.Bytes >= longMessage }
	if alg.Name == choose.Lines && m.few != nil && len(g.List) <= kernelargs.LLTransfers && !slices.ContainsFunc(g.List, long) {
		return m.few, nil
	}
	return alg, nil
}

// exchange launches the kernel for a group that is sorted.
func (m *messenger) exchange(g *engine.Group, alg *algorithm, k device.Kernel) error {
	if alg.Name == choose.Chunk {
		l := m.launch
		l.Stream = g.Stream
		return m.launchGroup(k, l, g)
	}
	return m.exchangeLines(g, alg, k)
}

// fill prepares the arguments of the kernels for messages.
func (m *messenger) fill(k *kernelargs.Common, g *kernelargs.Geometry) {
	m.args.Common = *k
	m.args.Lines = kernelargs.LinePipes{Offset: g.LinePipes, Slots: kernelargs.LineSlots, Groups: g.LineGroups, Lanes: min(g.LineLanes, powerBelow(m.blocks/2))}
	m.args.LongBytes, m.args.Beside, m.args.BesideSlots = longMessage, g.Beside(m.args.Lines.Lanes), kernelargs.BesideSlots
	if m.host {
		m.args.LongBytes = math.MaxUint64
	}
	a := &m.fewArgs
	a.Control, a.State, a.Notes, a.Rank, a.Ranks, a.Lines = k.Control, k.State, k.Notes, k.Rank, k.Ranks, m.args.Lines
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
func (m *messenger) exchangeLines(g *engine.Group, alg *algorithm, k device.Kernel) error {
	lines := &m.args.Lines
	active, grid, block := lines.Shape(g.List)
	lines.Active = active
	l := m.launch
	l.Stream, l.Grid, l.Block, l.Overlap = g.Stream, min(grid, m.blocks), min(block, choose.MostThreads(alg.MaxThreads)), m.residents.most > 0
	if alg != m.few {
		next := m.residents.enterAs(&l, kernelargs.ReleaseMet)
		return m.residents.keep(next, m.launchGroup(k, l, g))
	}
	a := &m.fewArgs
	a.Lines.Active = active
	next, when := m.residents.enter(&l)
	a.Transfers, a.Release = uint32(copy(a.List[:], g.List)), uint32(when)
	a.Signature.Collective = uint32(g.Kind)
	return m.residents.keep(next, k.Launch(l, unsafe.Pointer(a), unsafe.Sizeof(*a)))
}

// launchGroup launches a kernel that takes any number of messages.
func (m *messenger) launchGroup(k device.Kernel, l device.Launch, g *engine.Group) error {
	a := &m.args
	a.Signature.Collective = uint32(g.Kind)
	a.Transfers, a.Listed, a.First, a.Memory = uint32(len(g.List)), 0, 0, 0
	if len(g.List) <= kernelargs.MaxTransfers {
		m.enlist(a, g.List)
		return k.Launch(l, unsafe.Pointer(a), unsafe.Sizeof(*a))
	}
	memory, err := m.lists.Room(m.comm.Device(), len(g.List))
	if err != nil {
		return err
	}
	a.Memory = memory.Addr()
	for rest := g.List; len(rest) > 0; rest = rest[a.Listed:] {
		a.Listed = m.enlist(a, rest)
		if err := k.Launch(l, unsafe.Pointer(a), unsafe.Sizeof(*a)); err != nil {
			return err
		}
		a.First += uint64(a.Listed)
	}
	a.Listed = 0
	return k.Launch(l, unsafe.Pointer(a), unsafe.Sizeof(*a))
}

// enlist puts messages into the argument, as many as have room, and of those received, if
// they are long, where their senders have the buffers. It returns how many.
func (m *messenger) enlist(a *kernelargs.TransferArgs, list []kernelargs.Transfer) uint32 {
	n := copy(a.List[:], list)
	for i, x := range list[:n] {
		a.Theirs[i] = 0
		if x.Receive == 0 || x.Bytes < a.LongBytes {
			continue
		}
		if s, offset, ok := m.comm.Find(x.Buffer, x.Bytes); ok {
			a.Theirs[i] = s.OwnAt(int(x.Peer)) + uintptr(offset)
		}
	}
	return uint32(n)
}
