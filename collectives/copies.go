package collectives

import (
	"context"
	"encoding/binary"
	"errors"
	"fmt"
	"unsafe"

	"github.com/mscclpp-go/mscclpp/framework"
	"github.com/mscclpp-go/mscclpp/framework/comm"
	"github.com/mscclpp-go/mscclpp/framework/device"
	"github.com/mscclpp-go/mscclpp/framework/gpu"
)

// copyName is the name of the algorithms that copy engines carry out. They fill the
// link better than kernels do, and leave the multiprocessors to others, but begin
// later: they are for large messages.
//
// All copies of a rank go through one stream, to the next rank first, then to the one
// after it, so that every step is a permutation and no link carries two. Kernels of
// one warp between them tell the peers and wait for them. Everything is enqueued on
// the caller's stream, or forked from and joined to it, so graphs can capture it.
//
// Copies go to the peers' outputs where the caller's own lies: registered buffers have
// to lie at the same offset on all ranks. Those before the copies find out, on the
// device, if they do not, and the watch ends the communicator within a moment: what is
// behind them on the stream cannot be taken back.
//
// The second stream is one for all calls. While one stream with such calls is being
// captured, they must not be made on another.
const copyName = "copy"

const (
	defaultCopyScratch = 1 << 30
	leastCopyScratch   = 32 << 20 // where a device has little left
	leastPiece         = 64 << 10
	sumBlocks          = 64 // that fill the memory's bandwidth beside the copies
	moveBlocks         = 16 // that copy the own share meanwhile
	slotsOfAPeer       = 2  // in a rank's scratch
)

// copier is what copy algorithms work with.
type copier struct {
	engine  gpu.Engine
	signal  *algorithm
	sum     *algorithm // nil: no reductions
	move    *algorithm // nil: copies take its place
	signals gpu.Kernel
	moves   gpu.Kernel
	args    stepArgs

	side   gpu.Stream // for what goes on beside the copies to peers
	marks  [2]gpu.Mark
	memory *comm.Memory // that peers push pieces into: two for each of them, by turns
	peers  *comm.Symmetric
	slot   uint64
}

// offerCopies adds the copy algorithms where the device and the transports can do
// them.
func (c *Comm) offerCopies(steps map[string]*algorithm) {
	engine, ok := c.comm.Device().(gpu.Engine)
	if n := c.comm.Size(); !ok || c.opts.NoCopies || n < 2 || n > nearRanks || steps["signal"] == nil {
		return
	}
	c.copier = &copier{engine: engine, signal: steps["signal"], sum: steps["sum"], move: steps["move"]}
	add := func(k Collective, r reach, kernel comm.Kernel) {
		a := &algorithm{name: copyName, id: nameID(copyName), collective: k, kernel: kernel, reach: r, copies: true, outOfPlace: k == AllToAll}
		c.algorithms[k] = append(c.algorithms[k], a)
	}
	add(AllGather, reachOutputs, c.copier.signal.kernel)
	add(AllToAll, reachOutputs, c.copier.signal.kernel)
	if _, ok := engine.(gpu.Marker); ok && c.copier.sum != nil {
		add(AllReduce, reachOutputs, c.copier.sum.kernel)
		add(ReduceScatter, 0, c.copier.sum.kernel)
	}
}

// prepareCopies loads and allocates what the first call needs. It is collective where
// pieces are: all ranks come here with their first reduction by copies.
func (c *Comm) prepareCopies(j *job, stream gpu.Stream) error {
	k := c.copier
	sums := j.collective.reduces()
	if k.signals != nil && (!sums || k.peers != nil && c.sumOf(j.dtype) != nil) {
		return nil
	}
	state, err := k.engine.Query(stream)
	if err == nil && state == gpu.StreamCapturing {
		err = fmt.Errorf("%w: algorithm %s: expected its first call, with a type, outside of a capture: it allocates, and loads kernels", framework.ErrInvalid, copyName)
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
		loaded, err := c.comm.Load(ctx, k.signal.kernel, device.Float32)
		if err != nil {
			return err
		}
		a, b := &k.args, &c.args.common
		a.Control, a.State, a.Notes, a.Rank, a.Ranks, a.Check = b.Control, b.State, b.Notes, b.Rank, b.Ranks, b.Check
		copy(a.Scratch[:], b.Scratch[:b.Ranks])
		if k.move != nil {
			if k.moves, err = c.comm.Load(ctx, k.move.kernel, device.Float32); err != nil {
				return err
			}
		}
		k.signals = loaded
	}
	if !sums {
		return nil
	}
	if c.sumOf(j.dtype) == nil {
		loaded, err := c.comm.Load(ctx, k.sum.kernel, j.dtype)
		if err != nil {
			return err
		}
		k.sum.loaded[j.dtype] = loaded
	}
	if k.peers != nil {
		return nil
	}
	return k.open(ctx, c)
}

func (c *Comm) sumOf(t device.DataType) gpu.Kernel { return c.copier.sum.loaded[t] }

// openSide makes the second stream, where streams can wait for each other.
func (k *copier) openSide() (err error) {
	marker, ok := k.engine.(gpu.Marker)
	if !ok {
		return nil
	}
	for i := range k.marks {
		if k.marks[i] == nil {
			if k.marks[i], err = marker.NewMark(); err != nil {
				return err
			}
		}
	}
	if k.side == 0 {
		k.side, err = k.engine.NewStream()
	}
	return err
}

// open makes the memory for pieces: less than is configured where a device has no more left, and on
// all ranks what the one with the least of it has.
func (k *copier) open(ctx context.Context, c *Comm) error {
	slots := slotsOfAPeer * uint64(c.comm.Size())
	if least := slots * leastPiece; c.opts.CopyScratch < least {
		return fmt.Errorf("%w: copy scratch of %d bytes: expected at least %d", framework.ErrInvalid, c.opts.CopyScratch, least)
	}
	short := k.allocate(c, slots*leastPiece)
	var has uint64
	if k.memory != nil {
		has = k.memory.Bytes()
	}
	all, err := c.comm.AllGather(ctx, binary.LittleEndian.AppendUint64(nil, has))
	if err != nil {
		return fmt.Errorf("copy scratch: %w", err)
	}
	bytes := c.opts.CopyScratch
	for rank, b := range all {
		if bytes = min(bytes, binary.LittleEndian.Uint64(b)); bytes == 0 {
			err := &framework.Error{Op: "copy scratch", Peer: rank, Err: fmt.Errorf(
				"%w: too little memory is left on its device: choose another algorithm, or switch collectives.copy_engines off", framework.ErrUnavailable)}
			return errors.Join(err, short, k.release())
		}
	}
	if bytes < c.opts.CopyScratch/2 {
		c.comm.Log().Warn("little memory for reductions by copy engines, which makes them slower", "bytes", bytes, "configured", c.opts.CopyScratch)
	}
	k.slot = bytes / slots / leastPiece * leastPiece
	if k.peers, err = c.comm.Exchange(ctx, k.memory); err != nil {
		return fmt.Errorf("copy scratch: %w", err)
	}
	return nil
}

// allocate takes what is configured, or half of it, and so on, in whole units. It returns
// why there was no more, if there was too little.
func (k *copier) allocate(c *Comm, unit uint64) (err error) {
	for bytes := c.opts.CopyScratch; k.memory == nil; bytes /= 2 {
		if err != nil && (bytes < leastCopyScratch || !errors.Is(err, framework.ErrUnavailable)) {
			return err
		}
		k.memory, err = c.comm.Alloc(bytes / unit * unit)
	}
	return nil
}

// release gives back memory that was not exchanged.
func (k *copier) release() error {
	if k.memory == nil {
		return nil
	}
	m := k.memory
	k.memory = nil
	return m.Close()
}

func (k *copier) close() error {
	if k == nil {
		return nil
	}
	var first error
	keep := func(err error) {
		if err != nil && first == nil {
			first = err
		}
	}
	if k.peers != nil {
		keep(k.peers.Close())
	}
	keep(k.release())
	for _, m := range k.marks {
		if m != nil {
			keep(m.Close())
		}
	}
	if k.side != 0 {
		keep(k.engine.CloseStream(k.side))
	}
	return first
}

// runCopies enqueues one call. The argument of the call is in c.args.
func (c *Comm) runCopies(a *algorithm, j *job, l gpu.Launch) error {
	if err := c.prepareCopies(j, l.Stream); err != nil {
		return fmt.Errorf("algorithm %s: %w", copyName, err)
	}
	k := c.copier
	k.args.Signature, k.args.OutputOffset, k.args.Memory = c.args.Signature, c.args.OutputOffset, c.args.Memory
	if a.reach == 0 {
		k.args.OutputOffset = 0
	}
	q := &queue{engine: k.engine, stream: l.Stream, signals: k.signals, args: &k.args}
	if j.collective.reduces() {
		q.signal(stepOpen, stepOpen|stepTaken, slotsOfAPeer) // the peers have summed what was in the first slot
		c.copyReduced(q, j)
	} else {
		c.copyShares(q, j)
	}
	return q.err
}

// copyShares is all-gather and all-to-all. The rank's own share, if it is not there
// already, is copied on the second stream, beside those that fill the link, and by a
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
	own := a.Output + uintptr(uint64(rank)*share)
	aside := k.side != 0 && share > 0 && own != from(rank)
	if aside {
		q.record(k.marks[0], q.stream)
		q.await(k.marks[0], k.side)
		if k.moves != nil {
			k.args.Input, k.args.Output, k.args.Count = from(rank), own, share
			q.launch(k.side, k.moves, moveBlocks, c.mostThreads(k.move))
		} else {
			q.copyOn(k.side, own, from(rank), share)
		}
		q.record(k.marks[1], k.side)
	}
	q.signal(stepOpen, stepOpen, 0)
	for i := 1; i < ranks; i++ {
		to := (rank + i) % ranks
		q.copy(a.Outputs[to]+uintptr(a.OutputOffset+uint64(rank)*share), from(to), share)
	}
	if !aside {
		q.copy(own, from(rank), share)
	}
	q.signal(stepDone, stepDone, 0)
	if aside {
		q.await(k.marks[1], q.stream)
	}
}

// queue enqueues until something fails.
type queue struct {
	engine  gpu.Engine
	stream  gpu.Stream
	signals gpu.Kernel
	args    *stepArgs
	err     error
}

func (q *queue) copy(to, from uintptr, bytes uint64) { q.copyOn(q.stream, to, from, bytes) }

func (q *queue) copyOn(s gpu.Stream, to, from uintptr, bytes uint64) {
	if q.err == nil && bytes > 0 && to != from {
		q.err = q.engine.Copy(s, to, from, bytes)
	}
}

func (q *queue) signal(tell, wait, lag uint32) { q.signalOn(q.stream, tell, wait, lag) }

func (q *queue) signalOn(s gpu.Stream, tell, wait, lag uint32) {
	q.args.Tell, q.args.Wait, q.args.Lag = tell, wait, lag
	q.launch(s, q.signals, 1, 32)
}

func (q *queue) launch(s gpu.Stream, k gpu.Kernel, grid, block uint32) {
	if q.err == nil {
		q.err = k.Launch(gpu.Launch{Grid: grid, Block: block, Stream: s}, unsafe.Pointer(q.args), unsafe.Sizeof(*q.args))
	}
}

func (q *queue) record(m gpu.Mark, s gpu.Stream) {
	if q.err == nil {
		q.err = m.Record(s)
	}
}

func (q *queue) await(m gpu.Mark, s gpu.Stream) {
	if q.err == nil {
		q.err = m.Wait(s)
	}
}
