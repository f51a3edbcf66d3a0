// Package intra performs collectives of ranks that share memory, by kernels over that memory and by copy engines.
package intra

import (
	"context"
	"fmt"
	"io"
	"slices"

	"github.com/mscclpp-go/mscclpp/collectives/internal/choose"
	"github.com/mscclpp-go/mscclpp/collectives/internal/engine"
	"github.com/mscclpp-go/mscclpp/collectives/internal/kernelargs"
	"github.com/mscclpp-go/mscclpp/framework"
	"github.com/mscclpp-go/mscclpp/framework/collective"
	"github.com/mscclpp-go/mscclpp/framework/comm"
	"github.com/mscclpp-go/mscclpp/framework/device"
	"github.com/mscclpp-go/mscclpp/framework/kernel"
)

// New makes the engine. It is collective: it allocates scratch memory and makes it accessible to all ranks.
func New(ctx context.Context, c *comm.Communicator, o Options) (*Engine, error) {
	e := &Engine{comm: c, opts: o, host: c.Device().Info().Device == framework.Host}
	if c.Size() > kernelargs.MaxRanks {
		return nil, fmt.Errorf("%w: %d ranks share memory: expected at most %d", framework.ErrUnsupported, c.Size(), kernelargs.MaxRanks)
	}
	found, lanes := engine.Discover(c.Kernels(), c.Size()), e.shape(c.Device().Info().SMs)
	_, fills := c.Device().(filler)
	if !e.host {
		e.copier = newCopier(c, &e.opts, found.Steps, &e.args, e.launcher.Blocks)
	}
	if err := e.offer(found, e.copier.offers(), site{ranks: c.Size(), host: e.host, noLines: e.opts.NoLines, noFill: !fills, line: lineBytes(c.Device(), e.host, c.Size())}, lanes); err != nil {
		return nil, err
	}
	nameWaits(c, e.list)
	if err := e.agree(ctx); err != nil {
		return nil, err
	}
	if err := e.allocate(ctx); err != nil {
		e.Close()
		return nil, err
	}
	if e.watched() {
		e.watch = startWatch(&e.board)
	}
	e.planned.open(c, e)
	return e, nil
}

// shape says how kernels are launched on a device with so many multiprocessors. It returns the number of lanes with
// stages and pipes.
func (e *Engine) shape(multiprocessors int) (lanes uint32) {
	e.launcher = choose.Launcher{Host: e.host, Blocks: 1, Launch: device.Launch{Grid: 1, Block: 1}}
	if e.host {
		return 1
	}
	o, blocks := &e.opts, MostBlocks(multiprocessors, e.opts.Sharing, e.opts.MaxBlocks)
	lanes = min(choose.DeviceLanes, blocks)
	e.residents.most = mostResidents(multiprocessors, o.Sharing, o.MaxBlocks)
	e.launcher = choose.Launcher{Blocks: blocks, Launch: device.Launch{Grid: lanes, Block: choose.BlockThreads}, Overlap: e.residents.most > 0}
	return lanes
}

// offer lists what kernels, and copies, can do for so many ranks, and picks the built-in table.
func (e *Engine) offer(found engine.Kernels, copies []*algorithm, at site, lanes uint32) (err error) {
	o, g, ranks := &e.opts, &e.memory.geometry, at.ranks
	if *g, err = kernelargs.Divide(o.Scratch, ranks, lanes, at.line); err != nil {
		return err
	}
	if at.noLines {
		_, at.spare = g.Unlined()
	}
	kernels, unplaced := offered(found.Collectives, at)
	e.unplaced = append(found.Unplaced, unplaced...)
	if slices.ContainsFunc(kernels, lamport) {
		*g = g.WithLamport(ranks)
	}
	e.ll = llKernels{call: &e.args, residents: &e.residents}
	e.ll.divide(g, ranks)
	m := &e.messenger
	*m = messenger{comm: e.comm, host: e.host, launch: e.launcher.Launch, blocks: e.launcher.Blocks, residents: &e.residents}
	m.offer(found.Messages, ranks, !o.NoLines && g.LineLanes != 0)
	e.list = slices.Concat(kernels, copies, m.offers())
	for i, a := range e.list {
		e.describe(i, a)
	}
	e.byKey = slices.Clone(e.list)
	if e.rows = choose.HostTable; !e.host {
		f := choose.Facts{Route: o.Route, Ranks: ranks, CopyScratch: o.CopyScratch, Slots: e.ll.slots()}
		e.rows, e.basis = choose.Builtin(f, public(e.list, func(a *algorithm) bool { return true }))
	}
	return nil
}

// lineBytes is how many bytes a line has in scratch. More than two ranks have room for LineRoom, whatever it takes: kernels fill the rest
// with more lines, and it was not measured without.
func lineBytes(d device.Device, host bool, ranks int) uint64 {
	if host {
		return 0
	}
	if k, ok := d.(interface{ LineBytes() uint64 }); ok && ranks == 2 {
		return k.LineBytes()
	}
	return kernelargs.LineRoom
}

// describe makes an algorithm what the face needs.
func (e *Engine) describe(key int, a *algorithm) {
	slots := e.ll.slots()
	x := a.Algorithm
	x.Engine, x.Key, x.Types = e, key, a.Kernel.Types
	x.Fits = func(q *engine.Query) error {
		if a.window && e.noWindow != nil {
			return fmt.Errorf("algorithm %s: %w", a.Name, e.noWindow)
		}
		return a.fits(q, slots)
	}
	most := choose.MostThreads(a.MaxThreads)
	x.Shape = func(q *engine.Query, row *engine.Row) device.Launch {
		return e.launcher.Shape(a.traits, most, &q.Request, row)
	}
	x.Ready = func(c *engine.Call) (again bool, err error) { return e.ready(a, c) }
}

// Offers lists the algorithms.
func (e *Engine) Offers() engine.Offers {
	return engine.Offers{Algorithms: public(e.list, func(*algorithm) bool { return true }), Rows: e.rows, Basis: e.basis, Unplaced: e.unplaced}
}

// Settle reports, once, errors of earlier calls on a GPU: there a call returns before its kernel has begun.
func (e *Engine) Settle(collective.Kind, device.Stream) (changed bool, err error) {
	return false, e.board.noted()
}

// Check does the same without a call.
func (e *Engine) Check() error { return e.board.noted() }

// Prepare loads the kernels of calls of a collective: for messages all, else those that tables choose.
func (e *Engine) Prepare(k collective.Kind, t kernel.DataType, chosen []*engine.Algorithm) error {
	ctx, cancel := context.WithTimeout(context.Background(), engine.PreparePatience)
	defer cancel()
	return e.loadAll(ctx, e.loadable(k, chosen), t)
}

// Dump writes how algorithms are chosen, and the last call that each rank is known to have begun.
func (e *Engine) Dump(w io.Writer) {
	if e.opts.Signatures == engine.SignaturesNever {
		fmt.Fprintln(w, "  collectives: ranks do not tell what they begin: check.signatures is never")
		return
	}
	e.board.dump(w)
}

// watched reports whether a watch has to look at calls that are under way: to compare them, and on GPUs for copies that
// cannot go where they should, and for ranks that have left.
func (e *Engine) watched() bool {
	if e.host {
		return e.opts.Signatures != engine.SignaturesNever
	}
	return e.board.notes.engine != nil
}

// Pending implements engine.Enqueuer.
func (e *Engine) Pending() (busy, known bool, err error) {
	if e.host {
		return false, true, nil
	}
	e.order.Others(e.planned.table.Calls())
	return e.order.Pending(e.comm.Device())
}

// Close releases what New allocated. Nothing may be in progress that does not end.
func (e *Engine) Close() error {
	if e.closed {
		return nil
	}
	e.closed = true
	e.watch.stop()
	var first error
	keep := func(err error) {
		if err != nil && first == nil {
			first = err
		}
	}
	keep(e.closePlanned())
	if !e.host {
		keep(engine.Drain(e.comm, e))
	}
	keep(e.order.Close())
	keep(e.copier.close())
	for _, m := range e.messenger.lists {
		keep(m.Close())
	}
	keep(e.memory.close(e.board.notes))
	return first
}
