package collectives

import (
	"unsafe"

	"github.com/mscclpp-go/mscclpp/framework/kernel"
)

// AllReduce reduces count elements across all ranks and gives the result to all. In
// place: in == out.
func (c *Comm) AllReduce(in, out unsafe.Pointer, count int, t kernel.DataType, op kernel.Op, o *CallOptions) error {
	n := uint64(count)
	j := job{collective: AllReduce, input: in, output: out, count: count, dtype: t, op: op, inCount: n, outCount: n}
	return c.run(&j, o)
}

// AllGather gathers count elements from every rank, and gives all ranks the result in
// rank order: out has count elements for each rank. In place: in is the rank's own part
// of out.
func (c *Comm) AllGather(in, out unsafe.Pointer, count int, t kernel.DataType, o *CallOptions) error {
	n := uint64(count)
	j := job{collective: AllGather, input: in, output: out, count: count, dtype: t, inCount: n, outCount: n * uint64(c.Size())}
	return c.run(&j, o)
}

// ReduceScatter reduces the inputs, which have count elements for each rank, and gives
// every rank its own count elements of the result. In place: out is the rank's own part
// of in.
func (c *Comm) ReduceScatter(in, out unsafe.Pointer, count int, t kernel.DataType, op kernel.Op, o *CallOptions) error {
	n := uint64(count)
	j := job{collective: ReduceScatter, input: in, output: out, count: count, dtype: t, op: op, inCount: n * uint64(c.Size()), outCount: n}
	return c.run(&j, o)
}

// Broadcast copies count elements from root to all ranks. in is read on the root only.
func (c *Comm) Broadcast(in, out unsafe.Pointer, count int, t kernel.DataType, root int, o *CallOptions) error {
	n := uint64(count)
	j := job{collective: Broadcast, input: in, output: out, count: count, dtype: t, root: root, outCount: n}
	if root == c.Rank() {
		j.inCount = n
	} else if in == nil {
		j.input = out
	}
	return c.run(&j, o)
}

// Reduce reduces count elements across all ranks, as AllReduce does, but gives the
// result to root only. out is written on the root only.
func (c *Comm) Reduce(in, out unsafe.Pointer, count int, t kernel.DataType, op kernel.Op, root int, o *CallOptions) error {
	n := uint64(count)
	j := job{collective: Reduce, input: in, output: out, count: count, dtype: t, op: op, root: root, inCount: n}
	if root == c.Rank() {
		j.outCount = n
	}
	return c.run(&j, o)
}

// AllToAll sends the count elements at r*count of in to each rank r, and receives count
// elements from r at r*count of out. in == out is allowed.
func (c *Comm) AllToAll(in, out unsafe.Pointer, count int, t kernel.DataType, o *CallOptions) error {
	n := uint64(count) * uint64(c.Size())
	j := job{collective: AllToAll, input: in, output: out, count: count, dtype: t, inCount: n, outCount: n}
	return c.run(&j, o)
}

// Barrier waits, on the device, until all ranks have called it.
func (c *Comm) Barrier(o *CallOptions) error {
	j := job{collective: Barrier}
	return c.run(&j, o)
}
