package moe

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

var operations = [2]string{"dispatch", "combine"}

// Dispatch sends the rows of tokens to the ranks of their experts. On the host it returns when this rank is done; on a GPU the kernel is on
// the stream then.
func (b *Buffer) Dispatch(c *DispatchCall) error {
	if err := c.check(b); err != nil {
		return err
	}
	b.mu.Lock()
	defer b.mu.Unlock()
	if err := b.open(operations[dispatching]); err != nil {
		return err
	}
	if b.twin != nil {
		return b.onHost(func() error { return b.twin.dispatch(c) })
	}
	b.sizesOf(c.Tokens, c.Hidden, c.TopK, c.slots(b), c.Index64)
	a := &b.args
	a.RowScales = uint32(c.rowScales())
	a.Input, a.Scales, a.Indices, a.Factors = uintptr(c.Input), uintptr(c.Scales), uintptr(c.Indices), uintptr(c.Weights)
	a.Output, a.OutputScales, a.Sources, a.Ranges = uintptr(c.Output), uintptr(c.OutputScales), uintptr(c.Sources), uintptr(c.Ranges)
	a.Received, a.Statistics, a.RowsOfTokens = uintptr(c.Received), uintptr(c.Statistics), uintptr(c.Handle)
	units := c.Hidden * 2 / 16
	if c.Format != BFloat16 {
		units /= 2
	}
	a.Flags |= flagIf(castRows, c.Format == CastE4M3) | flagIf(bytesSent, c.Format == GivenE4M3) | flagIf(roundScale, c.RoundScale) |
		flagIf(exponents, c.Exponents) | flagIf(weighted, c.Weights != nil)
	return b.call(dispatching, c.Phase, &c.Ticket, units, c.Stream)
}

// Combine sends the weighted sums of rows of experts to the ranks of their tokens, and adds them up.
func (b *Buffer) Combine(c *CombineCall) error {
	if err := c.check(b); err != nil {
		return err
	}
	b.mu.Lock()
	defer b.mu.Unlock()
	if err := b.open(operations[combining]); err != nil {
		return err
	}
	if b.twin != nil {
		return b.onHost(func() error { return b.twin.combine(c) })
	}
	b.sizesOf(c.Tokens, c.Hidden, c.TopK, b.slots(c.Slots), c.Index64)
	a := &b.args
	a.RowScales = 0
	a.Input, a.Scales, a.Indices, a.Factors = uintptr(c.Input), 0, uintptr(c.Indices), uintptr(c.Weights)
	a.Output, a.OutputScales, a.Sources, a.Ranges = uintptr(c.Output), 0, 0, 0
	a.Received, a.Statistics, a.RowsOfTokens = 0, 0, uintptr(c.Handle)
	a.Flags |= flagIf(weighted, c.Weighted)
	return b.call(combining, c.Phase, &c.Ticket, c.Hidden*2/16, c.Stream)
}

func flagIf(flag uint32, is bool) uint32 {
	if is {
		return flag
	}
	return 0
}

func (b *Buffer) sizesOf(tokens, hidden, topK, slots int, wide bool) {
	a := &b.args
	a.Tokens, a.Hidden, a.TopK, a.Slots = uint32(tokens), uint32(hidden), uint32(topK), uint32(slots)
	a.Flags = flagIf(index64, wide)
}

// open says why no calls can be made.
func (b *Buffer) open(op string) error {
	if b.closed {
		return fmt.Errorf("%w: %s: the buffer was closed", framework.ErrClosed, op)
	}
	return b.comm.Check()
}

// onHost makes a call of the twin, which ends with it. An error that ends the twin ends this communicator.
func (b *Buffer) onHost(call func() error) error {
	if !b.running.Begin() {
		return b.interrupt()
	}
	err := call()
	b.running.End()
	if err != nil && b.twin.comm.Check() != nil {
		b.comm.Abort(err)
	}
	return err
}

// call makes a launch.
func (b *Buffer) call(kind int, phase Phase, ticket *uint64, units int, s device.Stream) error {
	op := operations[kind]
	a := &b.args
	if err := b.fits(kind, phase, *ticket); err != nil {
		return err
	}
	captured, err := b.recorded(phase, s)
	if err != nil {
		return err
	}
	a.Signature = a.signature(kind)
	a.Flags |= flagIf(sendPhase, phase != Receive) | flagIf(receivePhase, phase != Send)
	k, err := b.code[kind].Load(b.comm, kernel.BFloat16)
	if err != nil {
		return err
	}
	marks := false
	if !b.host {
		if marks, err = b.order.Follow(b.comm.Device(), s); err != nil {
			return err
		}
	}
	launch := func() error {
		l := device.Launch{Grid: 1, Block: 1}
		if !b.host {
			l = a.shape(kind, units, max(1, b.comm.Device().Info().SMs))
		}
		l.Stream, l.Overlap, b.used = s, true, true
		if err := k.Launch(l, unsafe.Pointer(a), unsafe.Sizeof(*a)); err != nil {
			return err
		}
		return b.outcome(op)
	}
	if !b.running.Begin() {
		return b.interrupt()
	}
	if b.net == nil {
		err = launch()
	} else {
		flags := a.Flags &^ (sendPhase | receivePhase)
		err = b.carry(kind, phase, *ticket, func(phase uint32) error {
			a.Flags = flags | phase
			return launch()
		})
	}
	b.running.End()
	if err == nil {
		*ticket = b.note(kind, phase, *ticket, captured)
	}
	if marks {
		err = errors.Join(err, b.order.Record())
	}
	return err
}

// signature is a hash of what all ranks must have in common: the kernel compares it.
func (a *moeArgs) signature(kind int) uint32 {
	return ownkernel.Signature(uint32(kind), a.Hidden, a.Flags&^index64, a.RowScales, a.Experts, a.MostTokens)
}

// few are the tokens up to which small blocks are faster.
const few = 16

// shape is that of a launch, and what its blocks do. Those that send come first, and wait for none of this launch; others receive. So a launch ends
// with any number of blocks at once, and kernels of other streams may have the other places of the GPU. Blocks that first send and then receive
// would be fewer, but keep their places while they wait: blocks behind them, for which other ranks wait, would not begin.
func (a *moeArgs) shape(kind, units, sms int) (l device.Launch) {
	a.HeadersBy, a.Counters, a.Senders, a.Collectors = 0, 0, 0, 0
	const warp = 32
	threads := 2 * warp
	if int(a.Tokens) > few {
		threads = 4 * warp
	}
	most := sms * 1024 / threads
	rows := max(1, int(a.Tokens)) * ((units + threads - 1) / threads)
	all := rows * int(a.Ranks)
	l.Block = uint32(threads)
	whole := a.Flags&sendPhase != 0 && a.Flags&receivePhase != 0
	var sending, receiving uint32
	if a.Flags&sendPhase != 0 {
		switch {
		case kind == dispatching:
			a.HeadersBy, a.Counters, a.Senders = min(a.Tokens, uint32(sms)), (a.Local*a.Ranks+expertsOfBlock-1)/expertsOfBlock, uint32(min(rows, most))
		case whole: // this rank adds its own rows up where it receives those of others
			a.Senders = uint32(min(all-rows, most))
		default:
			a.Senders = uint32(min(all, most))
		}
		if kind == combining && a.Flags&weighted == 0 {
			a.HeadersBy = min((a.Tokens*a.TopK+uint32(threads)-1)/uint32(threads), uint32(sms))
		}
		sending = 1 + a.HeadersBy + a.Counters + a.Senders
	}
	if a.Flags&receivePhase != 0 {
		a.Collectors = uint32(min(rows, most))
		if kind == dispatching {
			a.Collectors = uint32(min(all, most))
		}
		receiving = 1 + a.Collectors
	}
	l.Grid = sending + receiving
	return l
}

// outcome is how a launch on the host has ended.
func (b *Buffer) outcome(op string) error {
	if !b.host {
		return nil
	}
	s := (*moeState)(ownmemory.At(b.args.State))
	var err error
	switch {
	case s.Left == 0:
		return nil
	case s.Apart != 0:
		return ownkernel.Apart(b.comm, op, int(s.Apart)-1, otherCall)
	case s.Trouble == noExpert:
		err = invalid(op, "token %d of rank %d has expert %d: expected -1 to %d", s.Place, b.comm.Rank(), int32(s.Seen), b.options.Experts-1)
	case s.Trouble == overflow:
		err = invalid(op, "expert %d, of rank %d, has room for %d rows, and was sent %d at least: expected more slots", s.Place, b.comm.Rank(), b.args.Slots, s.Seen)
	}
	if err != nil {
		b.comm.Abort(err)
		return err
	}
	return ownkernel.Left(b.comm, op)
}

// quiet waits until earlier launches, on a GPU, no longer use memory that is to be freed.
func (b *Buffer) quiet() error {
	if b.host || !b.used {
		return nil
	}
	return b.order.Drain(b.comm.Device(), func() {
		b.comm.Abort(fmt.Errorf("%w: rank %d closes a buffer while a call of it runs", framework.ErrClosed, b.comm.Rank()))
	})
}
