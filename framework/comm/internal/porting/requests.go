package porting

import (
	"context"
	"fmt"
	"math"
	"sync"
	"time"

	"github.com/mscclpp-go/mscclpp/framework"
	"github.com/mscclpp-go/mscclpp/framework/comm/internal/life"
	"github.com/mscclpp-go/mscclpp/framework/kernel"
)

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

// makeHostEnd makes what the host pushes to: on a device kernels have a ring to
// themselves, and the host gets one when it first wants to push.
func (ch *requests) makeHostEnd() (*end, error) {
	ch.making.Lock()
	defer ch.making.Unlock()
	if e := ch.host.Load(); e != nil {
		return e, nil
	}
	ctx, cancel := ch.ports.Life.Bound(ch.life)
	defer cancel()
	ctx, stop := context.WithTimeout(ctx, life.CloseTimeout)
	defer stop()
	e, err := ch.ports.openEnd(ctx, ch.link.Transport, fromHost, ch.binding)
	if err != nil {
		return nil, ch.ports.Life.Blame(OpChannel, ch.pair.Peer, err)
	}
	ch.host.Store(e)
	return e, nil
}

// request begins a method that pushes, and returns where. The caller leaves with
// ch.use.RUnlock.
func (ch *requests) request(op string, kind, dst, src, bytes uint64) (*end, error) {
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
func (ch *requests) staged(kind uint64) bool {
	return ch.stage != nil && kind&kernel.TriggerData != 0
}

// Put asks the proxy to copy bytes from the source memory into the peer's memory.
// Offsets and sizes are in bytes. It returns when the request is queued, and waits
// while the queue is full; Flush tells when the source may be reused.
func (ch *requests) Put(dstOffset, srcOffset, bytes uint64) error {
	return ch.push("put", kernel.TriggerData, dstOffset, srcOffset, bytes)
}

// Signal raises the peer's semaphore after all earlier puts of this channel. A peer that has
// closed its communicator has none, and leaves in good order: then nothing is done.
func (ch *requests) Signal() error { return ch.push("signal", kernel.TriggerSignal, 0, 0, 0) }

// SignalLater is Signal that may be held back, for about a millisecond, until the next
// request. Where each request would be a message of its own, both then travel together.
func (ch *requests) SignalLater() error {
	e := ch.host.Load()
	if e == nil || e.service.queue == nil {
		return ch.Signal()
	}
	if err := ch.enter("signal"); err != nil {
		return err
	}
	defer ch.use.RUnlock()
	at := ch.clock()
	_, err := ch.pushStream(ch.life, e, "signal", ch.trigger(e, kernel.TriggerSignal, 0, 0, 0), false)
	if err == nil {
		ch.note(at, kernel.TriggerSignal, 0)
	}
	return err
}

// PutWithSignal is Put followed by Signal, in one request.
func (ch *requests) PutWithSignal(dstOffset, srcOffset, bytes uint64) error {
	return ch.push("put", kernel.TriggerData|kernel.TriggerSignal, dstOffset, srcOffset, bytes)
}

func (ch *requests) push(op string, kind, dst, src, bytes uint64) error {
	e, err := ch.request(op, kind, dst, src, bytes)
	if err != nil {
		return err
	}
	defer ch.use.RUnlock()
	if kind == kernel.TriggerSignal && ch.Parted() {
		return nil
	}
	at := ch.clock()
	if ch.staged(kind) {
		err = ch.pushStaged(ch.life, e, op, kind, dst, src, bytes)
	} else if t := ch.trigger(e, kind, dst, src, bytes); !ch.now(e, t) {
		_, err = ch.pushAt(ch.life, e, op, t)
	}
	if err == nil {
		ch.note(at, kind, bytes)
	}
	return err
}

// now has the consumer perform a trigger at once, if it can.
func (ch *requests) now(e *end, t kernel.Trigger) bool {
	taken, _ := e.service.ring.Now(t)
	return taken
}

// inRange refuses what a trigger cannot express and what would miss the memory.
func (ch *requests) inRange(dst, src, bytes uint64) error {
	switch {
	case bytes > math.MaxUint32 || dst > math.MaxUint32 || src > math.MaxUint32:
		return ch.ports.Life.Blame("put", ch.pair.Peer, fmt.Errorf("%w: offsets %d, %d and size %d: expected less than 4 GiB each", framework.ErrInvalid, dst, src, bytes))
	case src+bytes > ch.src.Bytes():
		return ch.ports.Life.Blame("put", ch.pair.Peer, fmt.Errorf("%w: source range [%d, %d) of %d bytes", framework.ErrInvalid, src, src+bytes, ch.src.Bytes()))
	case dst+bytes > ch.peerLen:
		return ch.ports.Life.Blame("put", ch.pair.Peer, fmt.Errorf("%w: destination range [%d, %d) of %d bytes", framework.ErrInvalid, dst, dst+bytes, ch.peerLen))
	}
	return nil
}

// Flush waits until the data of all earlier puts of this channel is visible to the
// peer, and their sources may be reused.
func (ch *requests) Flush(ctx context.Context) error {
	return ch.complete(ctx, kernel.TriggerFlush, 0, 0, 0)
}

// SignalAndFlush is Signal followed by Flush, in one request.
func (ch *requests) SignalAndFlush(ctx context.Context) error {
	return ch.complete(ctx, kernel.TriggerSignal|kernel.TriggerFlush, 0, 0, 0)
}

// PutWithSignalAndFlush is PutWithSignal followed by Flush, in one request.
func (ch *requests) PutWithSignalAndFlush(ctx context.Context, dstOffset, srcOffset, bytes uint64) error {
	return ch.complete(ctx, kernel.TriggerData|kernel.TriggerSignal|kernel.TriggerFlush, dstOffset, srcOffset, bytes)
}

// complete asks for something that ends with a flush, and waits for it.
func (ch *requests) complete(ctx context.Context, kind, dst, src, bytes uint64) error {
	e, err := ch.request("flush", kind, dst, src, bytes)
	if err != nil {
		return err
	}
	at, what, n := ch.clock(), kind, bytes
	if e == ch.kernels && !ch.staged(kind) { // else what kernels have pushed, or the copy, comes before
		taken, done := e.service.ring.Now(ch.trigger(e, kind, dst, src, bytes))
		if taken {
			ch.note(at, what, n)
			at, what, kind, dst, src, bytes = 0, 0, kernel.TriggerFlush, 0, 0, 0
		}
		if done {
			ch.use.RUnlock()
			return nil
		}
	}
	return ch.completeLater(ctx, e, sending{at, what, n}, kind, dst, src, bytes)
}

// sending describes a request, to be recorded when the ring has taken it.
type sending struct {
	at          int64
	kind, bytes uint64
}

// completeLater is complete of what cannot be done at once.
func (ch *requests) completeLater(ctx context.Context, e *end, s sending, kind, dst, src, bytes uint64) error {
	defer ch.use.RUnlock()
	if ch.staged(kind) {
		if err := ch.pushStaged(ctx, e, "put", kind&^kernel.TriggerFlush, dst, src, bytes); err != nil {
			return err
		}
		ch.note(s.at, s.kind, s.bytes)
		s, kind, dst, src, bytes = sending{}, kernel.TriggerFlush, 0, 0, 0
	}
	return ch.flushed(ctx, e, s, ch.trigger(e, kind, dst, src, bytes))
}

// flushed pushes a trigger that ends with a flush, and waits for it.
func (ch *requests) flushed(ctx context.Context, e *end, s sending, t kernel.Trigger) error {
	start := time.Now()
	both := eithers.Get().(*either)
	*both = either{ch.life, ctx}
	pos, err := ch.flushAt(both, e, t)
	*both = either{}
	eithers.Put(both)
	if err != nil {
		return ch.orLate(ctx, "flush", start, err)
	}
	ch.note(s.at, s.kind, s.bytes)
	r := e.service.ring
	if e.service.queue != nil {
		return ch.awaitStream(ctx, "flush", e, r.FlushedAt(e.slots.semaphore), pos+1)
	}
	return ch.await(ctx, "flush", func() bool { return r.Flushed(e.slots.semaphore, pos) })
}

// flushAt queues a request that ends with a flush. Requests that kernels have pushed to a ring of
// their own are taken before, so that they are flushed as well.
func (ch *requests) flushAt(ctx context.Context, e *end, t kernel.Trigger) (uint64, error) {
	if k := ch.kernels.service; k != e.service {
		if err := k.ring.WaitTaken(ctx); err != nil {
			return 0, ch.refused("flush", err)
		}
	}
	return ch.pushAt(ctx, e, "flush", t)
}
