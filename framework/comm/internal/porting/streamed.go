package porting

import (
	"context"
	"fmt"
	"time"

	"github.com/mscclpp-go/mscclpp/framework"
	"github.com/mscclpp-go/mscclpp/framework/comm/internal/counters"
	"github.com/mscclpp-go/mscclpp/framework/comm/internal/memory"
	"github.com/mscclpp-go/mscclpp/framework/kernel"
)

// bindStreams is for sockets that the rank drives.
func (ch *Channel) bindStreams(ctx context.Context, s *Ports, open *memory.Memory) error {
	b := &streamBinding{link: ch.link.stream, offset: uint64(ch.pair.Theirs) * counters.Stride}
	var err error
	if b.open, err = b.link.Expose(open.Addr(), open.Bytes()); err != nil {
		return &framework.Error{Op: OpChannel, Peer: ch.pair.Peer, Err: err}
	}
	ch.binding = binding{stream: b, own: ch.src}
	if b.target, b.bytes, err = s.tradeHandles(ctx, ch.pair.Peer, b.open, open.Bytes()); err != nil {
		b.link.Withdraw(b.open)
		return err
	}
	ch.peerLen = b.bytes
	return nil
}

// leaveStream makes sure that nothing touches the memory of the channel any more.
func (ch *Channel) leaveStream() error {
	b := ch.binding.stream
	if b == nil {
		return nil
	}
	b.link.Withdraw(b.open)
	return b.link.Forget(ch.src.Addr(), ch.src.Bytes())
}

// flushStream waits until all that the channel was asked for is there.
func (ch *Channel) flushStream(ctx context.Context, e *end) error {
	pos, err := ch.pushStream(ctx, e, "close port channel", ch.trigger(e, kernel.TriggerFlush, 0, 0, 0), true)
	if err != nil {
		return err
	}
	r, q, l := e.service.ring, e.service.queue, ch.binding.stream.link.Link
	for start := time.Now(); !q.Await(l, r.FlushedAt(e.slots.semaphore), pos+1, time.Since(start), time.Millisecond, streamWaits); {
		if err := r.Err(); err != nil {
			return err
		}
		if err := ctx.Err(); err != nil {
			return fmt.Errorf("%w: the peer does not read: %w", framework.ErrPeer, err)
		}
	}
	return nil
}
