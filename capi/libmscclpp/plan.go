package main

// #include "internal.h"
import "C"

import (
	"sync"
	"unsafe"

	"github.com/mscclpp-go/mscclpp/capi/internal/handles"
	"github.com/mscclpp-go/mscclpp/plan/dsl/session"
)

// planProgram is a program of the plan language. Its calls come from any thread, one after the other.
type planProgram struct {
	mu      sync.Mutex
	session session.Session
}

//export mscclppGoPlanProgramCreate
func mscclppGoPlanProgramCreate(out *C.uintptr_t, f *C.struct_failure) (r C.int32_t) {
	defer recovered(f, &r)
	h, err := table.Add(kindPlanProgram, &planProgram{})
	if err == nil {
		*out = C.uintptr_t(h)
	}
	return fail(f, err)
}

//export mscclppGoPlanProgramCall
func mscclppGoPlanProgramCall(h C.uintptr_t, message *C.char, size C.size_t, answer C.mscclpp_write_fn, context unsafe.Pointer, f *C.struct_failure) (r C.int32_t) {
	defer recovered(f, &r)
	v, err := table.Get(kindPlanProgram, handles.Handle(h))
	if err != nil {
		return fail(f, err)
	}
	p := v.(*planProgram)
	text := unsafe.Slice((*byte)(unsafe.Pointer(message)), int(size))
	p.mu.Lock()
	got := p.session.Call(text)
	p.mu.Unlock()
	_, err = (&writer{answer, context}).Write(got)
	return fail(f, err)
}

//export mscclppGoPlanProgramFree
func mscclppGoPlanProgramFree(h C.uintptr_t, f *C.struct_failure) (r C.int32_t) {
	defer recovered(f, &r)
	_, err := table.Remove(kindPlanProgram, handles.Handle(h))
	return fail(f, err)
}
