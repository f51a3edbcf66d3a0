package staged

import (
	"context"

	"github.com/mscclpp-go/mscclpp/collectives/internal/engine"
	"github.com/mscclpp-go/mscclpp/collectives/internal/inter/crosshost"
	"github.com/mscclpp-go/mscclpp/collectives/internal/inter/enqueue"
	"github.com/mscclpp-go/mscclpp/collectives/internal/inter/lanes"
	"github.com/mscclpp-go/mscclpp/framework/collective"
)

// Calls without levels: what all ranks have goes to the host, which performs the call
// there as ranks on hosts do. It serves all types and operations, with the same bits.

// parted is how many parts of c.Count elements a buffer has at most, on any rank.
func parted(c *engine.Call, ranks int) int {
	switch c.Collective {
	case collective.AllGather, collective.ReduceScatter, collective.AllToAll:
		return ranks
	}
	return 1
}

// parts is how many of them this rank reads, and gets.
func (t *call) parts() (in, out int) {
	n, root := t.ranks(), t.rank() == t.Call.Root
	switch t.Call.Collective {
	case collective.AllGather:
		return 1, n
	case collective.ReduceScatter:
		return n, 1
	case collective.AllToAll:
		return n, n
	case collective.Broadcast:
		if !root {
			return 0, 1
		}
	case collective.Reduce:
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
func (t *call) flat() {
	c := t.Call
	if c.Collective == collective.Barrier {
		t.await(t.onHost(func(ctx context.Context) error { return t.e.flat.Perform(ctx, c) }))
		return
	}
	element := uint64(c.Type.Size())
	part := c.Count * element
	most := max(element, crosshost.RegionBytes/uint64(parted(c, t.ranks()))/element*element)
	var before portion
	for at := uint64(0); at < part; at += most {
		now := t.begin(at, min(most, part-at))
		t.end(before)
		before = now
	}
	t.end(before)
}

// begin copies a chunk to the host, which performs the call with it.
func (t *call) begin(at, bytes uint64) portion {
	element := uint64(t.Call.Type.Size())
	part := t.Call.Count * element
	in, out := t.region(forSending), t.region(forResults)
	reads, _ := t.parts()
	for i := range uint64(reads) {
		t.Copy(in.addr+uintptr(i*bytes), enqueue.Address(t.Call.Input)+uintptr(i*part+at), bytes)
	}
	sub := *t.Call
	sub.Count, sub.Input, sub.Output = bytes/element, lanes.PointerTo(in.bytes), lanes.PointerTo(out.bytes)
	return portion{at, bytes, out, t.onHost(func(ctx context.Context) error { return t.e.flat.Perform(ctx, &sub) }, in, out)}
}

// end copies the results of a chunk to the device.
func (t *call) end(x portion) {
	if x.bytes == 0 {
		return
	}
	part := t.Call.Count * uint64(t.Call.Type.Size())
	_, gets := t.parts()
	t.await(x.number)
	for i := range uint64(gets) {
		t.Copy(enqueue.Address(t.Call.Output)+uintptr(i*part+x.at), x.out.addr+uintptr(i*x.bytes), x.bytes)
	}
}
