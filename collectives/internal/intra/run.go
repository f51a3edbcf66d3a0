package intra

import (
	"errors"
	"fmt"

	"github.com/mscclpp-go/mscclpp/collectives/internal/choose"
	"github.com/mscclpp-go/mscclpp/collectives/internal/engine"
	"github.com/mscclpp-go/mscclpp/collectives/internal/kernelargs"
	"github.com/mscclpp-go/mscclpp/framework/collective"
	"github.com/mscclpp-go/mscclpp/framework/comm"
	"github.com/mscclpp-go/mscclpp/framework/device"
	"github.com/mscclpp-go/mscclpp/framework/kernel"
)

// Run launches a call whose algorithm is ready. It does not allocate.
func (e *Engine) Run(c *engine.Call) error {
	if err := e.take(); err != nil {
		return err
	}
	err := e.perform(c)
	e.give(c, err == nil)
	return err
}

func (e *Engine) perform(c *engine.Call) error {
	alg := e.byKey[c.Algorithm.Key]
	e.fill(alg, c)
	s := &e.args.Signature
	if e.args.Check != kernelargs.CheckNever {
		s.Sequence++
		e.watch.enter(s)
	} else if c.Count == 0 && c.Collective != collective.Barrier {
		return nil
	}
	l := c.Launch
	l.Stream = c.Stream
	marks, err := e.follow(l.Stream)
	if err != nil {
		return err
	}
	switch {
	case alg.traits.Copies:
		err = e.copier.run(alg, c, l)
	case alg.traits.LL:
		err = e.ll.launch(alg.For(c.Type), alg.traits.Protocol, l)
	default:
		err = e.launch(alg, c, l)
	}
	if marks {
		err = errors.Join(err, e.order.Record())
	}
	e.watch.leave()
	if err != nil {
		return err
	}
	return e.outcome(alg)
}

// fill fills the arguments of a call.
func (e *Engine) fill(alg *algorithm, c *engine.Call) {
	a, element := &e.args, uint64(c.Type.Size())
	e.locate(c)
	if alg.traits.Placed { // the kernel finds its buffers in the window
		a.InputOffset, a.OutputOffset = a.InputOffset+e.places[0].at, a.OutputOffset+e.places[1].at
	}
	a.Memory = alg.traits.Memories(c.In.ID(), c.Out.ID())
	a.Input, a.Output = uintptr(c.Input), uintptr(c.Output)
	a.Count, a.Element = c.Count, uint32(element)
	a.Type, a.Op, a.Root, a.Scale = uint32(c.Type), uint32(c.Op), uint32(c.Root), c.Scale
	a.Chunk = chunk(c.Bytes, a.StageSlot)
	s := &a.Signature
	s.Count, s.Collective, s.Algorithm = c.Count, uint32(c.Collective), alg.ID
	s.Type, s.Op, s.Root = a.Type, uint32(c.Announced()), a.Root
}

// locate tells kernels where the exchanged memory of peers is in which the buffers lie.
func (e *Engine) locate(c *engine.Call) {
	a := &e.args
	if m := c.In.Memory; m != nil && m != e.inSym {
		addresses(m, a.Inputs[:a.Ranks])
		e.inSym = m
	}
	if m := c.Out.Memory; m != nil && m != e.outSym {
		addresses(m, a.Outputs[:a.Ranks])
		e.outSym = m
	}
	a.InputOffset, a.OutputOffset = c.In.Offset, c.Out.Offset
}

func addresses(s *comm.Symmetric, to []uintptr) {
	for r := range to {
		to[r] = s.Peer(r)
	}
}

// launch launches a kernel with long arguments.
func (e *Engine) launch(alg *algorithm, c *engine.Call, l device.Launch) error {
	a, g := &e.args, &e.memory.geometry
	if alg.traits.Wide() && !e.host {
		a.Lanes = l.Grid // the same on all ranks: tables and caps are
	}
	switch alg.Name {
	case choose.Shares:
		a.Chunk = g.PipeChunk(c.Bytes/uint64(a.Ranks), a.Lanes, a.Ranks-1)
		if rooted := c.Collective == collective.Broadcast || c.Collective == collective.Reduce; rooted && a.Ranks > 2 {
			a.Chunk = min(a.Chunk, kernelargs.MostPassedOn)
		}
	case choose.Chain:
		a.Chunk = g.ChainChunk(c.Bytes, a.Lanes)
	case choose.Fetch:
		a.Chunk = min(g.PipeChunk(c.Bytes, a.Lanes, 1), kernelargs.MostFetched)
	}
	defer func() { a.Lanes = g.Lanes }()
	if alg.Name == choose.SharesToAll {
		return launchToAll(a, g, &e.residents, alg.For(c.Type), c.Root, l)
	}
	when := kernelargs.ReleaseMet
	if alg.traits.Signals {
		when = kernelargs.ReleaseAtOnce
	}
	return e.residents.launch(alg.For(c.Type), a, l, when)
}

// chunk is the step of chunked algorithms: large enough that waits are rare and that staged data
// has left the cache of its sender, small enough that staging and reading overlap.
func chunk(bytes, slot uint64) uint64 {
	const least = 256 << 10
	return min(slot, max(least, bytes/8/kernelargs.CacheLine*kernelargs.CacheLine))
}

// follow has a call on a GPU begin behind the one before it.
func (e *Engine) follow(s device.Stream) (marks bool, err error) {
	if e.host {
		return false, nil
	}
	marks, err = e.order.Follow(e.comm.Device(), s)
	e.residents.fit(e.comm.Device(), s, &e.order, &e.opts)
	return marks, err
}

// outcome is what a launch that has returned, on the host, has to tell.
func (e *Engine) outcome(alg *algorithm) error {
	if !e.host {
		return nil
	}
	if e.args.Check == kernelargs.CheckPublish { // first: the end of others may be news of the same
		if err := e.board.contradicted(&e.args.Signature); err != nil {
			e.comm.Abort(err) // ranks that met cannot go back to where they were
			return err
		}
	}
	if err := e.comm.Check(); err != nil {
		return err
	}
	if e.args.Check == kernelargs.CheckCompare && e.board.found(kernelargs.MismatchOffset) != 0 {
		return e.board.disagreement(e.args.Signature.Sequence)
	}
	if alg.Name == choose.Pull {
		return e.board.pulled()
	}
	if alg.traits.Reach == 0 {
		return nil
	}
	if peer := int(e.board.found(kernelargs.ElsewhereOffset)) - 1; peer >= 0 {
		return misplaced(alg.Name, peer)
	}
	return nil
}

// Exchange performs a group of messages.
func (e *Engine) Exchange(g *engine.Group) error {
	if err := e.take(); err != nil {
		return fmt.Errorf("%v: %w", g.Kind, err)
	}
	err := e.performGroup(g)
	e.give(nil, err == nil)
	return err
}

func (e *Engine) performGroup(g *engine.Group) error {
	marks, err := e.follow(g.Stream)
	if err != nil {
		return fmt.Errorf("%v: %w", g.Kind, err)
	}
	e.watch.enterGroup(g.List)
	err = e.exchange(g)
	if marks {
		err = errors.Join(err, e.order.Record())
	}
	e.watch.leaveGroup()
	if err != nil {
		return fmt.Errorf("%v: %w", g.Kind, err)
	}
	return e.outcomeOfGroup(g.Kind)
}

func (e *Engine) exchange(g *engine.Group) error {
	by, err := e.messenger.by(g)
	if err != nil {
		return err
	}
	if by.For(kernel.Uint8) == nil {
		if err := e.load(by, kernel.Uint8, nil); err != nil {
			return err
		}
	}
	return e.messenger.exchange(g, by, by.For(kernel.Uint8))
}

func (e *Engine) outcomeOfGroup(kind collective.Kind) error {
	if !e.host {
		return nil
	}
	if err := e.comm.Check(); err != nil {
		return fmt.Errorf("%v: %w", kind, err)
	}
	if m := e.board.found(kernelargs.MismatchOffset); m >= kernelargs.MismatchLength {
		cause := e.board.otherLength(kind.String(), m)
		e.comm.Abort(cause) // half of a message cannot be taken back
		return cause
	}
	return nil
}
