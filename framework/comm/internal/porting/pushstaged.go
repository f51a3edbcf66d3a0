package porting

import (
	"context"
	"time"

	"github.com/mscclpp-go/mscclpp/framework/device"
	"github.com/mscclpp-go/mscclpp/framework/kernel"
)

// pushStaged copies what a put reads and pushes a trigger for each piece; the last one
// does what else was asked for. It waits while all parts are on their way, or until ctx is
// done: then some pieces may have been pushed.
func (ch *requests) pushStaged(ctx context.Context, e *end, op string, kind, dst, src, bytes uint64) error {
	s, start, both := ch.stage, time.Now(), &either{ch.life, ctx}
	select {
	case s.turn <- struct{}{}:
		defer func() { <-s.turn }()
	case <-ch.life.Done():
		return ch.refused(op, ch.life.Err())
	case <-ctx.Done():
		return ch.orLate(ctx, op, start, ch.refused(op, ctx.Err()))
	}
	from, to := device.Bytes(ch.src.Memory), device.Bytes(s.memory.Memory)
	for {
		if s.used == 0 && s.after[s.now] != 0 {
			behind := s.after[s.now] - 1
			if err := ch.await(ctx, op, func() bool { return e.service.ring.Flushed(e.slots.semaphore, behind) }); err != nil {
				return err
			}
		}
		n, at, what := min(bytes, s.part-s.used), uint64(s.now)*s.part+s.used, uint64(kernel.TriggerData)
		copy(to[at:at+n], from[src:src+n])
		if n == bytes {
			what = kind
		}
		full := s.used+n == s.part
		if full {
			what |= kernel.TriggerFlush
		}
		pos, err := ch.pushAt(both, e, op, ch.trigger(e, what, dst, at, n))
		if err != nil {
			return ch.orLate(ctx, op, start, err)
		}
		s.used += n
		if full {
			s.after[s.now], s.now, s.used = pos+1, (s.now+1)%stageParts, 0
		}
		if bytes -= n; bytes == 0 {
			return nil
		}
		src, dst = src+n, dst+n
	}
}

// pushAt queues a trigger and returns its position.
func (ch *requests) pushAt(ctx context.Context, e *end, op string, t kernel.Trigger) (uint64, error) {
	if e.service.queue != nil {
		return ch.pushStream(ctx, e, op, t, true)
	}
	pos, err := e.service.ring.PushContext(ctx, t)
	if err != nil {
		return 0, ch.refused(op, err)
	}
	return pos, nil
}
