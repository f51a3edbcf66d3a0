package intra

import (
	"context"
	"fmt"

	"github.com/mscclpp-go/mscclpp/collectives/internal/choose"
	"github.com/mscclpp-go/mscclpp/collectives/internal/engine"
	"github.com/mscclpp-go/mscclpp/collectives/internal/kernelargs"
	"github.com/mscclpp-go/mscclpp/framework"
	"github.com/mscclpp-go/mscclpp/framework/collective"
	"github.com/mscclpp-go/mscclpp/framework/comm"
	"github.com/mscclpp-go/mscclpp/framework/device"
	"github.com/mscclpp-go/mscclpp/framework/kernel"
	"github.com/mscclpp-go/mscclpp/internal/streamorder"
)

// newCopier is nil where the device or the transports cannot do copies.
func newCopier(c *comm.Communicator, o *Options, steps map[string]*engine.Kernel, call *kernelargs.Args, blocks uint32) *copier {
	e, ok := c.Device().(device.Engine)
	if n := c.Size(); !ok || o.NoCopies || n < 2 || n > kernelargs.LLRanks || steps["signal"] == nil {
		return nil
	}
	return &copier{comm: c, ranks: c.Size(), call: call, blocks: blocks, scratch: o.CopyScratch, engine: e, signal: steps["signal"], sum: steps["sum"], move: steps["move"]}
}

// offers lists the copy algorithms.
func (k *copier) offers() (list []*algorithm) {
	if k == nil {
		return nil
	}
	add := func(name string, kind collective.Kind, by *engine.Kernel) {
		list = append(list, &algorithm{Algorithm: engine.New(kind, name), traits: choose.TraitsOf(name, kind), Kernel: &engine.Kernel{Kernel: by.Kernel, Kind: kind}})
	}
	add(choose.Copy, collective.AllGather, k.signal)
	add(choose.Copy, collective.AllToAll, k.signal)
	if _, ok := k.engine.(device.Marker); !ok {
		return list
	}
	if k.sum != nil {
		add(choose.Copy, collective.AllReduce, k.sum)
		add(choose.Copy, collective.ReduceScatter, k.sum)
	}
	if k.move == nil {
		return list
	}
	add(choose.CopyStaged, collective.AllGather, k.signal)
	add(choose.CopyStaged, collective.AllToAll, k.signal)
	if k.sum != nil {
		add(choose.CopyStaged, collective.AllReduce, k.sum)
	}
	if k.ranks != 2 { // the link of a root would carry the message once for each peer
		return list
	}
	add(choose.Copy, collective.Broadcast, k.signal)
	add(choose.CopyStaged, collective.Broadcast, k.signal)
	if k.sum != nil {
		add(choose.Copy, collective.Reduce, k.sum)
	}
	return list
}

// prepare loads and allocates what the first call needs, and larger ones. It is collective where
// pieces are: all ranks come here with their first call in pieces, and with the first that needs more memory.
func (k *copier) prepare(a *algorithm, c *engine.Call) error {
	if a.inPieces() && k.poor != nil {
		return errNoCopies{k.poor}
	}
	t := c.Type
	recording, err := streamorder.Capturing(k.engine, c.Stream)
	switch {
	case err != nil || !recording:
	case k.loaded(a, t) && (!a.inPieces() || k.peers != nil):
		return nil // with the memory that there is
	case !k.loaded(a, t) || !k.lender.Lends(): // else it had memory, and has given it up
		err = errNoCopies{fmt.Errorf("%w: expected its first call, with a type, outside of a capture: it allocates, and loads kernels", framework.ErrInvalid)}
	}
	if err != nil {
		return err
	}
	ctx, cancel := context.WithTimeout(context.Background(), engine.PreparePatience)
	defer cancel()
	if err := k.loadSignals(ctx); err != nil {
		return err
	}
	if a.Collective.Reduces() {
		if _, err := k.sum.Load(ctx, k.comm, t); err != nil {
			return err
		}
	}
	if a.inPieces() && k.short(a, c) {
		return k.make(ctx, k.needs(a, c))
	}
	return nil
}

// prepared reports whether everything is there already.
func (k *copier) prepared(a *algorithm, c *engine.Call) bool {
	return k.loaded(a, c.Type) && (!a.inPieces() || !k.short(a, c))
}

func (k *copier) loaded(a *algorithm, t kernel.DataType) bool {
	return k.signals != nil && (!a.Collective.Reduces() || k.sum.For(t) != nil)
}

// short reports whether a call would like more memory for pieces than ranks have tried to get.
func (k *copier) short(a *algorithm, c *engine.Call) bool {
	return k.peers == nil || k.asked < k.most() && k.ask(k.needs(a, c)) > k.asked
}

// loadSignals loads the kernels beside the copies, once, and makes the streams that they run on.
func (k *copier) loadSignals(ctx context.Context) error {
	if k.signals != nil {
		return nil
	}
	if err := k.openSide(); err != nil {
		return err
	}
	loaded, err := k.signal.Load(ctx, k.comm, kernel.Float32)
	if err != nil {
		return err
	}
	a, b := &k.args, &k.call.Common
	a.Control, a.State, a.Notes, a.Rank, a.Ranks = b.Control, b.State, b.Notes, b.Rank, b.Ranks
	a.Check = min(b.Check, kernelargs.CheckPublish) // the watch compares
	copy(a.Scratch[:], b.Scratch[:b.Ranks])
	if k.move != nil {
		if k.moves, err = k.move.Load(ctx, k.comm, kernel.Float32); err != nil {
			return err
		}
	}
	k.signals = loaded
	k.used.Store(true)
	return nil
}

func (k *copier) close() error {
	if k == nil {
		return nil
	}
	k.lender.Stop()
	var first error
	keep := func(err error) {
		if err != nil && first == nil {
			first = err
		}
	}
	for _, s := range []device.Stream{k.side, k.telling} { // a call that failed half-way has left kernels there
		if s != 0 {
			ctx, cancel := context.WithTimeout(context.Background(), engine.PreparePatience)
			keep(k.comm.Settle(ctx, s))
			cancel()
		}
	}
	keep(k.closeMemory())
	for _, m := range k.marks() {
		if *m != nil {
			keep((*m).Close())
		}
	}
	for _, s := range []device.Stream{k.side, k.telling} {
		if s != 0 {
			keep(k.engine.CloseStream(s))
		}
	}
	return first
}

// run enqueues one call, which is prepared.
func (k *copier) run(a *algorithm, c *engine.Call, l device.Launch) error {
	defer k.lender.Leave()
	k.args.Signature, k.args.OutputOffset, k.args.Memory = k.call.Signature, k.call.OutputOffset, k.call.Memory
	if a.traits.Reach == 0 {
		k.args.OutputOffset = 0
	}
	if k.call.Check != kernelargs.CheckNever { // so ranks with other calls do not meet, and no copy begins
		k.args.Memory ^= k.call.Signature.Fingerprint()
	}
	q := &queue{engine: k.engine, stream: l.Stream, signals: k.signals, args: &k.args}
	if a.inPieces() {
		k.relayPieces(q, a, c)
	} else {
		k.copyShares(q, c)
	}
	if q.err != nil {
		if state, err := k.engine.Query(l.Stream); err == nil && state != device.StreamCapturing {
			k.comm.Abort(q.err) // half of a call is under way, and kernels of all ranks wait for the rest
		}
	}
	return q.err
}

// copyShares is all-gather, all-to-all and broadcast. The rank's own share, if it is not
// there already, is copied on the second stream, beside those that fill the link, and by a
// kernel: one copy engine after the other would do what the link and the memory can do
// at the same time.
func (k *copier) copyShares(q *queue, c *engine.Call) {
	a, ranks, rank := k.call, int(k.call.Ranks), int(k.call.Rank)
	share := a.Count * uint64(a.Element)
	from := func(to int) uintptr {
		if c.Collective == collective.AllToAll {
			return a.Input + uintptr(uint64(to)*share)
		}
		return a.Input
	}
	at := uint64(rank) * share // in all outputs
	if c.Collective == collective.Broadcast {
		at = 0
		if rank != c.Root {
			share = 0
		}
	}
	own := a.Output + uintptr(at)
	aside := k.side != 0 && share > 0 && own != from(rank)
	if aside {
		q.link(k.now, q.stream, k.side)
		if k.moves != nil {
			k.args.Input, k.args.Output, k.args.Count = from(rank), own, share
			q.launch(k.side, k.moves, moveBlocks, choose.MostThreads(k.move.MaxThreads))
		} else {
			q.copyOn(k.side, own, from(rank), share)
		}
	}
	q.signal(kernelargs.StepOpen, kernelargs.StepOpen, 0)
	for i := 1; i < ranks; i++ {
		to := (rank + i) % ranks
		q.copy(a.Outputs[to]+uintptr(a.OutputOffset+at), from(to), share)
	}
	if !aside {
		q.copy(own, from(rank), share)
	}
	q.signal(kernelargs.StepDone, kernelargs.StepDone, 0)
	if aside {
		q.link(k.now, k.side, q.stream)
	}
}
