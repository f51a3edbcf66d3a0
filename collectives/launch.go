package collectives

import (
	"context"
	"errors"
	"fmt"
	"github.com/mscclpp-go/mscclpp/collectives/internal/kernelargs"
	"math"
	"time"
	"unsafe"

	"github.com/mscclpp-go/mscclpp/framework"
	"github.com/mscclpp-go/mscclpp/framework/comm"
	"github.com/mscclpp-go/mscclpp/framework/device"
	"github.com/mscclpp-go/mscclpp/framework/kernel"
)

// prepareTimeout bounds what the first use of an algorithm may take: fetching and
// loading images.
const prepareTimeout = 30 * time.Second

var defaults CallOptions

// job is one call on its way to the device.
type job struct {
	collective    Collective
	input, output unsafe.Pointer
	count         int
	dtype         kernel.DataType
	op            kernel.Op
	root          int
	inCount       uint64 // elements of the two buffers
	outCount      uint64
}

// run validates a call, chooses its algorithm and launches. It does not allocate
// once the algorithm was used before.
func (c *Comm) run(j *job, o *CallOptions) error {
	if o == nil {
		o = &defaults
	}
	if !c.progress.enter() {
		return fmt.Errorf("%v: %w", j.collective, errClosed())
	}
	defer c.progress.leave()
	c.mu.Lock()
	err := c.start(j, o)
	c.input, c.output = nil, nil
	c.mu.Unlock()
	if errors.Is(err, errRunOwn) {
		return c.runOwn(j, o)
	}
	if err != nil {
		return fmt.Errorf("%v: %w", j.collective, err)
	}
	return nil
}

func (c *Comm) start(j *job, o *CallOptions) error {
	if err := c.ready(); err != nil {
		return err
	}
	if err := j.check(c.comm.Size()); err != nil {
		return err
	}
	element := uint64(j.dtype.Size())
	if err := j.apart(c.comm.Rank(), element); err != nil {
		return err
	}
	if err := c.decide(o.Stream); err != nil {
		return err
	}
	a := &c.args
	r := &c.request
	*r = Request{
		Collective: j.collective, Bytes: max(j.inCount, j.outCount) * element, Count: uint64(j.count), Type: j.dtype, Op: j.op,
		Root: j.root, Ranks: int(a.Ranks), InPlace: j.inPlace(c.comm.Rank(), element), Device: deviceName(c.host),
		slot: c.near[0].Slot, lineSlot: c.near[1].Slot,
	}
	c.input, c.output = j.input, j.output
	c.locate(j, element)
	alg, l, err := c.choose(r, o.Algorithm)
	if err != nil {
		return err
	}
	if alg.copies {
		if alg, l, err = c.prepared(alg, l, r, o); err != nil {
			return err
		}
	}
	if alg.own != nil {
		return errRunOwn
	}
	if c.tries(alg, o) {
		if err := c.try(); err != nil {
			return err
		}
		return c.start(j, o)
	}
	kernel := alg.loaded[j.dtype]
	if kernel == nil && !alg.copies {
		if err := c.load(alg, j.dtype, o.Stream); err != nil {
			return err
		}
		kernel = alg.loaded[j.dtype]
	}
	a.Memory = alg.memories(c.inID, c.outID)
	a.Input, a.Output = uintptr(j.input), uintptr(j.output)
	a.Count, a.Element = r.Count, uint32(element)
	a.Type, a.Op, a.Root, a.Scale = uint32(j.dtype), uint32(j.op), uint32(j.root), o.Scale
	a.Chunk = chunk(r.Bytes, a.StageSlot)
	s := &a.Signature
	s.Count, s.Collective, s.Algorithm = r.Count, uint32(j.collective), alg.id
	s.Type, s.Op, s.Root = a.Type, a.Op, a.Root
	if a.Check != kernelargs.CheckNever {
		s.Sequence++
		c.watch.enter(s)
	} else if r.Count == 0 && j.collective != Barrier {
		return nil
	}
	l.Stream = o.Stream
	marks, err := c.follow(l.Stream)
	if err != nil {
		return err
	}
	switch {
	case alg.copies:
		err = c.runCopies(alg, j, l)
	case alg.isNear:
		err = c.launchNear(kernel, alg.near, l)
	default:
		if alg.wide() && !c.host {
			a.Lanes = l.Grid // the same on all ranks: tables and caps are
		}
		switch alg.name {
		case shares:
			a.Chunk = c.geometry.PipeChunk(r.Bytes/uint64(a.Ranks), a.Lanes, a.Ranks-1)
		case fetch:
			a.Chunk = min(c.geometry.PipeChunk(r.Bytes, a.Lanes, 1), kernelargs.MostFetched)
		}
		when := kernelargs.ReleaseMet
		if j.collective == Barrier {
			when = kernelargs.ReleaseAtOnce
		}
		next := c.residents.enterAs(&l, when)
		err = c.residents.keep(next, kernel.Launch(l, unsafe.Pointer(a), unsafe.Sizeof(*a)))
		a.Lanes = c.geometry.Lanes
	}
	if marks {
		err = errors.Join(err, c.order.mark.Record(l.Stream))
	}
	c.watch.leave()
	if err != nil {
		return err
	}
	return c.outcome(alg)
}

// follow has a call on a GPU begin behind the one before it.
func (c *Comm) follow(s device.Stream) (marks bool, err error) {
	if c.host {
		return false, nil
	}
	return c.order.follow(c.comm.Device(), s)
}

// ready says why no call can be made any more, or nil.
func (c *Comm) ready() error {
	if c.closed {
		return errClosed()
	}
	if c.refused != nil {
		return c.refused
	}
	if err := c.comm.Check(); err != nil {
		return err
	}
	return c.noted()
}

// outcome is what a launch that has returned, on the host, has to tell.
func (c *Comm) outcome(alg *algorithm) error {
	if !c.host {
		return nil
	}
	if c.args.Check == kernelargs.CheckPublish { // first: the end of others may be news of the same
		if err := c.contradicted(); err != nil {
			c.comm.Abort(err) // ranks that met cannot go back to where they were
			return err
		}
	}
	if err := c.comm.Check(); err != nil {
		return err
	}
	if c.args.Check == kernelargs.CheckCompare && c.found(kernelargs.MismatchOffset) != 0 {
		return c.disagreement(c.args.Signature.Sequence)
	}
	if alg.name == pull {
		return c.pulled()
	}
	if alg.reach == 0 {
		return nil
	}
	if peer := int(c.found(kernelargs.ElsewhereOffset)) - 1; peer >= 0 {
		return misplaced(alg.name, peer)
	}
	return nil
}

func misplaced(op string, peer int) error {
	return &framework.Error{Op: op, Peer: peer,
		Err: fmt.Errorf("%w: its buffers are in other registered memory than those here: expected parts of one exchange, for the algorithm copy at the same offset",
			framework.ErrInvalid)}
}

func (j *job) check(ranks int) error {
	switch {
	case j.count < 0:
		return fmt.Errorf("%w: count %d: expected at least 0", framework.ErrInvalid, j.count)
	case j.dtype >= kernel.DataTypes:
		return fmt.Errorf("%w: %v: no such element type", framework.ErrInvalid, j.dtype)
	case j.op >= kernel.Ops:
		return fmt.Errorf("%w: %v: no such reduction", framework.ErrInvalid, j.op)
	case j.root < 0 || j.root >= ranks:
		return fmt.Errorf("%w: root %d: expected 0 to %d", framework.ErrInvalid, j.root, ranks-1)
	case uint64(j.count) > math.MaxInt64/uint64(ranks)/8:
		return fmt.Errorf("%w: %d elements of %v a rank: too many bytes", framework.ErrInvalid, j.count, j.dtype)
	case j.input == nil && j.inCount > 0 || j.output == nil && j.outCount > 0:
		return fmt.Errorf("%w: a buffer is nil, expected %d elements in and %d out", framework.ErrInvalid, j.inCount, j.outCount)
	}
	return nil
}

func (j *job) inPlace(rank int, element uint64) bool {
	own := uintptr(uint64(j.count) * element * uint64(rank))
	switch j.collective {
	case AllGather:
		return uintptr(j.input) == uintptr(j.output)+own
	case ReduceScatter:
		return uintptr(j.output) == uintptr(j.input)+own
	}
	return j.input == j.output
}

// locate finds the exchanged memory of the buffers, and tells the kernel where that of
// the peers is. It tells the request which of them there are.
func (c *Comm) locate(j *job, element uint64) {
	a, r := &c.args, &c.request
	in, inOffset, inOK := c.comm.Find(uintptr(j.input), j.inCount*element)
	out, outOffset, outOK := c.comm.Find(uintptr(j.output), j.outCount*element)
	// A rank without one of the buffers answers like those that have it.
	if j.collective == Broadcast || j.collective == Reduce && c.comm.Rank() != j.root {
		if j.collective == Broadcast {
			in, inOffset, inOK = nil, 0, false
		} else {
			out, outOffset, outOK = nil, 0, false
		}
	}
	if inOK {
		r.reached |= reachInputs
		if in != c.inSym {
			addresses(in, a.Inputs[:a.Ranks])
			c.inSym = in
		}
	}
	if outOK {
		r.reached |= reachOutputs
		if out != c.outSym {
			addresses(out, a.Outputs[:a.Ranks])
			c.outSym = out
		}
	}
	needed := reaches(zerocopy, j.collective)
	r.Registered = r.reached&needed == needed
	a.InputOffset, a.OutputOffset = inOffset, outOffset
	c.inID, c.outID = memoryID(in, inOK), memoryID(out, outOK)
}

func memoryID(s *comm.Symmetric, ok bool) uint64 {
	if !ok {
		return 0
	}
	return s.ID
}

func addresses(s *comm.Symmetric, to []uintptr) {
	for r := range to {
		to[r] = s.Peer(r)
	}
}

// chunk is the step of chunked algorithms: large enough that waits are rare and
// that what was staged has left the cache of the one who staged it, small enough
// that staging and reading overlap.
func chunk(bytes, slot uint64) uint64 {
	const least = 256 << 10
	return min(slot, max(least, bytes/8/kernelargs.CacheLine*kernelargs.CacheLine))
}

func deviceName(host bool) string {
	if host {
		return "host"
	}
	return "device"
}

// openWindow makes the memory of the switch algorithm. It is collective: all ranks
// come here when they first use that algorithm.
func (c *Comm) openWindow(ctx context.Context) error {
	m, err := c.comm.Alloc(windowBytes)
	if err != nil {
		return err
	}
	w, err := c.comm.SwitchChannel(ctx, m)
	if err != nil {
		m.Close()
		return err
	}
	c.window, c.windowMem = w, m
	c.args.Window = w.Handle()
	return nil
}
