package collectives

import (
	"context"

	"github.com/mscclpp-go/mscclpp/collectives/internal/inter/crosshost"
)

// Calls without levels: what all ranks have goes to the host, which performs the call
// there as ranks on hosts do. It serves all types and operations, with the same bits.

// parted is how many parts of c.Count elements a buffer has at most, on any rank.
func parted(c *Call, ranks int) int {
	switch c.Collective {
	case AllGather, ReduceScatter, AllToAll:
		return ranks
	}
	return 1
}

// parts is how many of them this rank reads, and gets.
func (t *trip) parts() (in, out int) {
	n, root := t.ports.Comm.Size(), t.ports.Comm.Rank() == t.call.Root
	switch t.call.Collective {
	case AllGather:
		return 1, n
	case ReduceScatter:
		return n, 1
	case AllToAll:
		return n, n
	case Broadcast:
		if !root {
			return 0, 1
		}
	case Reduce:
		if !root {
			return 1, 0
		}
	}
	return 1, 1
}

// portion is some elements of every part, on the host.
type portion struct {
	at, bytes uint64 // of a part
	out       *region
	number    uint64
}

// flat performs a call chunk by chunk: while one is on the host, the next is copied.
func (t *trip) flat(run func(*ports, context.Context, *Call) error) {
	c := t.call
	if c.Collective == Barrier {
		t.await(t.tell(func(ctx context.Context) error { return run(t.ports, ctx, c) }))
		return
	}
	element := uint64(c.Type.Size())
	part := c.Count * element
	most := max(element, crosshost.RegionBytes/uint64(parted(c, t.ports.Comm.Size()))/element*element)
	var before portion
	for at := uint64(0); at < part; at += most {
		now := t.begin(run, at, min(most, part-at))
		t.end(before)
		before = now
	}
	t.end(before)
}

// begin copies a chunk to the host, which performs the call with it.
func (t *trip) begin(run func(*ports, context.Context, *Call) error, at, bytes uint64) portion {
	element := uint64(t.call.Type.Size())
	part := t.call.Count * element
	in, out := t.region(forSending), t.region(forResults)
	reads, _ := t.parts()
	for i := range uint64(reads) {
		t.copy(in.addr+uintptr(i*bytes), address(t.call.Input)+uintptr(i*part+at), bytes)
	}
	sub := *t.call
	sub.Count, sub.Input, sub.Output = bytes/element, pointerTo(in.bytes), pointerTo(out.bytes)
	return portion{at, bytes, out, t.tell(func(ctx context.Context) error { return run(t.ports, ctx, &sub) }, in, out)}
}

// end copies the results of a chunk to the device.
func (t *trip) end(x portion) {
	if x.bytes == 0 {
		return
	}
	part := t.call.Count * uint64(t.call.Type.Size())
	_, gets := t.parts()
	t.await(x.number)
	for i := range uint64(gets) {
		t.copy(address(t.call.Output)+uintptr(i*part+x.at), x.out.addr+uintptr(i*x.bytes), x.bytes)
	}
}
