package porting

import (
	"context"
	"sync"
	"sync/atomic"

	"github.com/mscclpp-go/mscclpp/framework/kernel"
)

// Small puts without a signal are sent together, up to so many: no rank can see that they come
// later, since their reader waits for a signal or a flush behind them.
const (
	heldPuts = 16
	smallPut = 16 << 10
)

// urgent reports whether a trigger that was pushed at a position is to be sent now.
func urgent(t kernel.Trigger, pos uint64) bool {
	return t.Kind() != kernel.TriggerData || t.Bytes() > smallPut || pos%heldPuts == heldPuts-1
}

// pushStream queues a trigger and, unless it can wait, performs what is queued. Where the
// ring is full this rank makes room.
func (ch *requests) pushStream(ctx context.Context, e *end, op string, t kernel.Trigger, now bool) (uint64, error) {
	r, q := e.service.ring, e.service.queue
	for {
		pos, ok, err := r.Offer(t)
		switch {
		case err != nil:
			return 0, ch.refused(op, err)
		case ok && now && urgent(t, pos):
			q.Drain()
			return pos, nil
		case ok:
			q.Later()
			return pos, nil
		}
		// Not for one more than now: others may have drained all since, and push nothing.
		if err := ch.awaitStream(ctx, op, e, r.TakenAt(), pos+1-uint64(r.Slots())); err != nil {
			return 0, err
		}
	}
}

// requests is how the host pushes.
type requests struct {
	waiter
	making sync.Mutex    // held while the end of the host is made
	sent   atomic.Uint64 // signals of the host
}
