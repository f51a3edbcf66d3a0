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
	"github.com/mscclpp-go/mscclpp/framework/kernel"
	"github.com/mscclpp-go/mscclpp/inference"
)

//export mscclppGoWorkspaceCreate
func mscclppGoWorkspaceCreate(h C.uintptr_t, o *C.mscclpp_workspace_options_t, out *C.uintptr_t, f *C.struct_failure) (r C.int32_t) {
	defer recovered(f, &r)
	c, p, err := ready(handles.Handle(h))
	if err != nil {
		return fail(f, err)
	}
	ctx, cancel := c.bounded()
	defer cancel()
	w, err := inference.New(ctx, p.world, inference.Options{Scratch: uint64(o.scratch_bytes)})
	if err != nil {
		return fail(f, c.explain(err))
	}
	return fail(f, adopt(c, kindWorkspace, w, w.Close, out))
}

//export mscclppGoAllReduceNorm
func mscclppGoAllReduceNorm(h C.uintptr_t, c *C.mscclpp_norm_call_t, f *C.struct_failure) (r C.int32_t) {
	defer recovered(f, &r)
	x, err := objectOf[*inference.Workspace](kindWorkspace, h)
	if err != nil {
		return fail(f, err)
	}
	if c.tokens > math.MaxInt32 || c.hidden > math.MaxInt32 {
		return fail(f, fmt.Errorf("%w: all_reduce_norm: %d rows of %d elements: expected at most %d", framework.ErrInvalid, c.tokens, c.hidden, math.MaxInt32))
	}
	call := inference.NormCall{
		Norm: inference.Norm(c.norm), Quantization: inference.Quantization(c.quantization), Shots: inference.Shots(c.shots), Rows: inference.Rows(c.rows),
		Type: kernel.DataType(c._type), Tokens: int(c.tokens), Hidden: int(c.hidden), Epsilon: float32(c.epsilon),
		Input: c.input, Residual: c.residual, Weight: c.weight, Bias: c.bias, Output: c.output, ResidualOut: c.residual_out,
		Scales: unsafe.Pointer(c.scales), Scale: unsafe.Pointer(c.scale), Stream: device.Stream(uintptr(c.stream)),
	}
	return fail(f, x.owner.explain(x.value.AllReduceNorm(&call)))
}
