package comm

import (
	"context"
	"fmt"
	"math"
	"sync"
	"sync/atomic"
	"time"

	"github.com/mscclpp-go/mscclpp/framework"
	"github.com/mscclpp-go/mscclpp/framework/kernel"
	"github.com/mscclpp-go/mscclpp/framework/ring"
)

// makeHostEnd makes what the host pushes to: on a device kernels have a ring to
// themselves, and the host gets one when it first wants to push.
func (ch *PortChannel) makeHostEnd() (*portEnd, error) {
	ch.making.Lock()
	defer ch.making.Unlock()
	if e := ch.host.Load(); e != nil {
		return e, nil
	}
	ctx, cancel := ch.comm.bound(ch.life)
	defer cancel()
	ctx, stop := context.WithTimeout(ctx, closeTimeout)
	defer stop()
	e, err := ch.comm.openEnd(ctx, ch.link.transport, fromHost, ch.binding)
	if err != nil {
		return nil, ch.comm.blame(opPortChannel, ch.pair.peer, err)
	}
	ch.host.Store(e)
	return e, nil
}

// enter begins a method that touches the ring or the counters; the caller leaves
// with ch.use.RUnlock.
func (ch *PortChannel) enter(op string) error {
	ch.use.RLock()
	if ch.ended() {
		return ch.turnAway(op)
	}
	return nil
}

func (ch *PortChannel) ended() bool { return ch.closing.Load() || ch.comm.over.Load() }

// turnAway ends a method that has just begun.
func (ch *PortChannel) turnAway(op string) error {
	defer ch.use.RUnlock()
	if ch.closing.Load() {
		return ch.closedError(op)
	}
	return ch.comm.Err()
}

// request begins a method that pushes, and returns where. The caller leaves with
// ch.use.RUnlock.
func (ch *PortChannel) request(op string, kind, dst, src, bytes uint64) (*portEnd, error) {
	ch.use.RLock() // as enter, whose call would cost as much
	if ch.ended() {
		return nil, ch.turnAway(op)
	}
	var err error
	if kind&kernel.TriggerData != 0 {
		err = ch.inRange(dst, src, bytes)
	}
	e := ch.host.Load()
	if e == nil && err == nil {
		e, err = ch.makeHostEnd()
	}
	if err != nil {
		ch.use.RUnlock()
	}
	return e, err
}

// staged reports whether what a request reads goes through the stage.
func (ch *PortChannel) staged(kind uint64) bool {
	return ch.stage != nil && kind&kernel.TriggerData != 0
}

func (ch *PortChannel) closedError(op string) error {
	return ch.comm.blame(op, ch.pair.peer, framework.ErrClosed)
}

// Put asks the proxy to copy bytes from the source memory into the peer's memory.
// Offsets and sizes are in bytes. It returns when the request is queued, and waits
// while the queue is full; Flush tells when the source may be reused.
func (ch *PortChannel) Put(dstOffset, srcOffset, bytes uint64) error {
	return ch.push("put", kernel.TriggerData, dstOffset, srcOffset, bytes)
}

// Signal raises the peer's semaphore after all earlier puts of this channel. A peer that has
// closed its communicator has none, and leaves in good order: then nothing is done.
func (ch *PortChannel) Signal() error { return ch.push("signal", kernel.TriggerSignal, 0, 0, 0) }

// SignalLater is Signal that may be held back, for about a millisecond, until the next
// request. Where each request would be a message of its own, both then travel together.
func (ch *PortChannel) SignalLater() error {
	e := ch.host.Load()
	if e == nil || e.service.queue == nil {
		return ch.Signal()
	}
	if err := ch.enter("signal"); err != nil {
		return err
	}
	defer ch.use.RUnlock()
	_, err := ch.pushStream(ch.life, e, "signal", ch.trigger(e, kernel.TriggerSignal, 0, 0, 0), false)
	return err
}

// PutWithSignal is Put followed by Signal, in one request.
func (ch *PortChannel) PutWithSignal(dstOffset, srcOffset, bytes uint64) error {
	return ch.push("put", kernel.TriggerData|kernel.TriggerSignal, dstOffset, srcOffset, bytes)
}

func (ch *PortChannel) push(op string, kind, dst, src, bytes uint64) error {
	e, err := ch.request(op, kind, dst, src, bytes)
	if err != nil {
		return err
	}
	defer ch.use.RUnlock()
	if kind == kernel.TriggerSignal && ch.Parted() {
		return nil
	}
	if ch.staged(kind) {
		return ch.pushStaged(ch.life, e, op, kind, dst, src, bytes)
	}
	t := ch.trigger(e, kind, dst, src, bytes)
	if taken, _ := e.service.ring.Now(t); taken {
		return nil
	}
	_, err = ch.pushAt(ch.life, e, op, t)
	return err
}

func (ch *PortChannel) trigger(e *portEnd, kind, dst, src, bytes uint64) kernel.Trigger {
	return kernel.Trigger{
		Fst: bytes | src<<32,
		Snd: dst | uint64(e.slots.src)<<32 | uint64(e.slots.dst)<<41 | kind<<50 | uint64(e.slots.semaphore)<<53,
	}
}

// pushAt queues a trigger and returns its position.
func (ch *PortChannel) pushAt(ctx context.Context, e *portEnd, op string, t kernel.Trigger) (uint64, error) {
	if e.service.queue != nil {
		return ch.pushStream(ctx, e, op, t, true)
	}
	pos, err := e.service.ring.PushContext(ctx, t)
	if err != nil {
		return 0, ch.refused(op, err)
	}
	return pos, nil
}

// refused is the error of a ring, with its cause if that is known here.
func (ch *PortChannel) refused(op string, err error) error {
	for _, e := range ch.ends() {
		if e != nil && e.service.ring.Err() != nil {
			e.service.settle(ch.comm)
		}
	}
	if cause := ch.comm.Err(); cause != nil {
		return cause
	}
	if ch.life.Err() != nil {
		return ch.closedError(op)
	}
	return ch.comm.blame(op, ch.pair.peer, err)
}

// inRange refuses what a trigger cannot express and what would miss the memory.
func (ch *PortChannel) inRange(dst, src, bytes uint64) error {
	switch {
	case bytes > math.MaxUint32 || dst > math.MaxUint32 || src > math.MaxUint32:
		return ch.comm.blame("put", ch.pair.peer, fmt.Errorf("%w: offsets %d, %d and size %d: expected less than 4 GiB each", framework.ErrInvalid, dst, src, bytes))
	case src+bytes > ch.src.Bytes():
		return ch.comm.blame("put", ch.pair.peer, fmt.Errorf("%w: source range [%d, %d) of %d bytes", framework.ErrInvalid, src, src+bytes, ch.src.Bytes()))
	case dst+bytes > ch.peerLen:
		return ch.comm.blame("put", ch.pair.peer, fmt.Errorf("%w: destination range [%d, %d) of %d bytes", framework.ErrInvalid, dst, dst+bytes, ch.peerLen))
	}
	return nil
}

// Flush waits until the data of all earlier puts of this channel is visible to the
// peer, and their sources may be reused.
func (ch *PortChannel) Flush(ctx context.Context) error {
	return ch.complete(ctx, kernel.TriggerFlush, 0, 0, 0)
}

// SignalAndFlush is Signal followed by Flush, in one request.
func (ch *PortChannel) SignalAndFlush(ctx context.Context) error {
	return ch.complete(ctx, kernel.TriggerSignal|kernel.TriggerFlush, 0, 0, 0)
}

// PutWithSignalAndFlush is PutWithSignal followed by Flush, in one request.
func (ch *PortChannel) PutWithSignalAndFlush(ctx context.Context, dstOffset, srcOffset, bytes uint64) error {
	return ch.complete(ctx, kernel.TriggerData|kernel.TriggerSignal|kernel.TriggerFlush, dstOffset, srcOffset, bytes)
}

// complete asks for something that ends with a flush, and waits for it.
func (ch *PortChannel) complete(ctx context.Context, kind, dst, src, bytes uint64) error {
	e, err := ch.request("flush", kind, dst, src, bytes)
	if err != nil {
		return err
	}
	if e == ch.kernels && !ch.staged(kind) { // else what kernels have pushed, or the copy, comes before
		taken, done := e.service.ring.Now(ch.trigger(e, kind, dst, src, bytes))
		if done {
			ch.use.RUnlock()
			return nil
		}
		if taken {
			kind, dst, src, bytes = kernel.TriggerFlush, 0, 0, 0
		}
	}
	return ch.completeLater(ctx, e, kind, dst, src, bytes)
}

// completeLater is complete of what cannot be done at once.
func (ch *PortChannel) completeLater(ctx context.Context, e *portEnd, kind, dst, src, bytes uint64) error {
	defer ch.use.RUnlock()
	if ch.staged(kind) {
		if err := ch.pushStaged(ctx, e, "put", kind&^kernel.TriggerFlush, dst, src, bytes); err != nil {
			return err
		}
		kind, dst, src, bytes = kernel.TriggerFlush, 0, 0, 0
	}
	return ch.flushed(ctx, e, ch.trigger(e, kind, dst, src, bytes))
}

// flushed pushes a trigger that ends with a flush, and waits for it.
func (ch *PortChannel) flushed(ctx context.Context, e *portEnd, t kernel.Trigger) error {
	start := time.Now()
	both := eithers.Get().(*either)
	*both = either{ch.life, ctx}
	pos, err := ch.flushAt(both, e, t)
	*both = either{}
	eithers.Put(both)
	if err != nil {
		return ch.orLate(ctx, "flush", start, err)
	}
	r := e.service.ring
	if e.service.queue != nil {
		return ch.awaitStream(ctx, "flush", e, r.FlushedAt(e.slots.semaphore), pos+1)
	}
	return ch.await(ctx, "flush", func() bool { return r.Flushed(e.slots.semaphore, pos) })
}

// flushAt queues a request that ends with a flush. What kernels have pushed to a ring of
// their own is taken before, so that it is flushed as well.
func (ch *PortChannel) flushAt(ctx context.Context, e *portEnd, t kernel.Trigger) (uint64, error) {
	if k := ch.kernels.service; k != e.service {
		if err := k.ring.WaitTaken(ctx); err != nil {
			return 0, ch.refused("flush", err)
		}
	}
	return ch.pushAt(ctx, e, "flush", t)
}

// either is over when one of two contexts is. A ring asks for no more, and only when
// it is full.
type either struct {
	context.Context
	other context.Context
}

func (e *either) Err() error {
	if err := e.Context.Err(); err != nil {
		return err
	}
	return e.other.Err()
}

// eithers keeps Flush from allocating.
var eithers = sync.Pool{New: func() any { return new(either) }}

// Wait waits for the next signal of the peer. It consumes one signal, as wait in a
// kernel does; host and kernels must not wait on one channel at the same time. On a
// device each look at the counters is a copy, so there Wait is meant for tests and
// set-up.
func (ch *PortChannel) Wait(ctx context.Context) error {
	if err := ch.enter("wait"); err != nil {
		return err
	}
	defer ch.use.RUnlock()
	// One at a time: who gives up must not take the number of another. A channel to hold the
	// turn would cost as much as the rest of a message here.
	first := func() bool { return ch.waiting.CompareAndSwap(false, true) }
	if err := ch.await(ctx, "wait", first); err != nil {
		return err
	}
	defer ch.waiting.Store(false)
	if ch.comm.control.hostDev != nil {
		return ch.waitOnDevice(ctx)
	}
	expected := (*uint64)(pointer(ch.handle.Semaphore.Expected))
	inbound := (*uint64)(pointer(ch.handle.Semaphore.Inbound))
	next := atomic.AddUint64(expected, 1)
	err := ch.awaitSignal(ctx, inbound, next)
	if err != nil {
		atomic.StoreUint64(expected, next-1) // the signal is still to be waited for
	}
	return err
}

// waitOnDevice is Wait for counters in the memory of a device.
func (ch *PortChannel) waitOnDevice(ctx context.Context) error {
	q, h := &ch.comm.control.engine, &ch.handle.Semaphore
	var seen, expected uint64
	var failed error
	err := ch.await(ctx, "wait", func() bool {
		seen, expected, failed = q.look(ctx, ch.inbound, h.Expected)
		return failed != nil || seen > expected
	})
	if err != nil {
		return err
	}
	if failed == nil {
		failed = q.store(ctx, h.Expected, expected+1)
	}
	switch {
	case failed == nil:
		return nil
	case ctx.Err() != nil:
		return ch.late(ctx, "wait", 0)
	}
	return ch.comm.blame("wait", ch.pair.peer, failed)
}

// await polls, since ready has no way to wake the host.
func (ch *PortChannel) await(ctx context.Context, op string, ready func() bool) error {
	if ready() {
		return nil
	}
	const looks = 64 // between two rests
	start, pace := time.Now(), ch.pace()
	for {
		soon := ch.help()
		for n := range looks {
			if ready() {
				pace.End()
				return nil
			}
			if soon && n%8 == 7 {
				soon = ch.help()
			}
		}
		if err := ch.hopeless(ctx, op, start); err != nil {
			if ready() { // it came true in between
				return nil
			}
			return err
		}
		pace.Rest()
	}
}

// pace is that of the ring that leads to the peer. On a device looks take long by themselves.
func (ch *PortChannel) pace() ring.Pace {
	if ch.comm.control.hostDev != nil {
		return ring.Begin(nil, false)
	}
	for _, e := range ch.ends() {
		if e != nil {
			return e.service.ring.Begin()
		}
	}
	return ring.Begin(nil, false)
}

// help does the work of a proxy in this process: what is waited for may depend on it.
func (ch *PortChannel) help() (soon bool) {
	for _, e := range ch.ends() {
		if e != nil && e.service.ring.Help() {
			soon = true
		}
	}
	return soon
}

// hopeless says why waiting on is in vain.
func (ch *PortChannel) hopeless(ctx context.Context, op string, start time.Time) error {
	if err := ch.comm.Err(); err != nil {
		return err
	}
	if ch.life.Err() != nil {
		return ch.closedError(op)
	}
	for _, e := range ch.ends() {
		if e == nil {
			continue
		}
		if err := e.service.ring.Err(); err != nil {
			return ch.refused(op, err)
		}
	}
	if ctx.Err() != nil {
		return ch.late(ctx, op, time.Since(start))
	}
	return ch.deserted(op, start)
}

// orLate is err, unless there is no other reason for it than that the caller's time is up.
func (ch *PortChannel) orLate(ctx context.Context, op string, start time.Time, err error) error {
	if ctx.Err() != nil && ch.life.Err() == nil && ch.comm.Err() == nil {
		return ch.late(ctx, op, time.Since(start))
	}
	return err
}

func (ch *PortChannel) late(ctx context.Context, op string, waited time.Duration) error {
	return ch.comm.blame(op, ch.pair.peer, fmt.Errorf("%w: no answer within %v: %w", framework.ErrPeer, waited.Round(time.Millisecond), ctx.Err()))
}
