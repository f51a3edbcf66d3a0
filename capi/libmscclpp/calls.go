package main

// #include <string.h>
// #include "internal.h"
import "C"

import (
	"fmt"
	"maps"
	"math"
	"sync"
	"sync/atomic"
	"unsafe"

	"github.com/mscclpp-go/mscclpp/capi/internal/handles"
	"github.com/mscclpp-go/mscclpp/collectives"
	"github.com/mscclpp-go/mscclpp/framework"
	"github.com/mscclpp-go/mscclpp/framework/device"
	"github.com/mscclpp-go/mscclpp/framework/kernel"
)

//export mscclppGoCall
func mscclppGoCall(h C.uintptr_t, c *C.struct_call, f *C.struct_failure) (r C.int32_t) {
	defer recovered(f, &r)
	_, p, err := ready(handles.Handle(h))
	if err != nil {
		return fail(f, err)
	}
	return fail(f, p.perform(c))
}

// perform makes the call. It does not allocate if the collective does not.
func (p *parts) perform(c *C.struct_call) error {
	ranks := p.world.Size()
	if uint64(c.count) > math.MaxInt64/8/uint64(ranks) {
		return fmt.Errorf("%w: %d elements for each of %d ranks: expected less than the address space has", framework.ErrInvalid, c.count, ranks)
	}
	o := &collectives.CallOptions{
		Stream: device.Stream(uintptr(c.options.stream)), Scale: float64(c.options.scale),
		ScaleAt: c.options.scale_at, ScaleOnDevice: c.options.scale_on_device != 0,
	}
	if c.options.algorithm != nil {
		o.Algorithm = names.of(c.options.algorithm)
	}
	if c.options.size == 0 {
		o = nil // the program has passed none
	}
	in, out, count, root := c.send, c.recv, int(c.count), int(c.root)
	t, op := kernel.DataType(c._type), kernel.Op(c.op)
	switch c.kind {
	case C.CALL_ALL_REDUCE:
		return p.calls.AllReduce(in, out, count, t, op, o)
	case C.CALL_REDUCE:
		return p.calls.Reduce(in, out, count, t, op, root, o)
	case C.CALL_REDUCE_SCATTER:
		return p.calls.ReduceScatter(in, out, count, t, op, o)
	case C.CALL_ALL_GATHER:
		return p.calls.AllGather(in, out, count, t, o)
	case C.CALL_BROADCAST:
		return p.calls.Broadcast(in, out, count, t, root, o)
	case C.CALL_GATHER:
		return p.calls.Gather(in, out, count, t, root, o)
	case C.CALL_SCATTER:
		return p.calls.Scatter(in, out, count, t, root, o)
	case C.CALL_ALL_TO_ALL:
		return p.calls.AllToAll(in, out, count, t, o)
	case C.CALL_ALL_TO_ALL_V:
		return p.calls.AllToAllV(in, ints(c.send_counts, ranks), ints(c.send_offsets, ranks), out, ints(c.recv_counts, ranks), ints(c.recv_offsets, ranks), t, o)
	case C.CALL_SEND:
		return p.calls.Send(in, count, t, root, o)
	case C.CALL_RECV:
		return p.calls.Recv(out, count, t, root, o)
	case C.CALL_BARRIER:
		return p.calls.Barrier(o)
	}
	return fmt.Errorf("%w: call of kind %d", framework.ErrInvalid, c.kind)
}

// ints views an array of size_t; what an int does not hold is negative, and refused as such.
func ints(at *C.size_t, n int) []int { return unsafe.Slice((*int)(unsafe.Pointer(at)), n) }

// names keeps a Go string for each name of an algorithm that was seen, so that calls do
// not allocate.
var names interned

type interned struct {
	mu    sync.Mutex
	known atomic.Pointer[map[string]string]
}

// mostNames bounds what a program that makes names up can fill.
const mostNames = 4096

func (n *interned) of(c *C.char) string {
	text := unsafe.String((*byte)(unsafe.Pointer(c)), int(C.strlen(c)))
	if m := n.known.Load(); m != nil {
		if s, ok := (*m)[text]; ok {
			return s
		}
	}
	n.mu.Lock()
	defer n.mu.Unlock()
	s := C.GoString(c)
	grown := map[string]string{}
	if m := n.known.Load(); m != nil {
		if len(*m) >= mostNames {
			return s
		}
		maps.Copy(grown, *m)
	}
	grown[s] = s
	n.known.Store(&grown)
	return s
}

//export mscclppGoGroup
func mscclppGoGroup(h C.uintptr_t, start C.int, f *C.struct_failure) (r C.int32_t) {
	defer recovered(f, &r)
	_, p, err := ready(handles.Handle(h))
	switch {
	case err != nil:
		return fail(f, err)
	case start != 0:
		p.calls.GroupStart()
		return C.MSCCLPP_SUCCESS
	}
	return fail(f, p.calls.GroupEnd())
}

//export mscclppGoPrepare
func mscclppGoPrepare(h C.uintptr_t, collective *C.char, t C.int32_t, f *C.struct_failure) (r C.int32_t) {
	defer recovered(f, &r)
	_, p, err := ready(handles.Handle(h))
	if err != nil {
		return fail(f, err)
	}
	kind, err := collectives.ParseCollective(C.GoString(collective))
	if err != nil {
		return fail(f, fmt.Errorf("prepare: %w", err))
	}
	if t < 0 || t >= kernel.DataTypes {
		return fail(f, fmt.Errorf("%w: prepare: element type %d: expected 0 to %d", framework.ErrInvalid, t, kernel.DataTypes-1))
	}
	return fail(f, p.calls.Prepare(kind, kernel.DataType(t)))
}
