package collectives

import (
	"context"
	"fmt"
	"unsafe"

	"github.com/mscclpp-go/mscclpp/framework"
	"github.com/mscclpp-go/mscclpp/framework/device"
	"github.com/mscclpp-go/mscclpp/framework/gpu"
)

// enqueueDirect enqueues one call of all ranks in which the host takes no part: on a
// stream that is captured as well.
func (p *ports) enqueueDirect(c *Call) error {
	p.mu.Lock()
	defer p.mu.Unlock()
	t := p.begin(c, hierarchicalDirect)
	state, err := t.device.Query(t.stream)
	if err != nil {
		return err
	}
	t.direct, t.captured = true, state == gpu.StreamCapturing
	sum, err := p.hierarchy.direct.prepare(c.Type, t.captured)
	if err != nil {
		return err
	}
	return t.perform(func() {
		p.calls++
		t.allReduceDirect(sum)
	})
}

// prepare loads what calls with elements of a type need, and returns the kernel that
// sums.
func (d *direct) prepare(dtype device.DataType, captured bool) (gpu.Kernel, error) {
	if k := d.sum.loaded[dtype]; k != nil {
		return k, nil
	}
	if captured {
		return nil, fmt.Errorf("%w: algorithm %s: expected the first call with elements of %v outside of a capture: it loads kernels",
			framework.ErrInvalid, hierarchicalDirect, dtype)
	}
	ctx, cancel := context.WithTimeout(context.Background(), prepareTimeout)
	defer cancel()
	sum, err := d.ports.courier.world.Load(ctx, d.sum.kernel, dtype)
	if err != nil {
		return nil, err
	}
	if x := d.ports.hierarchy.inside; x != nil {
		if err := x.Prepare(ReduceScatter, dtype); err != nil {
			return nil, err
		}
		if err := x.Prepare(AllGather); err != nil {
			return nil, err
		}
	}
	d.sum.loaded[dtype] = sum
	return sum, nil
}

// greet has the counterparts compare what this call is, before one in which the host
// takes part: they may be in a call in which it does not, and the two would wait for
// each other for ever.
func (t *trip) greet() {
	if h := t.ports.hierarchy; h != nil && h.carries.Load() {
		t.exchange(t.stream, 0, 0)
	}
}

// exchange gives some bytes to the counterparts on all hosts.
func (t *trip) exchange(s gpu.Stream, in uintptr, bytes uint64) {
	if t.err != nil {
		return
	}
	d := t.ports.hierarchy.direct
	a := &d.args
	a.Input, a.Bytes, a.Signature = in, bytes, t.sign
	blocks := min(exchangeBlocks, d.blocks, uint32(1+bytes/exchangeBlockBytes))
	t.err = d.exchange.loaded[device.Uint8].Launch(gpu.Launch{Grid: blocks, Block: d.threads(d.exchange), Stream: s}, unsafe.Pointer(a), unsafe.Sizeof(*a))
}

// combine reduces what this rank has with what the counterparts gave, in the order of
// the hosts.
func (t *trip) combine(s gpu.Stream, sum gpu.Kernel, in, out uintptr, count uint64) {
	if t.err != nil || count == 0 {
		return
	}
	h, c := t.ports.hierarchy, t.call
	d := h.direct
	a := &d.sums
	a.Input, a.Output, a.Count, a.Op, a.Scale = in, out, count, uint32(c.Op), c.Scale
	switch {
	case h.most == 1:
	case c.Op == device.PreMulSum: // done inside
		a.Op = uint32(device.Sum)
	case c.Op == device.Avg: // what is inside was made smaller
		a.Op, a.Scale = uint32(device.PreMulSum), h.smaller()/float64(t.ports.comm.Size())
	}
	t.err = sum.Launch(gpu.Launch{Grid: d.blocks, Block: d.threads(d.sum), Stream: s}, unsafe.Pointer(a), unsafe.Sizeof(*a))
}

func (d *direct) threads(a *algorithm) uint32 {
	if n := a.kernel.MaxThreads; n > 0 {
		return min(deviceThreads, uint32(n))
	}
	return deviceThreads
}

// after has what comes on one stream wait for what is on another.
func (t *trip) after(m gpu.Mark, later, earlier gpu.Stream) {
	t.record(m, earlier)
	t.join(m, later)
}

func (t *trip) record(m gpu.Mark, s gpu.Stream) {
	if t.err == nil {
		t.err = m.Record(s)
	}
}

func (t *trip) join(m gpu.Mark, s gpu.Stream) {
	if t.err == nil {
		t.err = m.Wait(s)
	}
}

// allReduceDirect takes each piece through a reduce-scatter inside the host, an exchange
// with the counterparts, a sum, and an all-gather inside. While a piece is between hosts,
// on a stream of its own, the next is reduced and the one before it gathered.
func (t *trip) allReduceDirect(sum gpu.Kernel) {
	h, c := t.ports.hierarchy, t.call
	element := uint64(c.Type.Size())
	size := h.piece(c.Count, element)
	if c.Count == 0 {
		t.exchange(t.stream, 0, 0)
		return
	}
	pieces := int((c.Count + size - 1) / size)
	of := func(k int) (at uintptr, count uint64) {
		first := uint64(k) * size
		return uintptr(first * element), min(size, c.Count-first)
	}
	if h.most == 1 { // nothing inside
		for k := range pieces {
			at, count := of(k)
			t.exchange(t.stream, address(c.Input)+at, count*element)
			t.combine(t.stream, sum, address(c.Input)+at, address(c.Output)+at, count)
		}
		return
	}
	between := t.stream
	if pieces > 1 {
		between = h.direct.side
	}
	marks := &h.direct.marks
	for k := range pieces + 1 {
		if k < pieces {
			at, count := of(k)
			t.scatter(address(c.Input)+at, count, t.place(k%3))
			if between != t.stream {
				t.after(marks[2], between, t.stream)
			}
			own := h.mine(count)
			t.exchange(between, t.place(k%3), (own.to-own.from)*element)
			t.combine(between, sum, t.place(k%3), t.summed(k, at, count), own.to-own.from)
			if between != t.stream {
				t.record(marks[k%2], between)
			}
		}
		if between == t.stream && k < pieces {
			at, count := of(k)
			t.gather(t.summed(k, at, count), count, address(c.Output)+at)
		} else if between != t.stream && k > 0 {
			at, count := of(k - 1)
			t.join(marks[(k-1)%2], t.stream)
			t.gather(t.summed(k-1, at, count), count, address(c.Output)+at)
		}
	}
}

// summed is where the sum of this rank's share of a piece goes: where it belongs, if the
// piece can be divided evenly.
func (t *trip) summed(k int, at uintptr, count uint64) uintptr {
	h := t.ports.hierarchy
	if own := h.mine(count); share(count, h.size())*uint64(h.size()) == count {
		return address(t.call.Output) + at + uintptr(own.from*uint64(t.call.Type.Size()))
	}
	return t.place(k % 3)
}
