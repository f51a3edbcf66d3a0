package main

// #include "internal.h"
import "C"

import (
	"fmt"

	"github.com/mscclpp-go/mscclpp/capi/internal/handles"
	"github.com/mscclpp-go/mscclpp/framework"
)

//export mscclppGoTraceSwitch
func mscclppGoTraceSwitch(h C.uintptr_t, on C.int32_t, f *C.struct_failure) (r C.int32_t) {
	defer recovered(f, &r)
	_, p, err := ready(handles.Handle(h))
	if err != nil {
		return fail(f, err)
	}
	o := p.world.Observer()
	if o == nil && on != 0 {
		return fail(f, fmt.Errorf("%w: trace start: observe.enabled is false: expected true", framework.ErrUnavailable))
	}
	o.Switch(on != 0)
	return C.MSCCLPP_SUCCESS
}

//export mscclppGoTraceMark
func mscclppGoTraceMark(h C.uintptr_t, text *C.char, f *C.struct_failure) (r C.int32_t) {
	defer recovered(f, &r)
	_, p, err := ready(handles.Handle(h))
	if err != nil {
		return fail(f, err)
	}
	if o := p.world.Observer(); o.On() {
		o.Mark(C.GoString(text))
	}
	return C.MSCCLPP_SUCCESS
}
