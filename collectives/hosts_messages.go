package collectives

import (
	"context"
	"fmt"
	"math"

	"github.com/mscclpp-go/mscclpp/collectives/internal/inter/crosshost"
	"github.com/mscclpp-go/mscclpp/collectives/internal/inter/lanes"
	"github.com/mscclpp-go/mscclpp/collectives/internal/inter/streamgate"
	"github.com/mscclpp-go/mscclpp/framework"
	"github.com/mscclpp-go/mscclpp/framework/device"
)

// leastRoom is the size of the first memory for groups that are larger than a region.
const leastRoom = 16 << 20

// room is memory of the host for a whole group of messages. That of earlier calls stays
// until the end: streams may still use it.
type room struct {
	streamgate.Mapped
	region
}

// enqueueMessages performs a group. All of its data lies on the host at once: each
// message may be waiting for another one, which nobody here knows of, so that no order
// in which parts of them could go is right.
func (p *ports) enqueueMessages(list []transfer, stream device.Stream) error {
	p.mu.Lock()
	defer p.mu.Unlock()
	t := &trip{courier: p.courier, stream: stream, sign: lanes.OfMessages()}
	bytes, own := uint64(0), p.Own(list)
	for _, m := range list {
		if m.Bytes > math.MaxInt64-line-bytes {
			return fmt.Errorf("%w: a group of more than %d bytes", framework.ErrInvalid, uint64(math.MaxInt64))
		}
		bytes += spaced(m.Bytes)
	}
	if err := p.Alone(own[0], own[1]); err != nil {
		return err
	}
	return t.perform(func() { t.messages(list, bytes) })
}

// spaced is what a message takes: each begins with a line.
func spaced(bytes uint64) uint64 { return (bytes + line - 1) / line * line }

func (t *trip) messages(list []transfer, bytes uint64) {
	r := t.space(bytes)
	if t.err != nil {
		return
	}
	there := make([]transfer, len(list)) // as the host sees them
	offset := uint64(0)
	for i, m := range list {
		there[i] = m
		there[i].Buffer = address(pointerTo(r.bytes[offset:]))
		if m.Receive == 0 {
			t.copy(r.addr+uintptr(offset), m.Buffer, m.Bytes)
		}
		offset += spaced(m.Bytes)
	}
	t.await(t.tell(func(ctx context.Context) error { return t.ports.Exchange(ctx, there) }, r))
	offset = 0
	for _, m := range list {
		if m.Receive == 1 {
			t.copy(m.Buffer, r.addr+uintptr(offset), m.Bytes)
		}
		offset += spaced(m.Bytes)
	}
}

// space is memory of the host for so many bytes.
func (t *trip) space(bytes uint64) *region {
	if bytes < crosshost.RegionBytes {
		return t.region(forResults)
	}
	k := t.courier
	if n := len(k.rooms); n == 0 || uint64(len(k.rooms[n-1].bytes)) <= bytes {
		size := uint64(leastRoom)
		for size <= bytes {
			size *= 2
		}
		s, err := streamgate.Map(k.device, k.host, size)
		if err != nil {
			t.err = fmt.Errorf("a group of %d bytes, which all pass through the host at once: %w", bytes, err)
			return nil
		}
		k.rooms = append(k.rooms, &room{s, region{bytes: device.Bytes(s.Host), addr: s.Device.Addr()}})
	}
	r := &k.rooms[len(k.rooms)-1].region
	t.await(r.last)
	return r
}
