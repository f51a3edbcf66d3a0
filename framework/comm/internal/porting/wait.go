package porting

import (
	"context"
	"fmt"
	"runtime"
	"sync/atomic"
	"time"

	"github.com/mscclpp-go/mscclpp/framework"
	"github.com/mscclpp-go/mscclpp/framework/comm/internal/counters"
	"github.com/mscclpp-go/mscclpp/framework/ring"
	"github.com/mscclpp-go/mscclpp/framework/stream"
)

// waiter is how the host waits for what a peer or a proxy does.
type waiter struct {
	state
	waiting atomic.Bool // a thread is in Wait, whose turn it is
}

// streamWaits is how long a waiter polls sockets, and then yields its core, before it
// sleeps until something arrives.
var streamWaits = stream.Waits{Spin: 4 * time.Microsecond, Yield: time.Millisecond}

// Await waits until ready returns true. It is for data that the peer puts without a
// signal, and that ready looks at. It ends as Wait does, and consumes no signal. ready
// must not block, and is not called by two goroutines at once. Where this rank drives
// the sockets of the link, only a wait for a signal receives data: there Await fails
// with ErrUnsupported.
func (ch *waiter) Await(ctx context.Context, ready func() bool) error {
	if err := ch.enter("wait"); err != nil {
		return err
	}
	defer ch.use.RUnlock()
	if ch.link.Streamed {
		return ch.ports.Life.Blame("wait", ch.pair.Peer, fmt.Errorf("%w: a wait for data without a signal over sockets that the rank drives: expected Wait", framework.ErrUnsupported))
	}
	return ch.await(ctx, "wait", ready)
}

// Wait waits for the next signal of the peer. It consumes one signal, as wait in a
// kernel does; host and kernels must not wait on one channel at the same time. On a
// device each look at the counters is a copy, so there Wait is meant for tests and
// set-up.
func (ch *waiter) Wait(ctx context.Context) error {
	if err := ch.enter("wait"); err != nil {
		return err
	}
	defer ch.use.RUnlock()
	// One at a time: a wait that gives up must not take the number of another. A channel to hold
	// the turn would cost as much as the rest of a message here.
	first := func() bool { return ch.waiting.CompareAndSwap(false, true) }
	if err := ch.await(ctx, "wait", first); err != nil {
		return err
	}
	defer ch.waiting.Store(false)
	if ch.ports.Counters.HostDev != nil {
		return ch.waitOnDevice(ctx)
	}
	expected := (*uint64)(counters.Pointer(ch.handle.Semaphore.Expected))
	inbound := (*uint64)(counters.Pointer(ch.handle.Semaphore.Inbound))
	next := atomic.AddUint64(expected, 1)
	since := ch.clock()
	err := ch.awaitSignal(ctx, inbound, next)
	if since != 0 && err == nil {
		ch.ports.Flows.Waited(since, ch.place(ch.pair.Mine), next-ch.lent)
	}
	if err != nil {
		atomic.StoreUint64(expected, next-1) // the signal is still to be waited for
	}
	return err
}

// waitOnDevice is Wait for counters in the memory of a device.
func (ch *waiter) waitOnDevice(ctx context.Context) error {
	q, h := &ch.ports.Counters.Queue, &ch.handle.Semaphore
	var seen, expected uint64
	var failed error
	err := ch.await(ctx, "wait", func() bool {
		seen, expected, failed = q.Look(ctx, ch.inbound, h.Expected)
		return failed != nil || seen > expected
	})
	if err != nil {
		return err
	}
	if failed == nil {
		failed = q.Store(ctx, h.Expected, expected+1)
	}
	switch {
	case failed == nil:
		return nil
	case ctx.Err() != nil:
		return ch.late(ctx, "wait", 0)
	}
	return ch.ports.Life.Blame("wait", ch.pair.Peer, failed)
}

// awaitSignal waits for the counter that the peer raises.
func (ch *waiter) awaitSignal(ctx context.Context, inbound *uint64, next uint64) error {
	if e := ch.kernels; e.service.queue != nil {
		return ch.awaitStream(ctx, "wait", e, inbound, next)
	}
	return ch.await(ctx, "wait", func() bool { return atomic.LoadUint64(inbound) >= next })
}

// awaitStream drives the link until a word is at least as large as wanted.
func (ch *waiter) awaitStream(ctx context.Context, op string, e *end, word *uint64, wanted uint64) error {
	const (
		soon  = 15 * time.Microsecond // longer than an answer takes that is on its way
		slice = time.Millisecond
	)
	if atomic.LoadUint64(word) >= wanted {
		return nil
	}
	l, q := ch.binding.stream.link.Link, e.service.queue
	if q.Await(l, word, wanted, 0, soon, streamWaits) {
		return nil
	}
	for start := time.Now(); ; {
		if err := ch.hopeless(ctx, op, start); err != nil {
			if atomic.LoadUint64(word) >= wanted { // it came true in between
				return nil
			}
			return err
		}
		// Seldom: for a goroutine that is bound to its thread it is three wake-ups of others.
		runtime.Gosched()
		if q.Await(l, word, wanted, soon+time.Since(start), slice, streamWaits) {
			return nil
		}
	}
}

// await polls, since ready has no way to wake the host.
func (ch *waiter) await(ctx context.Context, op string, ready func() bool) error {
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
func (ch *waiter) pace() ring.Pace {
	if ch.ports.Counters.HostDev != nil {
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
func (ch *waiter) help() (soon bool) {
	for _, e := range ch.ends() {
		if e != nil && e.service.ring.Help() {
			soon = true
		}
	}
	return soon
}

// hopeless says why waiting on is in vain.
func (ch *waiter) hopeless(ctx context.Context, op string, start time.Time) error {
	if err := ch.ports.Life.Err(); err != nil {
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

// Deserted returns an error if a wait of kernels that has gone on since start waits for
// a rank that has left the job in an orderly way, otherwise nil.
func (ch *waiter) Deserted(start time.Time) error { return ch.deserted("wait", start) }

// deserted says that a wait of the host since start is for a rank that has left the job
// in good order, or nil. A death ends the communicator, and is not asked for here.
func (ch *waiter) deserted(op string, start time.Time) error {
	if time.Since(start) < departureDoubt {
		return nil
	}
	x := ch.ports.departures.of(ch.ports, ch.pair.Peer)
	select {
	case <-x.gone:
	default:
		return nil
	}
	if time.Since(x.at) < departureGrace {
		return nil
	}
	return ch.ports.Life.Blame(op, ch.pair.Peer, fmt.Errorf(
		"%w: it has left the job in good order, and what this rank waits for has not come: expected all ranks to make the same calls", framework.ErrPeer))
}

// orLate is err, unless there is no other reason for it than that the caller's time is up.
func (ch *waiter) orLate(ctx context.Context, op string, start time.Time, err error) error {
	if ctx.Err() != nil && ch.life.Err() == nil && ch.ports.Life.Err() == nil {
		return ch.late(ctx, op, time.Since(start))
	}
	return err
}

func (ch *waiter) late(ctx context.Context, op string, waited time.Duration) error {
	return ch.ports.Life.Blame(op, ch.pair.Peer, fmt.Errorf("%w: no answer within %v: %w", framework.ErrPeer, waited.Round(time.Millisecond), ctx.Err()))
}
