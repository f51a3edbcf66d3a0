package collectives

import (
	"fmt"
	"math"
	"unsafe"

	"github.com/mscclpp-go/mscclpp/collectives/internal/choose"
	"github.com/mscclpp-go/mscclpp/collectives/internal/engine"
	"github.com/mscclpp-go/mscclpp/framework"
	"github.com/mscclpp-go/mscclpp/framework/comm"
	"github.com/mscclpp-go/mscclpp/framework/kernel"
)

// apart refuses buffers that overlap in another way than in place: ranks and blocks read one while they write the
// other, in an order that differs between algorithms.
func (j *job) apart(rank int, element uint64) error {
	in, out := uint64(uintptr(j.input)), uint64(uintptr(j.output))
	inBytes, outBytes := j.inCount*element, j.outCount*element
	if inBytes == 0 || outBytes == 0 || in >= out+outBytes || out >= in+inBytes || j.inPlace(rank, element) {
		return nil
	}
	expected := "the same address for both"
	switch j.collective {
	case AllGather:
		expected = fmt.Sprintf("the input in place at %#x, its part of the output", out+inBytes*uint64(rank))
	case ReduceScatter:
		expected = fmt.Sprintf("the output in place at %#x, its part of the input", in+outBytes*uint64(rank))
	}
	return fmt.Errorf("%w: input [%#x, %#x) and output [%#x, %#x) overlap: expected buffers that are apart, or %s",
		framework.ErrInvalid, in, in+inBytes, out, out+outBytes, expected)
}

var defaults CallOptions

// job is one call on its way to the device.
type job struct {
	collective    Collective
	input, output unsafe.Pointer
	count         int
	dtype         kernel.DataType
	op            kernel.Op
	root          int
	inCount       uint64 // elements of the two buffers
	outCount      uint64
}

func (j *job) check(ranks int) error {
	switch {
	case j.count < 0:
		return fmt.Errorf("%w: count %d: expected at least 0", framework.ErrInvalid, j.count)
	case j.dtype >= kernel.DataTypes:
		return fmt.Errorf("%w: %v: no such element type", framework.ErrInvalid, j.dtype)
	case j.op >= kernel.Ops:
		return fmt.Errorf("%w: %v: no such reduction", framework.ErrInvalid, j.op)
	case j.root < 0 || j.root >= ranks:
		return fmt.Errorf("%w: root %d: expected 0 to %d", framework.ErrInvalid, j.root, ranks-1)
	case uint64(j.count) > math.MaxInt64/uint64(ranks)/8:
		return fmt.Errorf("%w: %d elements of %v a rank: too many bytes", framework.ErrInvalid, j.count, j.dtype)
	case j.input == nil && j.inCount > 0 || j.output == nil && j.outCount > 0:
		return fmt.Errorf("%w: a buffer is nil, expected %d elements in and %d out", framework.ErrInvalid, j.inCount, j.outCount)
	}
	return nil
}

func (j *job) inPlace(rank int, element uint64) bool {
	own := uintptr(uint64(j.count) * element * uint64(rank))
	switch j.collective {
	case AllGather:
		return uintptr(j.input) == uintptr(j.output)+own
	case ReduceScatter:
		return uintptr(j.output) == uintptr(j.input)+own
	}
	return j.input == j.output
}

// describe says in a request what the call is. Ranks and Device are there. The fields are written one by one: a
// copy of a new Request would wait for its stores, which are narrower than the loads of the copy.
func (j *job) describe(r *Request, rank int, element uint64) {
	r.Collective, r.Bytes, r.Count = j.collective, max(j.inCount, j.outCount)*element, uint64(j.count)
	r.Type, r.Op, r.Root = j.dtype, j.op, j.root
	r.InPlace = !r.Empty() && j.inPlace(rank, element)
}

// locate finds the exchanged memory of the buffers, and tells the request which of them there are.
func (j *job) locate(c *comm.Communicator, rank int, call *engine.Call, element uint64) {
	call.In, call.Out, call.Reached, call.NoCopies, call.NoWindow, call.NoPlace = engine.Buffer{}, engine.Buffer{}, 0, false, false, false
	call.Registered = false
	if call.Empty() {
		return
	}
	// A rank without one of the buffers answers like those that have it.
	if j.collective != Broadcast {
		if m, offset, ok := c.Find(uintptr(j.input), j.inCount*element); ok {
			call.In.Memory, call.In.Offset = m, offset
			call.Reached |= engine.ReachInputs
			call.NoPlace = m.Unbindable()
		}
	}
	if j.collective != Reduce || rank == j.root {
		if m, offset, ok := c.Find(uintptr(j.output), j.outCount*element); ok {
			call.Out.Memory, call.Out.Offset = m, offset
			call.Reached |= engine.ReachOutputs
			call.NoPlace = call.NoPlace || m.Unbindable()
		}
	}
	needed := choose.Reaches[j.collective]
	call.Registered = call.Reached&needed == needed
}

func deviceName(host bool) string {
	if host {
		return "host"
	}
	return "device"
}
