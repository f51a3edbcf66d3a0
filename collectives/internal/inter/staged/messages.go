package staged

import (
	"context"
	"fmt"
	"math"

	"github.com/mscclpp-go/mscclpp/collectives/internal/engine"
	"github.com/mscclpp-go/mscclpp/collectives/internal/inter/crosshost"
	"github.com/mscclpp-go/mscclpp/collectives/internal/inter/enqueue"
	"github.com/mscclpp-go/mscclpp/collectives/internal/inter/lanes"
	"github.com/mscclpp-go/mscclpp/collectives/internal/inter/streamgate"
	"github.com/mscclpp-go/mscclpp/collectives/internal/kernelargs"
	"github.com/mscclpp-go/mscclpp/framework"
	"github.com/mscclpp-go/mscclpp/framework/device"
)

// leastRoom is the size of the first memory for groups that are larger than a region.
const leastRoom = 16 << 20

// Exchange performs a group. All of its data lies on the host at once: each
// message may be waiting for another one, which nobody here knows of, so that no order
// in which parts of them could go is right.
func (e *Engine) Exchange(g *engine.Group) error {
	return e.queue.Session.Do(func() error {
		t := e.call(&enqueue.Enqueued{Queue: e.queue, Stream: g.Stream, Sign: lanes.OfMessages()})
		bytes, own := uint64(0), e.queue.Session.Own(g.List)
		for _, m := range g.List {
			if m.Bytes > math.MaxInt64-kernelargs.CacheLine-bytes {
				return fmt.Errorf("%w: a group of more than %d bytes", framework.ErrInvalid, uint64(math.MaxInt64))
			}
			bytes += lanes.WholeLines(m.Bytes) // each begins with a line
		}
		if err := e.queue.Session.Alone(own[0], own[1]); err != nil {
			return err
		}
		return t.perform(func() { t.messages(g.List, bytes) })
	})
}

func (t *call) messages(list []kernelargs.Transfer, bytes uint64) {
	r := t.space(bytes)
	if t.Err != nil {
		return
	}
	there := make([]kernelargs.Transfer, len(list)) // as the host sees them
	offset := uint64(0)
	for i, m := range list {
		there[i] = m
		there[i].Buffer = enqueue.Address(lanes.PointerTo(r.bytes[offset:]))
		if m.Receive == 0 {
			t.Copy(r.addr+uintptr(offset), m.Buffer, m.Bytes)
		}
		offset += lanes.WholeLines(m.Bytes)
	}
	t.await(t.onHost(func(ctx context.Context) error { return t.Session.Exchange(ctx, there) }, r))
	offset = 0
	for _, m := range list {
		if m.Receive == 1 {
			t.Copy(m.Buffer, r.addr+uintptr(offset), m.Bytes)
		}
		offset += lanes.WholeLines(m.Bytes)
	}
}

// space is memory of the host for so many bytes.
func (t *call) space(bytes uint64) *region {
	if bytes < crosshost.RegionBytes {
		return t.region(forResults)
	}
	k := t.e
	if n := len(k.rooms); n == 0 || uint64(len(k.rooms[n-1].bytes)) <= bytes {
		size := uint64(leastRoom)
		for size <= bytes {
			size *= 2
		}
		s, err := streamgate.Map(t.Device, t.HostDevice, size)
		if err != nil {
			t.Err = fmt.Errorf("a group of %d bytes, which all pass through the host at once: %w", bytes, err)
			return nil
		}
		k.rooms = append(k.rooms, &room{s, region{bytes: device.Bytes(s.Host), addr: s.Device.Addr()}})
	}
	r := &k.rooms[len(k.rooms)-1].region
	t.await(r.last)
	return r
}
