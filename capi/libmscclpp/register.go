package main

// #include "internal.h"
import "C"

import (
	"fmt"
	"unsafe"

	"github.com/mscclpp-go/mscclpp/capi/internal/handles"
	"github.com/mscclpp-go/mscclpp/collectives"
	"github.com/mscclpp-go/mscclpp/framework"
	"github.com/mscclpp-go/mscclpp/plan/attach"
	"github.com/mscclpp-go/mscclpp/plan/exec"
	"github.com/mscclpp-go/mscclpp/plan/verify"
)

func init() {
	for k := collectives.AllReduce; k.Valid(); k++ {
		C.request_names(C.uint32_t(k), C.CString(k.String()))
	}
}

//export mscclppGoPlanRegister
func mscclppGoPlanRegister(h, plan C.uintptr_t, o *C.mscclpp_register_options_t, f *C.struct_failure) (r C.int32_t) {
	defer recovered(f, &r)
	c, p, err := ready(handles.Handle(h))
	if err != nil {
		return fail(f, err)
	}
	text, err := planOf(plan)
	if err != nil {
		return fail(f, err)
	}
	packet := exec.Packet(o.packet_bytes)
	switch {
	case o.flags&^C.MSCCLPP_PLAN_UNVERIFIED != 0:
		return fail(f, fmt.Errorf("%w: plan register: flags 0x%x: expected 0 or MSCCLPP_PLAN_UNVERIFIED", framework.ErrInvalid, o.flags))
	case packet != 0 && packet != exec.LL8 && packet != exec.LL16:
		return fail(f, fmt.Errorf("%w: plan register: packets of %d bytes: expected 8, 16, or 0 for 16", framework.ErrInvalid, o.packet_bytes))
	case o.flags == 0:
		if got := verify.Known(text); got.Verdict != verify.Right {
			return fail(f, fmt.Errorf("%w: plan register: %s is not right, but %s: %s; expected a right one, or MSCCLPP_PLAN_UNVERIFIED", framework.ErrInvalid, text.Name, got.Verdict, got.Reason))
		}
	}
	ctx, cancel := c.bounded()
	defer cancel()
	if _, err := (attach.Options{Packet: packet}).To(ctx, p.calls, text); err != nil {
		return fail(f, fmt.Errorf("plan register: %w", c.explain(err)))
	}
	return C.MSCCLPP_SUCCESS
}

//export mscclppGoSelectorRegister
func mscclppGoSelectorRegister(h C.uintptr_t, selector C.mscclpp_selector_fn, context unsafe.Pointer, f *C.struct_failure) (r C.int32_t) {
	defer recovered(f, &r)
	_, p, err := ready(handles.Handle(h))
	if err != nil {
		return fail(f, err)
	}
	if selector == nil {
		p.calls.RegisterSelector(nil)
		return C.MSCCLPP_SUCCESS
	}
	p.calls.RegisterSelector(func(q *collectives.Request) string {
		var inPlace C.int32_t
		if q.InPlace {
			inPlace = 1
		}
		name := C.call_selector(selector, context, C.uint32_t(q.Collective), C.uint64_t(q.Bytes), C.uint64_t(q.Count),
			C.int32_t(q.Type), C.int32_t(q.Op), C.int32_t(q.Root), C.int32_t(q.Ranks), inPlace)
		if name == nil {
			return ""
		}
		return names.of(name)
	})
	return C.MSCCLPP_SUCCESS
}
