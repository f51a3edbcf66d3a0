package collectives

import (
	"context"
	"errors"
	"fmt"
	"github.com/mscclpp-go/mscclpp/collectives/internal/kernelargs"
	"sync/atomic"
	"unsafe"

	"github.com/mscclpp-go/mscclpp/framework"
	"github.com/mscclpp-go/mscclpp/framework/comm"
	"github.com/mscclpp-go/mscclpp/framework/device"
	"github.com/mscclpp-go/mscclpp/framework/kernel"
)

// copyName is the name of the algorithms that copy engines carry out. They fill the
// link better than kernels do, and leave the multiprocessors to others, but begin
// later: they are for large messages.
//
// All copies of a rank go through one stream, to the next rank first, then to the one
// after it, so that every step is a permutation and no link carries two. Kernels of
// one warp beside them tell the peers and wait for them. Everything is enqueued on
// the caller's stream, or forked from and joined to it, so graphs can capture it.
//
// Copies go to the peers' outputs where the caller's own lies: registered buffers have
// to lie at the same offset on all ranks. Those before the copies find out, on the
// device, if they do not, and the watch ends the communicator within a moment: what is
// behind them on the stream cannot be taken back.
//
// The other streams are the same for all calls. While one stream with such calls is being
// captured, they must not be made on another.
const copyName = "copy"

// stagedName is the name of the same for buffers that peers do not reach: copies go into
// the scratch of the peers, and kernels move from there what has arrived while the next
// piece travels.
const stagedName = "copy_staged"

const (
	sumBlocks  = 64 // that fill the memory's bandwidth beside the copies
	moveBlocks = 16 // that copy the own share meanwhile
)

// copier is what copy algorithms work with.
type copier struct {
	engine  device.Engine
	signal  *algorithm
	sum     *algorithm // nil: no reductions
	move    *algorithm // nil: copies take its place
	signals device.Kernel
	moves   device.Kernel
	args    kernelargs.StepArgs

	side    device.Stream // for what goes on beside the copies to peers
	telling device.Stream // for telling the peers of pieces
	now     device.Mark   // that is waited for at once
	summed  [2]device.Mark
	freed   [2]device.Mark
	memory  *comm.Memory // that peers push pieces into: two for each of them, by turns
	peers   *comm.Symmetric
	slot    uint64
	poor    error // why no rank has that memory
	used    atomic.Bool
	cuts    []uint64 // of the call that is enqueued
}

// offerCopies adds the copy algorithms where the device and the transports can do
// them.
func (c *Comm) offerCopies(steps map[string]*algorithm) {
	engine, ok := c.comm.Device().(device.Engine)
	if n := c.comm.Size(); !ok || c.opts.NoCopies || n < 2 || n > kernelargs.LLRanks || steps["signal"] == nil {
		return
	}
	c.copier = &copier{engine: engine, signal: steps["signal"], sum: steps["sum"], move: steps["move"]}
	add := func(name string, k Collective, r reach, kernel comm.Kernel) {
		a := &algorithm{name: name, id: kernelargs.NameID(name), collective: k, kernel: kernel, reach: r, copies: true, outOfPlace: k == AllToAll}
		c.algorithms[k] = append(c.algorithms[k], a)
	}
	add(copyName, AllGather, reachOutputs, c.copier.signal.kernel)
	add(copyName, AllToAll, reachOutputs, c.copier.signal.kernel)
	if _, ok := engine.(device.Marker); !ok {
		return
	}
	if c.copier.sum != nil {
		add(copyName, AllReduce, reachOutputs, c.copier.sum.kernel)
		add(copyName, ReduceScatter, 0, c.copier.sum.kernel)
	}
	if c.copier.move == nil {
		return
	}
	add(stagedName, AllGather, 0, c.copier.signal.kernel)
	add(stagedName, AllToAll, 0, c.copier.signal.kernel)
	if c.copier.sum != nil {
		add(stagedName, AllReduce, 0, c.copier.sum.kernel)
	}
	if c.comm.Size() != 2 { // the link of a root would carry the message once for each peer
		return
	}
	add(copyName, Broadcast, reachOutputs, c.copier.signal.kernel)
	add(stagedName, Broadcast, 0, c.copier.signal.kernel)
	if c.copier.sum != nil {
		add(copyName, Reduce, 0, c.copier.sum.kernel)
	}
}

// inPieces reports whether it is made of copies that pass through the scratch of the peers.
func (a *algorithm) inPieces() bool {
	return a.copies && (a.reach == 0 || a.collective.Reduces())
}

// errNoCopies says that a call cannot be made of copies now, on any rank.
type errNoCopies struct{ error }

func (e errNoCopies) Unwrap() error { return e.error }

// prepared makes an algorithm of copies ready. Where that is not possible now another
// one takes its place, unless the program has named it.
func (c *Comm) prepared(a *algorithm, l device.Launch, r *Request, o *CallOptions) (*algorithm, device.Launch, error) {
	err := c.prepareCopies(a, r.Type, o.Stream)
	var none errNoCopies
	if errors.As(err, &none) && o.Algorithm == "" && c.selector == nil {
		r.noCopies = true
		return c.choose(r, "")
	}
	if err != nil {
		err = fmt.Errorf("algorithm %s: %w", a.name, err)
	}
	return a, l, err
}

// prepareCopies loads and allocates what the first call needs. It is collective where
// pieces are: all ranks come here with their first call in pieces.
func (c *Comm) prepareCopies(a *algorithm, t kernel.DataType, stream device.Stream) error {
	k := c.copier
	sums := a.collective.Reduces()
	if k.signals != nil && (!a.inPieces() || k.peers != nil) && (!sums || c.sumOf(t) != nil) {
		return nil
	}
	if a.inPieces() && k.poor != nil {
		return errNoCopies{k.poor}
	}
	state, err := k.engine.Query(stream)
	if err == nil && state == device.StreamCapturing {
		err = errNoCopies{fmt.Errorf("%w: expected its first call, with a type, outside of a capture: it allocates, and loads kernels", framework.ErrInvalid)}
	}
	if err != nil {
		return err
	}
	ctx, cancel := context.WithTimeout(context.Background(), prepareTimeout)
	defer cancel()
	if k.signals == nil {
		if err := k.openSide(); err != nil {
			return err
		}
		loaded, err := c.comm.Load(ctx, k.signal.kernel, kernel.Float32)
		if err != nil {
			return err
		}
		a, b := &k.args, &c.args.Common
		a.Control, a.State, a.Notes, a.Rank, a.Ranks = b.Control, b.State, b.Notes, b.Rank, b.Ranks
		a.Check = min(b.Check, kernelargs.CheckPublish) // the watch compares
		copy(a.Scratch[:], b.Scratch[:b.Ranks])
		if k.move != nil {
			if k.moves, err = c.comm.Load(ctx, k.move.kernel, kernel.Float32); err != nil {
				return err
			}
		}
		k.signals = loaded
		k.used.Store(true)
	}
	if sums && c.sumOf(t) == nil {
		loaded, err := c.comm.Load(ctx, k.sum.kernel, t)
		if err != nil {
			return err
		}
		k.sum.loaded[t] = loaded
	}
	if a.inPieces() && k.peers == nil {
		return k.open(ctx, c)
	}
	return nil
}

func (c *Comm) sumOf(t kernel.DataType) device.Kernel { return c.copier.sum.loaded[t] }

// openSide makes the other streams, where streams can wait for each other.
func (k *copier) openSide() (err error) {
	marker, ok := k.engine.(device.Marker)
	if !ok {
		return nil
	}
	for _, m := range k.marks() {
		if *m == nil {
			if *m, err = marker.NewMark(); err != nil {
				return err
			}
		}
	}
	for _, s := range []*device.Stream{&k.side, &k.telling} {
		if *s == 0 {
			if *s, err = k.newStream(); err != nil {
				return err
			}
		}
	}
	return nil
}

// newStream makes a stream of the greatest priority: what the caller computes beside the copies would
// keep kernels of a stream like its own waiting between any two of them.
func (k *copier) newStream() (device.Stream, error) {
	p, ok := k.engine.(device.Prioritizer)
	if !ok {
		return k.engine.NewStream()
	}
	_, greatest := p.Priorities()
	return p.NewPriorityStream(greatest)
}

func (k *copier) marks() []*device.Mark {
	return []*device.Mark{&k.now, &k.summed[0], &k.summed[1], &k.freed[0], &k.freed[1]}
}

func (k *copier) close(c *comm.Communicator) error {
	if k == nil {
		return nil
	}
	var first error
	keep := func(err error) {
		if err != nil && first == nil {
			first = err
		}
	}
	for _, s := range []device.Stream{k.side, k.telling} { // a call that failed half-way has left kernels there
		if s != 0 {
			ctx, cancel := context.WithTimeout(context.Background(), prepareTimeout)
			keep(c.Settle(ctx, s))
			cancel()
		}
	}
	if k.peers != nil {
		keep(k.peers.Close())
	}
	keep(k.release())
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

// runCopies enqueues one call. The argument of the call is in c.args, and what it needs is
// prepared.
func (c *Comm) runCopies(a *algorithm, j *job, l device.Launch) error {
	k := c.copier
	k.args.Signature, k.args.OutputOffset, k.args.Memory = c.args.Signature, c.args.OutputOffset, c.args.Memory
	if a.reach == 0 {
		k.args.OutputOffset = 0
	}
	if c.args.Check != kernelargs.CheckNever { // so ranks with other calls do not meet, and no copy begins
		k.args.Memory ^= c.args.Signature.Fingerprint()
	}
	q := &queue{engine: k.engine, stream: l.Stream, signals: k.signals, args: &k.args}
	if a.inPieces() {
		c.relayPieces(q, a, j)
	} else {
		c.copyShares(q, j)
	}
	if q.err != nil {
		if state, err := k.engine.Query(l.Stream); err == nil && state != device.StreamCapturing {
			c.comm.Abort(q.err) // half of a call is under way, and kernels of all ranks wait for the rest
		}
	}
	return q.err
}

// copyShares is all-gather, all-to-all and broadcast. The rank's own share, if it is not
// there already, is copied on the second stream, beside those that fill the link, and by a
// kernel: one copy engine after the other would do what the link and the memory can do
// at the same time.
func (c *Comm) copyShares(q *queue, j *job) {
	k, a, ranks, rank := c.copier, &c.args, int(c.args.Ranks), int(c.args.Rank)
	share := a.Count * uint64(a.Element)
	from := func(to int) uintptr {
		if j.collective == AllToAll {
			return a.Input + uintptr(uint64(to)*share)
		}
		return a.Input
	}
	at := uint64(rank) * share // in all outputs
	if j.collective == Broadcast {
		at = 0
		if rank != j.root {
			share = 0
		}
	}
	own := a.Output + uintptr(at)
	aside := k.side != 0 && share > 0 && own != from(rank)
	if aside {
		q.link(k.now, q.stream, k.side)
		if k.moves != nil {
			k.args.Input, k.args.Output, k.args.Count = from(rank), own, share
			q.launch(k.side, k.moves, moveBlocks, c.mostThreads(k.move))
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

// queue enqueues until something fails.
type queue struct {
	engine  device.Engine
	stream  device.Stream
	signals device.Kernel
	args    *kernelargs.StepArgs
	err     error
}

func (q *queue) copy(to, from uintptr, bytes uint64) { q.copyOn(q.stream, to, from, bytes) }

func (q *queue) copyOn(s device.Stream, to, from uintptr, bytes uint64) {
	if q.err == nil && bytes > 0 && to != from {
		q.err = q.engine.Copy(s, to, from, bytes)
	}
}

func (q *queue) signal(tell, wait, lag uint32) { q.signalOn(q.stream, tell, wait, lag) }

func (q *queue) signalOn(s device.Stream, tell, wait, lag uint32) {
	q.args.Tell, q.args.Wait, q.args.Lag = tell, wait, lag
	q.launch(s, q.signals, 1, 32)
}

func (q *queue) launch(s device.Stream, k device.Kernel, grid, block uint32) {
	if q.err == nil {
		q.err = k.Launch(device.Launch{Grid: grid, Block: block, Stream: s}, unsafe.Pointer(q.args), unsafe.Sizeof(*q.args))
	}
}

// link has what one stream gets from here on wait for what another one has got.
func (q *queue) link(m device.Mark, before, behind device.Stream) {
	q.record(m, before)
	q.await(m, behind)
}

func (q *queue) record(m device.Mark, s device.Stream) {
	if q.err == nil {
		q.err = m.Record(s)
	}
}

func (q *queue) await(m device.Mark, s device.Stream) {
	if q.err == nil {
		q.err = m.Wait(s)
	}
}
