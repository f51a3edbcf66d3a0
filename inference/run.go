package inference

import (
	"fmt"
	"time"
	"unsafe"

	"github.com/mscclpp-go/mscclpp/framework"
	"github.com/mscclpp-go/mscclpp/framework/device"
	"github.com/mscclpp-go/mscclpp/framework/kernel"
)

// oneShotMost is the size of inputs, times ranks, up to which every rank sends its input to all others. Two ranks send as many
// bytes either way, but read fewer in two-shot: from pairLeast bytes that is faster.
const oneShotMost, pairLeast = 1 << 20, 2 << 20

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
	if err := c.checkBuffers(); err != nil {
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
	two := inTwoShots(w.comm.Size(), uint64(c.Tokens)*row, c.Shots)
	most, err := w.rows(row, two)
	if err != nil {
		return err
	}
	k, err := w.code.Load(w.comm, c.Type)
	if err != nil {
		return err
	}
	if err := w.follow(c.Stream); err != nil {
		return err
	}
	w.prepare(c, two)
	w.stream, w.enqueued = c.Stream, true
	for done := uint64(0); done < uint64(c.Tokens); done += most {
		if err := w.launch(k, c, done, min(most, uint64(c.Tokens)-done)); err != nil {
			return err
		}
	}
	return nil
}

// inTwoShots reports whether rows of so many bytes, of each of n ranks, are added up by one rank each.
func inTwoShots(n int, bytes uint64, wanted Shots) bool {
	switch {
	case n == 1:
		return false
	case wanted != Automatic:
		return wanted == TwoShot
	case n == 2:
		return bytes >= pairLeast
	}
	return bytes*uint64(n) > oneShotMost
}

// rows are how many fit into a half of the scratch memory.
func (w *Workspace) rows(row uint64, two bool) (uint64, error) {
	n, fit := uint64(w.comm.Size()), w.args.Half/row
	switch {
	case n == 1:
		return mostTokens, nil
	case two && fit >= n-1:
		fit = (fit - (n - 1)) * n / (2*n - 1)
	case two:
		fit = 0
	default:
		fit /= n - 1
	}
	if fit == 0 {
		return 0, invalid("rows of %d bytes do not fit into half of the %d bytes of scratch memory: expected a workspace with more", row, 2*w.args.Half)
	}
	return fit, nil
}

// prepare sets what all launches of a call share.
func (w *Workspace) prepare(c *NormCall, two bool) {
	a := &w.args
	a.Weight, a.Bias, a.Scale = uintptr(c.Weight), uintptr(c.Bias), uintptr(c.Scale)
	a.Hidden, a.Quantized, a.Epsilon, a.Flags = uint32(c.Hidden), uint32(c.Quantization), c.Epsilon, 0
	if two {
		a.Flags |= twoShot
	}
	if c.Norm == LayerNorm {
		a.Flags |= layerNorm
	}
}

// launch carries out some rows of a call.
func (w *Workspace) launch(k device.Kernel, c *NormCall, from, rows uint64) error {
	a, size := &w.args, uint64(c.Type.Size())
	skip := uintptr(from * uint64(c.Hidden) * size)
	outSkip := skip
	if c.Quantization != NotQuantized {
		outSkip = uintptr(from * uint64(c.Hidden))
	}
	a.Input, a.Output, a.ResidualOut = uintptr(c.Input)+skip, uintptr(c.Output)+outSkip, uintptr(c.ResidualOut)+skip
	a.Residual, a.Scales, a.Tokens = 0, 0, uint32(rows)
	if c.Residual != nil {
		a.Residual = uintptr(c.Residual) + skip
	}
	if c.Scales != nil {
		a.Scales = uintptr(c.Scales) + uintptr(4*from)
	}
	a.Signature = a.signature(c.Type)
	w.running.Store(true)
	err := k.Launch(w.shape(c, rows), unsafe.Pointer(a), unsafe.Sizeof(*a))
	w.running.Store(false)
	if err != nil {
		return err
	}
	return w.outcome()
}

// shape is that of a launch: a block has a row at a time, and one more keeps the books. All of them are resident at once.
func (w *Workspace) shape(c *NormCall, rows uint64) device.Launch {
	l := device.Launch{Grid: 1, Block: 1, Stream: c.Stream, Overlap: true}
	if w.host {
		return l
	}
	const warp = 32
	vectors := (c.Hidden*c.Type.Size()/16 + warp - 1) / warp * warp
	blocks := uint64(max(2, w.comm.Device().Info().SMs)) - 1
	l.Grid, l.Block = uint32(min(rows, blocks))+1, threadsOf(&w.code, vectors)
	return l
}

// outcome is how a launch on the host has ended.
func (w *Workspace) outcome() error {
	if !w.host {
		return nil
	}
	s := (*normState)(at(w.private.Addr()))
	if s.Apart != 0 {
		err := &framework.Error{Op: "all_reduce_norm", Peer: int(s.Apart) - 1, Err: fmt.Errorf(
			"%w: it has begun a call with another type, other sizes or another norm than rank %d", framework.ErrInvalid, w.comm.Rank())}
		w.comm.Abort(err)
		return err
	}
	if s.Left == 0 {
		return nil
	}
	if err := w.cause(); err != nil {
		return fmt.Errorf("all_reduce_norm: %w", err)
	}
	return fmt.Errorf("%w: all_reduce_norm: a launch was left before its end", framework.ErrPeer)
}

// causePatience is how long a launch that was left waits to learn why.
const causePatience = time.Second

func (w *Workspace) cause() error {
	if err := w.comm.Check(); err != nil {
		return err
	}
	select {
	case <-w.comm.Done():
	case <-time.After(causePatience):
	}
	return w.comm.Check()
}

// Types are those that operators of this package take.
func Types() []kernel.DataType {
	return []kernel.DataType{kernel.Float32, kernel.Float16, kernel.BFloat16}
}
