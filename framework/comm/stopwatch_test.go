package comm_test

import (
	"context"
	"errors"
	"runtime"
	"sync/atomic"
	"time"
	"unsafe"

	"github.com/mscclpp-go/mscclpp/framework/comm"
	"github.com/mscclpp-go/mscclpp/framework/kernel/actor"
)

// stopwatch times what a player's stream does, to some microseconds: everything is enqueued behind
// a stream gate, which the host opens, and the stream itself says when it is through. So neither
// launches nor the naps of a thread that waits for a stream count.
type stopwatch struct {
	*player
	streamGate, end         *uint64
	streamGateSeen, endSeen uintptr
	lap                     uint64
	alone                   bool // no other rank takes part in what is repeated
}

func newStopwatch(p *player) (*stopwatch, error) {
	page, seen, err := p.newPage(4096)
	if err != nil {
		return nil, err
	}
	word := func(i int) *uint64 { return (*uint64)(unsafe.Pointer(&page[i])) }
	return &stopwatch{player: p, streamGate: word(0), end: word(128), streamGateSeen: seen, endSeen: seen + 128}, nil
}

// time returns how long the stream takes for what is enqueued, from the opening of the
// streamGate. Meanwhile runs on the host as soon as it is open, and may be nil.
func (w *stopwatch) time(ctx context.Context, enqueue func() error, meanwhile func() error) (time.Duration, error) {
	w.lap++
	if err := w.dev.WaitValue(w.stream, w.streamGateSeen, w.lap); err != nil {
		return 0, err
	}
	err := errors.Join(enqueue(), w.dev.Write(w.stream, w.endSeen, w.lap))
	start := time.Now()
	atomic.StoreUint64(w.streamGate, w.lap) // also after a failure: else the stream stands still for ever
	if meanwhile != nil && err == nil {
		err = meanwhile()
	}
	if err == nil {
		err = w.await(ctx, func() bool { return atomic.LoadUint64(w.end) == w.lap })
	}
	return time.Since(start), err
}

// await polls without a pause on machines that have cores for it.
func (w *stopwatch) await(ctx context.Context, ready func() bool) error {
	for n := 1; !ready(); n++ {
		if isEmulated() {
			runtime.Gosched()
		}
		if n%1024 == 0 {
			if err := errors.Join(ctx.Err(), w.Err()); err != nil {
				return err
			}
		}
	}
	return nil
}

// each returns what one of many repetitions of steps takes. Both ranks call it at once,
// unless this one is alone.
func (w *stopwatch) each(ctx context.Context, ch *comm.PortChannel, repetitions int, steps ...actor.Step) (time.Duration, error) {
	took := time.Duration(0)
	for range 2 { // the first time warms up
		r, err := w.rehearse(ctx, ch.Handle(), nil, repeat(repetitions, steps...)...)
		if err == nil && !w.alone {
			err = w.Barrier(ctx)
		}
		if err == nil {
			took, err = w.time(ctx, w.launch, nil)
		}
		if err == nil {
			err = w.check(ctx, r)
		}
		if err != nil {
			return 0, err
		}
	}
	return took / time.Duration(repetitions), nil
}
