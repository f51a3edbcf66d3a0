// Package exec runs execution plans: it is the counterpart of MSCCL++'s executor. One kernel interprets the operations of
// any plan; the host resolves a plan's indirections once, and sets up the channels and the memory that it names.
package exec

import (
	"context"
	"crypto/sha256"
	"encoding/binary"
	"errors"
	"fmt"
	"slices"
	"sync"

	"github.com/mscclpp-go/mscclpp/framework"
	"github.com/mscclpp-go/mscclpp/framework/comm"
	"github.com/mscclpp-go/mscclpp/framework/device"
	"github.com/mscclpp-go/mscclpp/framework/kernel"
	"github.com/mscclpp-go/mscclpp/internal/ownkernel"
	"github.com/mscclpp-go/mscclpp/plan/schema"
	"github.com/mscclpp-go/mscclpp/plan/verify"
)

// New prepares a plan. It is collective: all ranks of the communicator pass the same plan.
func New(ctx context.Context, c *comm.Communicator, p *schema.Plan) (*Executor, error) {
	if err := p.Check(); err != nil {
		return nil, err
	}
	e := &Executor{setting: setting{comm: c, plan: p}, sum: p.Sum(), host: c.Device().Info().Device == framework.Host}
	var mistake error
	if len(p.GPUs) != c.Size() {
		mistake = invalid("plan %s is for %d ranks: expected one for %d", p.Name, len(p.GPUs), c.Size())
	}
	if err := e.agree(ctx, mistake); err != nil {
		return nil, err
	}
	u, all, err := inspect(p)
	if err != nil {
		return nil, err
	}
	e.use, e.tables = u, all[c.Rank()]
	if err := e.find(); err != nil {
		return nil, err
	}
	if e.reach, err = newReach(ctx, c, p, &e.use); err != nil {
		return nil, err
	}
	if e.switched, err = e.hasSwitch(ctx, all); err != nil {
		return nil, errors.Join(err, e.reach.close())
	}
	e.largest = e.tables.largest()
	e.totals = sync.OnceValues(func() (map[*schema.Op]bool, error) { return verify.Totals(p) })
	e.list()
	return e, nil
}

// agree compares the plans of all ranks.
func (e *Executor) agree(ctx context.Context, mistake error) error {
	all, err := e.comm.AllGather(ctx, e.sum[:])
	if err != nil {
		return err
	}
	if mistake != nil {
		return mistake
	}
	for r, theirs := range all {
		if string(theirs) != string(e.sum[:]) {
			return &framework.Error{Op: "compare plans", Peer: r, Err: invalid("its plan is not plan %s of rank %d", e.plan.Name, e.comm.Rank())}
		}
	}
	return nil
}

// find looks for the kernel.
func (e *Executor) find() error {
	if n, most := len(e.tables.blocks), e.comm.Device().Info().SMs; !e.host && most > 0 && n > most {
		return fmt.Errorf("%w: plan %s has %d thread blocks: expected at most %d, which the device runs at once", framework.ErrUnsupported, e.plan.Name, n, most)
	}
	e.code.name(e.use.kernel())
	return e.code.Find(e.comm)
}

// Plan returns the plan.
func (e *Executor) Plan() *schema.Plan { return e.plan }

// check says what is wrong with a call.
func (e *Executor) check(c *Call) (chunk uint64, err error) {
	switch {
	case e.closed:
		return 0, fmt.Errorf("%w: plan %s: the executor was closed", framework.ErrClosed, e.plan.Name)
	case c.Op > kernel.Avg:
		return 0, invalid("plan %s: %v: expected sum, prod, min, max or avg", e.plan.Name, c.Op)
	case c.Op == kernel.Avg:
		if err := e.Averages(); err != nil {
			return 0, err
		}
	}
	if err := e.accepts(c.Type, c.Packet); err != nil {
		return 0, err
	}
	if chunk, err = chunkOf(e.plan, e.comm.Rank(), c.InputBytes, c.OutputBytes); err != nil {
		return 0, err
	}
	if c.Input == nil && c.InputBytes != 0 || c.Output == nil && c.OutputBytes != 0 {
		return 0, invalid("plan %s: no buffer was given", e.plan.Name)
	}
	return chunk, e.comm.Check()
}

// Fits says why calls with buffers of so many bytes cannot be made, or nil. It may be called at any time.
func (e *Executor) Fits(inBytes, outBytes uint64, t kernel.DataType, p Packet) error {
	if err := e.accepts(t, p); err != nil {
		return err
	}
	_, err := chunkOf(e.plan, e.comm.Rank(), inBytes, outBytes)
	return err
}

// Fits says why a rank of a plan cannot be called with buffers of so many bytes, or nil.
func Fits(p *schema.Plan, rank int, inBytes, outBytes uint64) error {
	_, err := chunkOf(p, rank, inBytes, outBytes)
	return err
}

// accepts says why a plan does not work with a type and a format of packets.
func (e *Executor) accepts(t kernel.DataType, p Packet) error {
	switch {
	case p != LL8 && p != LL16:
		return invalid("plan %s: packets of %d bytes: expected %d or %d", e.plan.Name, p, LL8, LL16)
	case t >= kernel.DataTypes:
		return invalid("plan %s: element type %d: expected 0 to %d", e.plan.Name, uint32(t), kernel.DataTypes-1)
	case e.plan.Protocol == schema.LL && e.plan.Alignment%int(p/2) != 0:
		return invalid("plan %s: granules of %d bytes: expected a multiple of the %d bytes in a packet", e.plan.Name, e.plan.Alignment, p/2)
	case e.plan.Alignment%t.Size() != 0:
		return invalid("plan %s: granules of %d bytes: expected whole elements of %v", e.plan.Name, e.plan.Alignment, t)
	}
	return nil
}

// Execute runs the plan. All ranks call it in the same order. On the host it returns when this rank is done; on a GPU
// the kernel is on the stream then.
func (e *Executor) Execute(c *Call) error {
	e.mu.Lock()
	defer e.mu.Unlock()
	if c.Packet == 0 {
		c.Packet = LL16
	}
	if e.repeats(c) {
		if err := e.begin(c.Stream); err != nil {
			return err
		}
	} else if err := e.ready(c); err != nil || e.prepared.arena == nil {
		return err
	}
	marks, err := e.follow(c.Stream)
	if err != nil {
		return err
	}
	err = e.launch(c, e.prepared.kernel, e.prepared.arena, &e.place)
	if marks {
		err = errors.Join(err, e.order.Record())
	}
	return err
}

// ready makes a call from its arguments; there is none if it has nothing to do.
func (e *Executor) ready(c *Call) error {
	e.prepared = prepared{}
	exchanges := e.comm.Exchanges()
	chunk, err := e.check(c)
	if err != nil || chunk == 0 {
		return err
	}
	k, err := e.code.Load(e.comm, c.Type)
	if err != nil {
		return err
	}
	if err := e.begin(c.Stream); err != nil {
		return err
	}
	if c.Op == kernel.Avg {
		if err := e.divide(); err != nil {
			return err
		}
	}
	p := &e.place
	a, err := e.prepare(c, chunk, p)
	if err != nil {
		return err
	}
	x := &a.args
	x.Chunk, x.ScratchChunk, x.Packet, x.Op = chunk, min(chunk, a.scratchChunk), uint32(c.Packet), uint32(c.Op)
	x.Input, x.Output, x.Signature = uintptr(p.in), uintptr(p.out), e.signature(c, &p.found)
	x.Windows, x.Resolved, x.InputOffset, x.OutputOffset = p.windows, uintptr(a.resolved), p.found[0].from, p.found[1].from
	e.prepared = prepared{arena: a, kernel: k, of: argumentsOf(c), again: (!e.use.apart || p.windows != 0) && e.piece(chunk) == 0, exchanges: exchanges}
	return nil
}

// launch enqueues a call with the copies before and after it, or performs it, on the host.
func (e *Executor) launch(c *Call, k device.Kernel, a *arena, p *placed) error {
	if err := e.stage(c, &p.before); err != nil {
		return err
	}
	e.enqueued = true
	if len(e.tables.blocks) == 0 { // a plan in place may have nothing to do, and yet its result is to be elsewhere
		return e.stage(c, &p.after)
	}
	l := device.Launch{Overlap: uint32(len(e.tables.blocks)) <= e.code.most, Grid: uint32(len(e.tables.blocks)), Block: e.code.threads(e.plan.ThreadsPerBlock), Stream: c.Stream}
	if e.use.chunks {
		l.Block = e.largest.threads(l.Block, a.args.Chunk)
	}
	if !e.running.Begin() {
		return e.interrupt()
	}
	err := e.passes(k, l, a)
	e.running.End()
	if err != nil {
		return err
	}
	if err := e.outcome(a); err != nil {
		return err
	}
	return e.stage(c, &p.after)
}

// prepare finds the memory of a call, and the place of its buffers.
func (e *Executor) prepare(c *Call, chunk uint64, p *placed) (a *arena, err error) {
	b := buffersOf(&e.plan.GPUs[e.comm.Rank()], chunk)
	*p = placed{}
	direct := e.use.apart && e.inPlace(c, b, p)
	if a, err = e.arena(chunk, e.use.apart && !direct); err != nil {
		return nil, err
	}
	if direct {
		p.windows, err = e.window(&p.found)
		return a, err
	}
	*p = placed{}
	return a, e.put(c, a, b, p)
}

// of is what all ranks pass alike.
type of struct {
	in, out uint64
	dtype   kernel.DataType
	op      kernel.Op
	packet  Packet
	windows [2]uint64
}

// signature tells calls of one plan apart. Programs repeat themselves: it is computed when something has changed.
func (e *Executor) signature(c *Call, found *[2]located) uint64 {
	now := of{c.InputBytes, c.OutputBytes, c.Type, c.Op, c.Packet, [2]uint64{found[0].id(), found[1].id()}}
	if e.signed != 0 && now == e.last {
		return e.signed
	}
	b := slices.Clone(e.sum[:])
	for _, x := range []uint64{now.in, now.out, uint64(now.dtype), uint64(now.op), uint64(now.packet), now.windows[0], now.windows[1]} {
		b = binary.LittleEndian.AppendUint64(b, x)
	}
	sum := sha256.Sum256(b)
	e.last, e.signed = now, binary.LittleEndian.Uint64(sum[:])
	return e.signed
}

// outcome is how a launch on the host has ended.
func (e *Executor) outcome(a *arena) error {
	if !e.host {
		return nil
	}
	s := a.state()
	if s.Apart != 0 {
		return ownkernel.Apart(e.comm, "execute plan "+e.plan.Name, int(s.Apart)-1, "other sizes, type, reduction or packets")
	}
	if s.Left == 0 {
		return nil
	}
	return ownkernel.Left(e.comm, "plan "+e.plan.Name)
}

// interrupt ends a call in progress.
func (e *Executor) interrupt() error {
	err := fmt.Errorf("%w: rank %d closed plan %s while it ran", framework.ErrClosed, e.comm.Rank(), e.plan.Name)
	e.comm.Abort(err)
	return err
}

// Close releases what calls have set up. A call in progress, which waits for peers, ends with ErrClosed, and with it the
// communicator. Otherwise Close is local.
func (e *Executor) Close() error {
	if e.running.Close() {
		_ = e.interrupt()
	}
	e.mu.Lock()
	defer e.mu.Unlock()
	if e.closed {
		return nil
	}
	e.closed = true
	e.unlist()
	errs := []error{e.quiet()}
	for _, a := range e.arenas {
		errs = append(errs, a.close())
	}
	e.arenas, e.prepared = nil, prepared{}
	for _, w := range e.windows {
		errs = append(errs, w.memory.Close())
	}
	e.windows = nil
	if e.spare != nil {
		errs = append(errs, e.spare.Close())
	}
	errs = append(errs, e.closeKept(), e.order.Close())
	return errors.Join(append(errs, e.code.Close(), e.reach.close())...)
}
