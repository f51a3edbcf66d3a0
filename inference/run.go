package inference

import (
	"errors"
	"fmt"
	"unsafe"

	"github.com/mscclpp-go/mscclpp/framework"
	"github.com/mscclpp-go/mscclpp/framework/device"
	"github.com/mscclpp-go/mscclpp/framework/kernel"
	"github.com/mscclpp-go/mscclpp/internal/ownkernel"
	"github.com/mscclpp-go/mscclpp/internal/ownmemory"
)

// oneShotMost is the size of inputs, times ranks, up to which every rank sends its input to all others. Two ranks send as many
// bytes either way, but read fewer in two-shot: from pairLeast bytes that is faster.
const oneShotMost, pairLeast = 1 << 20, 8 << 20

// AllReduceNorm adds up the inputs of all ranks and the residual, and normalizes the rows of that; the results are the same on
// all ranks, bit for bit. All ranks call it in the same order. On the host it returns when this rank is done; on a GPU
// the kernel is on the stream then.
func (w *Workspace) AllReduceNorm(c *NormCall) error {
	if err := c.check(); err != nil {
		return err
	}
	if c.Tokens == 0 {
		return nil
	}
	if err := c.checkBuffers(w.comm.Rank(), w.comm.Size()); err != nil {
		return err
	}
	w.mu.Lock()
	defer w.mu.Unlock()
	if w.closed {
		return fmt.Errorf("%w: all_reduce_norm: the workspace was closed", framework.ErrClosed)
	}
	if err := w.comm.Check(); err != nil {
		return err
	}
	row := uint64(c.Hidden) * uint64(c.Type.Size())
	two := c.inTwoShots(w.comm.Size(), uint64(c.Tokens)*row)
	most, err := w.rows(c, row, two)
	if err != nil {
		return err
	}
	k, err := w.code.Load(w.comm, c.Type)
	if err != nil {
		return err
	}
	if err := w.loadFrequent(c.Type); err != nil {
		return err
	}
	marks := false
	if !w.host {
		if marks, err = w.order.Follow(w.comm.Device(), c.Stream); err != nil {
			return err
		}
	}
	w.args.normMemory = w.memoryOf(c)
	count := w.args.prepare(c, w.comm.Rank(), w.comm.Size(), two)
	w.args.Flags |= c.vectors(w.clusters)
	w.enqueued = true
	for done := uint64(0); done < count && err == nil; done += most {
		err = w.launch(k, c, done, min(most, count-done))
	}
	if marks {
		err = errors.Join(err, w.order.Record())
	}
	return err
}

// inTwoShots reports whether rows of so many bytes, of each of n ranks, are added up by one rank each.
func (c *NormCall) inTwoShots(n int, bytes uint64) bool {
	switch {
	case n == 1 || c.Rows == Local:
		return false
	case c.Rows != AllRows:
		return true
	case c.Shots != Automatic:
		return c.Shots == TwoShot
	case n == 2:
		return bytes >= pairLeast
	}
	return bytes*uint64(n) > oneShotMost
}

// rows are how many fit into a half of the scratch memory: in two-shot of each rank's.
func (w *Workspace) rows(c *NormCall, row uint64, two bool) (uint64, error) {
	peers, half := uint64(w.comm.Size()-1), w.args.Half
	if peers == 0 || c.Rows == Local {
		return mostTokens, nil
	}
	each := row
	if two {
		each = 2*row + 16
	}
	fit := half / (each * peers)
	if fit == 0 {
		return 0, invalid("rows of %d bytes do not fit into half of the %d bytes of scratch memory: expected a workspace with more", row, 2*half)
	}
	return fit, nil
}

// prepare sets what all launches of a call share, and returns the number of rows, in two-shot of those that a rank has.
func (a *normArgs) prepare(c *NormCall, rank, ranks int, two bool) uint64 {
	a.Rank, a.Ranks = uint32(rank), uint32(ranks)
	a.Input, a.Residual, a.Weight, a.Bias = uintptr(c.Input), uintptr(c.Residual), uintptr(c.Weight), uintptr(c.Bias)
	a.Output, a.ResidualOut, a.Scales, a.Scale = uintptr(c.Output), uintptr(c.ResidualOut), uintptr(c.Scales), uintptr(c.Scale)
	a.Hidden, a.Tokens, a.Quantized, a.Epsilon, a.Flags = uint32(c.Hidden), uint32(c.Tokens), uint32(c.Quantization), c.Epsilon, normFlags[c.Norm]
	share, _ := c.share(rank, ranks)
	a.Share = uint32(share)
	if c.Rows == Local {
		a.Rank, a.Ranks = 0, 1
	}
	if !two {
		return uint64(c.Tokens)
	}
	a.Flags |= twoShot | rowFlags[c.Rows]
	return share
}

// vectors is the flag of how many vectors of 16 bytes a thread has of a row at a time. All rows of a call are under way at once, as long as
// threads have registers for that: a second round would wait for memory, and for other blocks, as long as the first.
func (c *NormCall) vectors(clusters bool) uint32 {
	row := c.Hidden * c.Type.Size() / 16
	switch all := c.Tokens * row; {
	case all <= mostSingle:
		return 0
	case clusters && all > mostPairs && row <= 4*mostTeam*mostThreads:
		return quads
	}
	return pairs
}

// Flags of the kernel for norms and rows of calls.
var (
	normFlags = [norms]uint32{LayerNorm: layerNorm, NoNorm: noNorm}
	rowFlags  = [rowChoices]uint32{OwnResidual: ownResidual, OwnRows: ownResidual | ownOutput, OwnInput: ownResidual | ownInput}
)

// launch carries out some rows of a call.
func (w *Workspace) launch(k device.Kernel, c *NormCall, first, count uint64) error {
	a := &w.args
	a.First, a.Count = uint32(first), uint32(count)
	a.Signature = a.signature(c.Type)
	l := w.shape(c)
	if rms := w.rms[c.Type]; rms != nil && a.frequent(c, l) {
		k = rms
	}
	if !w.running.Begin() {
		return w.interrupt()
	}
	err := k.Launch(l, unsafe.Pointer(a), unsafe.Sizeof(*a))
	w.running.End()
	if err != nil {
		return err
	}
	return w.outcome()
}

// loadFrequent loads the kernel of frequent calls, for elements of a type, with the first call of any kind: a later one may be captured, where a
// driver may refuse to load.
func (w *Workspace) loadFrequent(t kernel.DataType) (err error) {
	if w.rms[t] == nil && w.code.Carried == nil {
		w.rms[t], err = w.code.Beside(symbolOfRMS, t)
	}
	return err
}

// frequent reports whether a launch is of the frequent calls: RMSNorm without a bias of one rank or two, in one shot, of rows for which a
// team has room in its threads.
func (a *normArgs) frequent(c *NormCall, l device.Launch) bool {
	quantized := c.Quantization == NotQuantized || c.Quantization == E4M3PerToken
	return a.Ranks <= 2 && a.Flags&^(pairs|quads) == 0 && a.Bias == 0 && quantized && c.Hidden*c.Type.Size()/16 <= a.each()*int(l.Cluster)*int(l.Block)
}

// The shape of a launch. A row has one thread for each 16 bytes, in a cluster of blocks, so that it is not one multiprocessor that does
// all of it.
const (
	warp        = 32
	teamThreads = 128 // of a block
	mostTeam    = 8   // blocks of a row

	// mostSingle is how many vectors of 16 bytes of a call have a thread each: half of those that a Hopper has room for, so that the next
	// launch finds its place. mostPairs is how many fill it with two in a thread. They are the same numbers on all GPUs, as sums of a row
	// depend on how many threads it has.
	mostSingle, mostPairs = 32768, 131072

	threadsOfUnit = 512 // of a multiprocessor: the kernel has 128 registers
)

// each is how many vectors of a row a thread has at a time.
func (a *normArgs) each() int {
	switch {
	case a.Flags&pairs != 0:
		return 2
	case a.Flags&quads != 0:
		return 4
	}
	return 1
}

// shape is that of a launch: a team of blocks has a row at a time, and one more keeps the books. All of them are resident at once.
func (w *Workspace) shape(c *NormCall) device.Launch {
	l := device.Launch{Grid: 1, Block: 1, Stream: c.Stream, Overlap: true}
	if w.host {
		return l
	}
	vectors, team, threads := (c.Hidden*c.Type.Size()/16+warp-1)/warp*warp, 1, teamThreads
	each := w.args.each()
	for w.clusters && team < mostTeam && team*threads*each < vectors {
		team *= 2
	}
	if team*threads*each < vectors {
		threads = mostThreads
	}
	l.Block = threadsOf(&w.code, min(threads, vectors))
	works := w.args.Count
	if w.args.Flags&twoShot != 0 {
		works *= w.args.Ranks
	}
	resident := min(w.comm.Device().Info().SMs*(threadsOfUnit/int(l.Block)), mostBlocks)
	teams := min(works, uint32(max(2, resident/team)-1))
	l.Grid, l.Cluster = (teams+1)*uint32(team), uint8(team)
	return l
}

// outcome is how a launch on the host has ended.
func (w *Workspace) outcome() error {
	if !w.host {
		return nil
	}
	s := (*normState)(ownmemory.At(w.args.State))
	if s.Apart != 0 {
		return ownkernel.Apart(w.comm, "all_reduce_norm", int(s.Apart)-1, "another type, other sizes or another norm")
	}
	if s.Left == 0 {
		return nil
	}
	return ownkernel.Left(w.comm, "all_reduce_norm")
}

// Types are those that operators of this package take.
func Types() []kernel.DataType {
	return []kernel.DataType{kernel.Float32, kernel.Float16, kernel.BFloat16}
}
