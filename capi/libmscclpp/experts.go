package main

// #include "internal.h"
import "C"

import (
	"fmt"
	"math"
	"unsafe"

	"github.com/mscclpp-go/mscclpp/capi/internal/handles"
	"github.com/mscclpp-go/mscclpp/framework"
	"github.com/mscclpp-go/mscclpp/framework/device"
	"github.com/mscclpp-go/mscclpp/inference/moe"
)

// sized returns the options of C, if their numbers are small enough to be looked at.
func sized(o *C.mscclpp_moe_options_t) (moe.Options, error) {
	if err := small("experts", o.tokens, o.hidden, o.experts); err != nil {
		return moe.Options{}, err
	}
	return moe.Options{Tokens: int(o.tokens), Hidden: int(o.hidden), Experts: int(o.experts)}, nil
}

func small(op string, numbers ...C.size_t) error {
	for _, n := range numbers {
		if n > math.MaxInt32 {
			return fmt.Errorf("%w: %s: a size of %d: expected at most %d", framework.ErrInvalid, op, n, math.MaxInt32)
		}
	}
	return nil
}

//export mscclppGoMoeCreate
func mscclppGoMoeCreate(h C.uintptr_t, options *C.mscclpp_moe_options_t, out *C.uintptr_t, f *C.struct_failure) (r C.int32_t) {
	defer recovered(f, &r)
	o, err := sized(options)
	if err != nil {
		return fail(f, err)
	}
	c, p, err := ready(handles.Handle(h))
	if err != nil {
		return fail(f, err)
	}
	ctx, cancel := c.bounded()
	defer cancel()
	b, err := moe.New(ctx, p.world, o)
	if err != nil {
		return fail(f, c.explain(err))
	}
	return fail(f, adopt(c, kindMoE, b, b.Close, out))
}

//export mscclppGoMoeSizes
func mscclppGoMoeSizes(options *C.mscclpp_moe_options_t, ranks C.int32_t, bytes, handle *C.size_t, f *C.struct_failure) (r C.int32_t) {
	defer recovered(f, &r)
	o, err := sized(options)
	if err == nil {
		err = o.Check(int(ranks))
	}
	if err != nil {
		return fail(f, err)
	}
	if bytes != nil {
		*bytes = C.size_t(o.Bytes(int(ranks)))
	}
	if handle != nil {
		*handle = C.size_t(o.HandleBytes(int(ranks)))
	}
	return fail(f, nil)
}

// ticket is that of a call in phases.
func ticket(phase C.int32_t, at *C.uint64_t) (uint64, error) {
	if at == nil {
		if moe.Phase(phase) != moe.Whole {
			return 0, fmt.Errorf("%w: dispatch or combine: phase %d without a ticket", framework.ErrInvalid, phase)
		}
		return 0, nil
	}
	return uint64(*at), nil
}

//export mscclppGoMoeDispatch
func mscclppGoMoeDispatch(h C.uintptr_t, c *C.mscclpp_dispatch_call_t, f *C.struct_failure) (r C.int32_t) {
	defer recovered(f, &r)
	x, err := objectOf[*moe.Buffer](kindMoE, h)
	if err == nil {
		err = small("dispatch", c.tokens, c.hidden, c.top_k, c.slots, c.row_scales)
	}
	if err != nil {
		return fail(f, err)
	}
	number, err := ticket(c.phase, c.ticket)
	if err != nil {
		return fail(f, err)
	}
	call := moe.DispatchCall{
		Phase: moe.Phase(c.phase), Ticket: number, Format: moe.Format(c.format), Tokens: int(c.tokens), Hidden: int(c.hidden), TopK: int(c.top_k),
		Slots: int(c.slots), RowScales: int(c.row_scales), RoundScale: c.round_scale != 0, Exponents: c.exponents != 0,
		Input: c.input, Scales: unsafe.Pointer(c.scales), Indices: c.indices, Index64: c.index64 != 0, Weights: unsafe.Pointer(c.weights),
		Output: c.output, OutputScales: c.output_scales, Sources: unsafe.Pointer(c.sources), Ranges: unsafe.Pointer(c.ranges),
		Received: unsafe.Pointer(c.received), Statistics: unsafe.Pointer(c.statistics), Handle: c.handle, Stream: device.Stream(uintptr(c.stream)),
	}
	err = x.owner.explain(x.value.Dispatch(&call))
	if c.ticket != nil {
		*c.ticket = C.uint64_t(call.Ticket)
	}
	return fail(f, err)
}

//export mscclppGoMoeCombine
func mscclppGoMoeCombine(h C.uintptr_t, c *C.mscclpp_combine_call_t, f *C.struct_failure) (r C.int32_t) {
	defer recovered(f, &r)
	x, err := objectOf[*moe.Buffer](kindMoE, h)
	if err == nil {
		err = small("combine", c.tokens, c.hidden, c.top_k, c.slots)
	}
	if err != nil {
		return fail(f, err)
	}
	number, err := ticket(c.phase, c.ticket)
	if err != nil {
		return fail(f, err)
	}
	call := moe.CombineCall{
		Phase: moe.Phase(c.phase), Ticket: number, Tokens: int(c.tokens), Hidden: int(c.hidden), TopK: int(c.top_k), Slots: int(c.slots),
		Input: c.input, Indices: c.indices, Index64: c.index64 != 0, Weights: unsafe.Pointer(c.weights), Weighted: c.weighted != 0, Handle: c.handle,
		Output: c.output, Stream: device.Stream(uintptr(c.stream)),
	}
	err = x.owner.explain(x.value.Combine(&call))
	if c.ticket != nil {
		*c.ticket = C.uint64_t(call.Ticket)
	}
	return fail(f, err)
}
