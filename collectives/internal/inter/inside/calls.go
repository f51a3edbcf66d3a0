package inside

import (
	"unsafe"

	"github.com/mscclpp-go/mscclpp/framework/collective"
	"github.com/mscclpp-go/mscclpp/framework/kernel"
)

// Calls of ranks on the host, which have no streams.

// AllReduce reduces count elements of all ranks of the host, for all of them.
func (h *Host) AllReduce(in, out unsafe.Pointer, count int, t kernel.DataType, op kernel.Op, scale float64) error {
	return h.Perform(Call{Kind: collective.AllReduce, In: in, Out: out, Count: count, Type: t, Op: op, Scale: scale})
}

// ReduceScatter reduces count elements for each rank of the host.
func (h *Host) ReduceScatter(in, out unsafe.Pointer, count int, t kernel.DataType, op kernel.Op, scale float64) error {
	return h.Perform(Call{Kind: collective.ReduceScatter, In: in, Out: out, Count: count, Type: t, Op: op, Scale: scale})
}

// AllGather gathers count elements of each rank of the host.
func (h *Host) AllGather(in, out unsafe.Pointer, count int, t kernel.DataType) error {
	return h.Perform(Call{Kind: collective.AllGather, In: in, Out: out, Count: count, Type: t})
}

// Broadcast copies count elements from one rank of the host to all of them.
func (h *Host) Broadcast(in, out unsafe.Pointer, count int, t kernel.DataType, index int) error {
	return h.Perform(Call{Kind: collective.Broadcast, In: in, Out: out, Count: count, Type: t, Root: index})
}

// Reduce reduces count elements of all ranks of the host, for one of them.
func (h *Host) Reduce(in, out unsafe.Pointer, count int, t kernel.DataType, op kernel.Op, index int, scale float64) error {
	return h.Perform(Call{Kind: collective.Reduce, In: in, Out: out, Count: count, Type: t, Op: op, Root: index, Scale: scale})
}

// AllToAll exchanges count elements between each two ranks of the host.
func (h *Host) AllToAll(in, out unsafe.Pointer, count int, t kernel.DataType) error {
	return h.Perform(Call{Kind: collective.AllToAll, In: in, Out: out, Count: count, Type: t})
}

// Barrier waits until all ranks of the host have called it.
func (h *Host) Barrier() error { return h.Perform(Call{Kind: collective.Barrier}) }
