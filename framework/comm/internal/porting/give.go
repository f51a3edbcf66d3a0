package porting

import (
	"context"
	"fmt"
	"runtime"
	"time"
	"unsafe"

	"github.com/mscclpp-go/mscclpp/framework"
	"github.com/mscclpp-go/mscclpp/framework/kernel"
	"github.com/mscclpp-go/mscclpp/framework/stream"
)

// Gives reports whether Give can be used: whether this rank drives the sockets of the
// link.
func (ch *requests) Gives() bool { return ch.link.Streamed }

// Give puts head, followed by data from any memory of this process, to offset dst of
// where puts go, and signals, all in one request. When it returns, both slices may be
// changed: the system has taken over what is to be sent. So it waits while the peer
// does not read, and receives meanwhile. head has at most stream.MaxHead bytes.
func (ch *requests) Give(ctx context.Context, dst uint64, head, data []byte) error {
	const slice = 20 * time.Microsecond // until it looks again
	if err := ch.enter("put"); err != nil {
		return err
	}
	defer ch.use.RUnlock()
	if err := ch.givable(dst, len(head), len(data)); err != nil {
		return ch.ports.Life.Blame("put", ch.pair.Peer, err)
	}
	at := ch.clock()
	var pin runtime.Pinner // the engine keeps the address until all is sent
	pin.Pin(unsafe.SliceData(data))
	defer pin.Unpin()
	e := ch.kernels
	l, q := ch.binding.stream.link.Link, e.service.queue
	given, sent := q.Give(e.slots.dst, e.slots.semaphore, dst, head, data)
	for start := time.Now(); !sent; {
		if err := ch.hopeless(ctx, "put", start); err != nil {
			if given { // nothing is to read from there any more
				_ = l.Forget(uintptr(unsafe.Pointer(unsafe.SliceData(data))), uint64(len(data)))
			}
			return err
		}
		var never uint64
		q.Await(l, &never, 1, time.Since(start), slice, streamWaits)
		if given {
			sent = l.Sent(data)
		} else {
			given, sent = q.Give(e.slots.dst, e.slots.semaphore, dst, head, data)
		}
	}
	ch.note(at, kernel.TriggerData|kernel.TriggerSignal, uint64(len(head)+len(data)))
	return nil
}

// givable refuses what Give cannot do, which it would wait for.
func (ch *requests) givable(dst uint64, head, data int) error {
	bytes := uint64(head) + uint64(data)
	switch {
	case !ch.link.Streamed:
		return fmt.Errorf("%w: data is given over sockets that the rank drives: expected Gives to be true", framework.ErrUnsupported)
	case head > stream.MaxHead:
		return fmt.Errorf("%w: head of %d bytes: expected up to %d", framework.ErrInvalid, head, stream.MaxHead)
	case dst > ch.peerLen || bytes > ch.peerLen-dst:
		return fmt.Errorf("%w: destination range [%d, %d) of %d bytes", framework.ErrInvalid, dst, dst+bytes, ch.peerLen)
	}
	return nil
}

// Land directs puts of the peer to b, from its beginning, in place of the channel's own
// memory, where Give can be used. b must stay valid until Land(nil), whatever the state
// of the channel. After Land(nil) nothing writes to b any more, and what still arrives
// is dropped. The peer has to know the length of b.
func (ch *requests) Land(b []byte) {
	ch.use.RLock()
	defer ch.use.RUnlock()
	if s := ch.binding.stream; s != nil {
		s.link.Point(s.open, b)
	}
}
