package main

// #include "internal.h"
import "C"

import (
	"encoding/json"
	"unsafe"

	"github.com/mscclpp-go/mscclpp/capi/internal/handles"
	"github.com/mscclpp-go/mscclpp/framework/device"
	"github.com/mscclpp-go/mscclpp/framework/kernel"
	"github.com/mscclpp-go/mscclpp/plan/exec"
	"github.com/mscclpp-go/mscclpp/plan/schema"
	"github.com/mscclpp-go/mscclpp/plan/verify"
)

//export mscclppGoPlanRead
func mscclppGoPlanRead(file *C.char, out *C.uintptr_t, f *C.struct_failure) (r C.int32_t) {
	defer recovered(f, &r)
	return fail(f, keepPlan(out)(schema.ReadFile(C.GoString(file))))
}

//export mscclppGoPlanParse
func mscclppGoPlanParse(text *C.char, size C.size_t, out *C.uintptr_t, f *C.struct_failure) (r C.int32_t) {
	defer recovered(f, &r)
	return fail(f, keepPlan(out)(schema.Parse(unsafe.Slice((*byte)(unsafe.Pointer(text)), int(size)))))
}

// keepPlan gives a plan a handle.
func keepPlan(out *C.uintptr_t) func(*schema.Plan, error) error {
	return func(p *schema.Plan, err error) error {
		if err != nil {
			return err
		}
		h, err := table.Add(kindPlan, p)
		if err == nil {
			*out = C.uintptr_t(h)
		}
		return err
	}
}

func planOf(h C.uintptr_t) (*schema.Plan, error) {
	v, err := table.Get(kindPlan, handles.Handle(h))
	if err != nil {
		return nil, err
	}
	return v.(*schema.Plan), nil
}

// description is a plan in short.
type description struct {
	Name       string       `json:"name"`
	Collective string       `json:"collective"`
	Protocol   string       `json:"protocol"`
	InPlace    bool         `json:"in_place"`
	Ranks      int          `json:"ranks"`
	Min        uint64       `json:"min_message_size"`
	Max        uint64       `json:"max_message_size"`
	Alignment  int          `json:"buffer_alignment"`
	Chunks     []rankChunks `json:"chunks"`
}

type rankChunks struct {
	Input   int `json:"input"`
	Output  int `json:"output"`
	Scratch int `json:"scratch"`
}

//export mscclppGoPlanDescribe
func mscclppGoPlanDescribe(h C.uintptr_t, answer C.mscclpp_write_fn, context unsafe.Pointer, f *C.struct_failure) (r C.int32_t) {
	defer recovered(f, &r)
	p, err := planOf(h)
	if err != nil {
		return fail(f, err)
	}
	d := description{p.Name, p.Collective, string(p.Protocol), p.InPlace, len(p.GPUs), p.MinSize, p.MaxSize, p.Alignment, nil}
	for i := range p.GPUs {
		g := &p.GPUs[i]
		d.Chunks = append(d.Chunks, rankChunks{g.InputChunks, g.OutputChunks, g.ScratchChunks})
	}
	return fail(f, answerJSON(d, answer, context))
}

//export mscclppGoPlanCheck
func mscclppGoPlanCheck(h C.uintptr_t, answer C.mscclpp_write_fn, context unsafe.Pointer, f *C.struct_failure) (r C.int32_t) {
	defer recovered(f, &r)
	p, err := planOf(h)
	if err != nil {
		return fail(f, err)
	}
	return fail(f, answerJSON(verify.Plan(p), answer, context))
}

func answerJSON(v any, answer C.mscclpp_write_fn, context unsafe.Pointer) error {
	text, err := json.Marshal(v)
	if err != nil {
		return err
	}
	_, err = (&writer{answer, context}).Write(text)
	return err
}

//export mscclppGoPlanFree
func mscclppGoPlanFree(h C.uintptr_t, f *C.struct_failure) (r C.int32_t) {
	defer recovered(f, &r)
	_, err := table.Remove(kindPlan, handles.Handle(h))
	return fail(f, err)
}

//export mscclppGoExecutorCreate
func mscclppGoExecutorCreate(h, plan C.uintptr_t, out *C.uintptr_t, f *C.struct_failure) (r C.int32_t) {
	defer recovered(f, &r)
	c, p, err := ready(handles.Handle(h))
	if err != nil {
		return fail(f, err)
	}
	text, err := planOf(plan)
	if err != nil {
		return fail(f, err)
	}
	ctx, cancel := c.bounded()
	defer cancel()
	e, err := exec.New(ctx, p.world, text)
	if err != nil {
		return fail(f, c.explain(err))
	}
	return fail(f, adopt(c, kindExecutor, e, e.Close, out))
}

//export mscclppGoExecutorExecute
func mscclppGoExecutorExecute(h C.uintptr_t, input unsafe.Pointer, inBytes C.size_t, output unsafe.Pointer, outBytes C.size_t, dtype C.int32_t,
	o *C.mscclpp_execute_options_t, f *C.struct_failure) (r C.int32_t) {
	defer recovered(f, &r)
	x, err := objectOf[*exec.Executor](kindExecutor, h)
	if err != nil {
		return fail(f, err)
	}
	call := exec.Call{
		Input: input, InputBytes: uint64(inBytes), Output: output, OutputBytes: uint64(outBytes),
		Type: kernel.DataType(dtype), Op: kernel.Op(o.op), Packet: exec.Packet(o.packet_bytes),
		Stream: device.Stream(uintptr(o.stream)), KeepInput: o.keep_input != 0,
	}
	return fail(f, x.owner.explain(x.value.Execute(&call)))
}
