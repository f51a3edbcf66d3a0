package intra

import (
	"sync/atomic"
	"unsafe"

	"github.com/mscclpp-go/mscclpp/collectives/internal/engine"
	"github.com/mscclpp-go/mscclpp/collectives/internal/kernelargs"
	"github.com/mscclpp-go/mscclpp/framework/comm"
	"github.com/mscclpp-go/mscclpp/framework/device"
)

const (
	sumBlocks  = 64 // that fill the memory's bandwidth beside the copies
	moveBlocks = 16 // that copy the own share meanwhile
)

// copier carries out the algorithms that copy engines serve. They fill the
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
// For buffers that peers do not reach (choose.CopyStaged) copies go into the scratch of the peers, and kernels move
// from there what has arrived while the next piece travels.
//
// The other streams are the same for all calls. While one stream with such calls is being
// captured, they must not be made on another.
type copier struct {
	comm    *comm.Communicator
	ranks   int
	call    *kernelargs.Args // of the call that is under way
	blocks  uint32           // the most of one launch
	scratch uint64           // bytes for pieces, as configured

	engine  device.Engine
	signal  *engine.Kernel
	sum     *engine.Kernel // nil: no reductions
	move    *engine.Kernel // nil: copies take its place
	signals device.Kernel
	moves   device.Kernel
	args    kernelargs.StepArgs

	side    device.Stream // for what goes on beside the copies to peers
	telling device.Stream // for telling the peers of pieces
	now     device.Mark   // that is waited for at once
	summed  [2]device.Mark
	freed   [2]device.Mark
	pieceMemory
	used atomic.Bool
	cuts []uint64 // of the call that is enqueued
}

// inPieces reports whether it is made of copies that pass through the scratch of the peers.
func (a *algorithm) inPieces() bool {
	return a.traits.Reach == 0 || a.Collective.Reduces()
}

// errNoCopies says that a call cannot be made of copies now, on any rank.
type errNoCopies struct{ error }

func (e errNoCopies) Unwrap() error { return e.error }

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
			if *s, err = device.NewSideStream(k.engine); err != nil {
				return err
			}
		}
	}
	return nil
}

func (k *copier) marks() []*device.Mark {
	return []*device.Mark{&k.now, &k.summed[0], &k.summed[1], &k.freed[0], &k.freed[1]}
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

func (q *queue) signal(raise, wait, lag uint32) { q.signalOn(q.stream, raise, wait, lag) }

func (q *queue) signalOn(s device.Stream, raise, wait, lag uint32) {
	q.args.Signal, q.args.Wait, q.args.Lag = raise, wait, lag
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
