package enqueue

import (
	"fmt"
	"unsafe"

	"github.com/mscclpp-go/mscclpp/collectives/internal/inter/crosshost"
	"github.com/mscclpp-go/mscclpp/collectives/internal/inter/inside"
	"github.com/mscclpp-go/mscclpp/collectives/internal/inter/placement"
	"github.com/mscclpp-go/mscclpp/collectives/internal/kernelargs"
	"github.com/mscclpp-go/mscclpp/framework/collective"
	"github.com/mscclpp-go/mscclpp/framework/device"
	"github.com/mscclpp-go/mscclpp/framework/kernel"
)

// Memory of the device for pieces: three shares that are under way, a block, and a block
// that can be divided evenly.
const (
	PlaceShare  = 0
	PlaceBlock  = 3
	PlacePadded = 4
)

// Place is where one of them is.
func (t *Enqueued) Place(i int) uintptr {
	at := t.scratch.Addr() + uintptr(min(i, PlaceBlock)*(crosshost.RegionBytes+crosshost.Slack))
	if i == PlacePadded {
		at += uintptr(t.BlockBytes())
	}
	return at
}

// Address is that of a buffer.
func Address(p unsafe.Pointer) uintptr { return uintptr(p) }

// perform enqueues a call of the ranks of the host.
func (t *Enqueued) perform(k collective.Kind, in, out uintptr, count uint64, op kernel.Op, root int, scale float64) {
	if t.Err == nil {
		t.Err = t.Inside.Perform(inside.Call{
			Kind: k, In: kernelargs.At(in), Out: kernelargs.At(out), Count: int(count), Type: t.Call.Type, Op: op, Root: root, Stream: t.Stream, Scale: scale,
		})
	}
}

// reduce is perform of a reduction.
func (t *Enqueued) reduce(k collective.Kind, in, out uintptr, count uint64, root int) {
	op, scale := t.Inner(t.Call.Op, t.Call.Scale)
	t.perform(k, in, out, count, op, root, scale)
}

// Meet is a barrier of the ranks of the host.
func (t *Enqueued) Meet() { t.perform(collective.Barrier, 0, 0, 0, 0, 0, 0) }

// SumInside reduces the inputs of the ranks of the host, for all of them.
func (t *Enqueued) SumInside(count uint64, out uintptr) {
	t.reduce(collective.AllReduce, Address(t.Call.Input), out, count, 0)
}

// SumFor reduces the inputs of the ranks of the host, for one of them.
func (t *Enqueued) SumFor(count uint64, out uintptr, index int) {
	t.reduce(collective.Reduce, Address(t.Call.Input), out, count, index)
}

// Collect gathers what each rank of the host has.
func (t *Enqueued) Collect(in, out uintptr, count uint64) {
	t.perform(collective.AllGather, in, out, count, 0, 0, 0)
}

// Spread is a broadcast on one host.
func (t *Enqueued) Spread(in, out uintptr, count uint64, index int) {
	t.perform(collective.Broadcast, in, out, count, 0, index, 0)
}

// Scatter reduces a vector inside the host. This rank's share goes to room.
func (t *Enqueued) Scatter(in uintptr, count uint64, room uintptr) {
	each := placement.Share(count, t.Size())
	if each*uint64(t.Size()) != count {
		padded := t.Place(PlacePadded) // the bytes behind the vector do not matter
		t.Copy(padded, in, count*uint64(t.Call.Type.Size()))
		in = padded
	}
	t.reduce(collective.ReduceScatter, in, room, each, 0)
}

// Gather puts the shares of the ranks of the host together.
func (t *Enqueued) Gather(own uintptr, count uint64, out uintptr) {
	each, to := placement.Share(count, t.Size()), out
	if each*uint64(t.Size()) != count {
		to = t.Place(PlacePadded)
	}
	t.Collect(own, to, each)
	t.Copy(out, to, count*uint64(t.Call.Type.Size()))
}

// OwnBytes is the size of this rank's share of a vector.
func (t *Enqueued) OwnBytes(count uint64) uint64 {
	own := t.Mine(count)
	return (own.To - own.From) * uint64(t.Call.Type.Size())
}

// Block is where the pieces of some ranks lie, or are to lie, one behind another: in the
// buffer itself, or not.
func (t *Enqueued) Block(all uintptr, part, at, bytes uint64, ranks []int) (addr uintptr, there bool) {
	there = bytes == part
	for i, r := range ranks {
		there = there && r == ranks[0]+i
	}
	if there {
		return all + uintptr(uint64(ranks[0])*part), true
	}
	return t.Place(PlaceBlock), false
}

// GatherBlock gathers the shares of the block of a host, and puts its pieces where they belong.
func (t *Enqueued) GatherBlock(g int, own uintptr, part, from, bytes uint64) {
	ranks, out := t.Hosts[g], Address(t.Call.Output)
	block, there := t.Block(out, part, from, bytes, ranks)
	t.Gather(own, uint64(len(ranks))*bytes/uint64(t.Call.Type.Size()), block)
	for i, rank := range ranks {
		if !there {
			t.Copy(out+uintptr(uint64(rank)*part+from), block+uintptr(uint64(i)*bytes), bytes)
		}
	}
}

// SwapBlock exchanges inside what all ranks of the host have for some ranks, one of them for each
// of these; padding stands for those that are missing. The part of it that this rank gets goes to `to`.
func (t *Enqueued) SwapBlock(all uintptr, part, begin, bytes uint64, ranks []int, to uintptr) {
	from, there := t.Block(all, part, begin, bytes, ranks)
	if !there || len(ranks) < t.Size() {
		from = t.Place(PlacePadded)
		for i, rank := range ranks {
			t.Copy(from+uintptr(uint64(i)*bytes), all+uintptr(uint64(rank)*part+begin), bytes)
		}
	}
	t.perform(collective.AllToAll, from, to, bytes/uint64(t.Call.Type.Size()), 0, 0, 0)
}

// SwapInside is the all-to-all of the ranks of this host.
func (t *Enqueued) SwapInside(part, at, bytes uint64) {
	out, ranks := Address(t.Call.Output), t.Hosts[t.Host]
	block, there := t.Block(out, part, at, bytes, ranks)
	t.SwapBlock(Address(t.Call.Input), part, at, bytes, ranks, block)
	for i, rank := range ranks {
		if !there {
			t.Copy(out+uintptr(uint64(rank)*part+at), block+uintptr(uint64(i)*bytes), bytes)
		}
	}
}

// Prepare allocates memory for pieces, where there are two levels with more than one rank on a host.
func (q *Queue) Prepare() (err error) {
	if q.Inside == nil || q.Inside.Alone() {
		return nil
	}
	if q.scratch, err = device.AllocData(q.Device, PlaceBlock*(crosshost.RegionBytes+crosshost.Slack)+2*q.BlockBytes()); err != nil {
		return fmt.Errorf("memory for pieces: %w", err)
	}
	return nil
}
