package ring

import (
	"context"
	"fmt"
	"sync/atomic"
	"time"

	"github.com/mscclpp-go/mscclpp/framework"
	"github.com/mscclpp-go/mscclpp/framework/kernel"
)

const commitBit = 1 << 63

// Push queues a trigger and returns its position. Triggers of one goroutine are
// performed in the order of their pushes. It waits while the ring is full, and
// fails when the proxy has ended or the communicator was aborted. Bit 63 of
// t.Snd must be 0.
func (r *Ring) Push(t kernel.Trigger) (pos uint64, err error) {
	return r.push(context.Background(), t)
}

// PushContext is like Push, but waits no longer than ctx.
func (r *Ring) PushContext(ctx context.Context, t kernel.Trigger) (pos uint64, err error) {
	return r.push(ctx, t)
}

func (r *Ring) push(ctx context.Context, t kernel.Trigger) (uint64, error) {
	for {
		// A position is taken only when its slot is free. Kernels take first and
		// wait then, which is right too, but cannot be given up.
		pos, ok, err := r.Offer(t)
		if ok {
			r.offered(pos)
		}
		if ok || err != nil {
			return pos, err
		}
		if err := r.awaitRoom(ctx); err != nil {
			return 0, err
		}
	}
}

// offered is what comes behind the store of a trigger. Go's atomics have one order, so that the
// load of Parked is not early: a consumer that it does not see asleep sees the trigger before it
// sleeps. Everything before that only serves to make it unnecessary.
func (r *Ring) offered(pos uint64) {
	if r.helper != nil {
		r.helper.Help(false)
		if pos%32 == 0 {
			r.crowd.Share(time.Now()) // as polls do: a thread that only pushes never rests
		}
		if r.Tail() > pos && !r.there() { // no consumer has to wake for it
			return
		}
	}
	if atomic.LoadUint32(&r.header.Parked) != 0 {
		r.Wake()
	}
}

// Now pushes a trigger without a slot: if the consumer is in this process, it performs
// the trigger on the caller's thread. If taken is false, that is not possible now, and
// nothing has happened. Done says that the trigger asks for a flush, and that the flush
// is completed; otherwise the flush has to be asked for again.
func (r *Ring) Now(t kernel.Trigger) (taken, done bool) {
	if r.helper == nil {
		return false, false
	}
	if taken, done = r.helper.Perform(t.Fst, t.Snd); !taken {
		return false, false
	}
	if atomic.LoadUint64(&r.header.Head) != r.Tail() { // pushed by a thread that could not have the turn, since it was here; else the thread looks, later
		r.helper.Help(false)
		if r.there() && atomic.LoadUint32(&r.header.Parked) != 0 {
			r.Wake()
		}
	}
	return true, done
}

// there reports whether a trigger waits for the consumer.
func (r *Ring) there() bool {
	tail := r.Tail()
	return atomic.LoadUint64(&r.slot(tail).Snd)&commitBit == r.commit(tail)
}

func (r *Ring) awaitRoom(ctx context.Context) error {
	err := r.await(ctx, func() bool {
		tail := r.Tail() // before the head, as in Offer
		return atomic.LoadUint64(&r.header.Head)-tail < r.slots
	})
	if err != nil {
		return fmt.Errorf("ring push: %d triggers wait for the proxy: %w", r.slots, err)
	}
	return nil
}

// FlushWord returns the address of flush word i, for handles. The flush word of a
// connection holds the position up to which everything was completed. It panics if
// there is no such word.
func (r *Ring) FlushWord(i uint32) uintptr {
	return uintptr(r.mem.Addr()) + flushOffset(i)
}

// FlushWordOn is FlushWord for a device that has the ring's memory mapped at base.
func FlushWordOn(base uintptr, i uint32) uintptr { return base + flushOffset(i) }

func flushOffset(i uint32) uintptr {
	if i >= kernel.RingFlushWords {
		panic(fmt.Sprintf("ring: flush word %d of %d", i, kernel.RingFlushWords))
	}
	return headerBytes + uintptr(i)*8
}

// Flushed reports whether the flush that was pushed at pos has been completed.
func (r *Ring) Flushed(i uint32, pos uint64) bool { return atomic.LoadUint64(r.FlushedAt(i)) > pos }

// WaitFlushed waits until the flush that was pushed at pos has been completed. It fails
// if the proxy ends before.
func (r *Ring) WaitFlushed(ctx context.Context, i uint32, pos uint64) error {
	if err := r.await(ctx, func() bool { return r.Flushed(i, pos) }); err != nil {
		return fmt.Errorf("ring flush: %w", err)
	}
	return nil
}

// WaitTaken waits until the consumer has taken everything that was pushed before the call, by any
// producer.
func (r *Ring) WaitTaken(ctx context.Context) error {
	all := r.Tail() + r.slots // no more fits
	err := r.await(ctx, func() bool {
		tail := r.Tail()
		return tail >= all || r.Depth() == 0 && r.Tail() == tail
	})
	if err != nil {
		return fmt.Errorf("ring: %d triggers wait for the proxy: %w", r.Depth(), err)
	}
	return nil
}

// await polls.
func (r *Ring) await(ctx context.Context, ready func() bool) error {
	if ready() {
		return nil
	}
	pace := r.Begin()
	for {
		for range 32 {
			if ready() {
				pace.End()
				return nil
			}
		}
		r.Help()
		if err := r.ended(ctx); err != nil {
			if ready() { // it came true in between
				return nil
			}
			return err
		}
		pace.Rest()
	}
}

// ended says why waiting on is in vain.
func (r *Ring) ended(ctx context.Context) error {
	if err := r.Err(); err != nil {
		return err
	}
	if c := r.control.Load(); c != nil && atomic.LoadUint32(&c.Abort) != 0 {
		return fmt.Errorf("the communicator was aborted: %w", framework.ErrClosed)
	}
	return ctx.Err()
}
