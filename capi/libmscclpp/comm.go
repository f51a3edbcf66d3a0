package main

// #include "internal.h"
import "C"

import (
	"context"
	"errors"
	"fmt"
	"math"
	"strconv"
	"strings"
	"sync"
	"time"
	"unsafe"

	"github.com/mscclpp-go/mscclpp/capi/internal/handles"
	"github.com/mscclpp-go/mscclpp/collectives"
	"github.com/mscclpp-go/mscclpp/framework"
	"github.com/mscclpp-go/mscclpp/framework/bootstrap"
	"github.com/mscclpp-go/mscclpp/framework/device"
	"github.com/mscclpp-go/mscclpp/internal/fastpath"
	"github.com/mscclpp-go/mscclpp/internal/lastwords"
)

//export mscclppGoCommCreate
func mscclppGoCommCreate(o *C.mscclpp_comm_options_t, out *C.uintptr_t, f *C.struct_failure) (r C.int32_t) {
	defer recovered(f, &r)
	p, timeout, log, err := plan(o)
	if err == nil {
		err = goodbyes()
	}
	if err != nil {
		return fail(f, err)
	}
	c := newCommunicator(timeout)
	c.plan, c.log, c.version = p, log, C.GoString(o.version)
	h, err := table.Add(kindComm, c)
	if err != nil {
		return fail(f, errors.Join(err, c.destroy(err, false)))
	}
	*out = C.uintptr_t(h)
	return C.MSCCLPP_SUCCESS
}

// goodbyes has the connections of this process say goodbye when it exits: see exit.c.
var goodbyes = sync.OnceValue(func() error {
	at, err := lastwords.Enable()
	if err == nil {
		C.lastwords_are(at, lastwords.Slots)
	}
	return err
})

//export mscclppGoCommJoin
func mscclppGoCommJoin(h C.uintptr_t, f *C.struct_failure) (r C.int32_t) {
	defer recovered(f, &r)
	c, err := find(handles.Handle(h))
	if err != nil {
		return fail(f, err)
	}
	err = c.join()
	if err == nil {
		bind(handles.Handle(h), c)
	}
	return fail(f, err)
}

//export mscclppGoCommPlace
func mscclppGoCommPlace(h C.uintptr_t, rank, size *C.int32_t, f *C.struct_failure) (r C.int32_t) {
	defer recovered(f, &r)
	_, p, err := ready(handles.Handle(h))
	if err != nil {
		return fail(f, err)
	}
	if rank != nil {
		*rank = C.int32_t(p.world.Rank())
	}
	if size != nil {
		*size = C.int32_t(p.world.Size())
	}
	return C.MSCCLPP_SUCCESS
}

//export mscclppGoCommQuery
func mscclppGoCommQuery(h C.uintptr_t, property, text *C.char, size *C.size_t, f *C.struct_failure) (r C.int32_t) {
	defer recovered(f, &r)
	_, p, err := ready(handles.Handle(h))
	if err != nil {
		return fail(f, err)
	}
	value, err := p.query(C.GoString(property))
	if err != nil {
		return fail(f, err)
	}
	room := int(min(uint64(*size), math.MaxInt32))
	*size = C.size_t(len(value) + 1)
	if room < len(value)+1 {
		return fail(f, fmt.Errorf("%w: comm query: room for %d bytes: expected %d", framework.ErrInvalid, room, len(value)+1))
	}
	to := unsafe.Slice((*byte)(unsafe.Pointer(text)), room)
	to[copy(to, value)] = 0
	return C.MSCCLPP_SUCCESS
}

func (p *parts) query(property string) (string, error) {
	if name, ok := strings.CutPrefix(property, "algorithms."); ok {
		kind, err := collectives.ParseCollective(name)
		if err != nil {
			return "", fmt.Errorf("comm query: %w", err)
		}
		return strings.Join(p.calls.Algorithms(kind), " "), nil
	}
	switch property {
	case "device":
		return p.job.Device.Info().Device.String(), nil
	case "device.name":
		return p.job.Device.Info().Name, nil
	case "transports":
		return strings.Join(p.job.Transports(), " "), nil
	case "shared":
		if p.calls.Shared() {
			return "1", nil
		}
		return "0", nil
	case "name":
		return p.world.Name(), nil
	case "calls.repeated":
		return strconv.FormatUint(fastpath.Of(p.world).Calls(), 10), nil
	case "host":
		return p.world.HostOf(p.world.Rank()), nil
	case "host.id":
		return bootstrap.HostID(p.job.Boot), nil
	}
	return "", fmt.Errorf("%w: comm query: property %q: expected device, device.name, transports, shared, name, host, host.id, calls.repeated or algorithms.COLLECTIVE", framework.ErrInvalid, property)
}

// exchangeMost bounds what a rank gives in an exchange: it is for agreements, and not for data.
const exchangeMost = 16 << 20

//export mscclppGoCommExchange
func mscclppGoCommExchange(h C.uintptr_t, mine unsafe.Pointer, bytes C.size_t, all unsafe.Pointer, f *C.struct_failure) (r C.int32_t) {
	defer recovered(f, &r)
	c, p, err := ready(handles.Handle(h))
	if err != nil {
		return fail(f, err)
	}
	if bytes > exchangeMost {
		return fail(f, fmt.Errorf("%w: comm exchange: %d bytes: expected at most %d", framework.ErrInvalid, bytes, exchangeMost))
	}
	ctx, cancel := c.bounded()
	defer cancel()
	n := int(bytes)
	parts, err := p.world.AllGather(ctx, C.GoBytes(mine, C.int(n)))
	if err != nil {
		return fail(f, c.explain(err))
	}
	to := unsafe.Slice((*byte)(all), n*len(parts))
	for rank, part := range parts {
		if len(part) != n {
			return fail(f, fmt.Errorf("%w: comm exchange: rank %d gives %d bytes, and this rank %d: expected the same of all", framework.ErrInvalid, rank, len(part), n))
		}
		copy(to[rank*n:], part)
	}
	return C.MSCCLPP_SUCCESS
}

//export mscclppGoCommStatus
func mscclppGoCommStatus(h C.uintptr_t, f *C.struct_failure) (r C.int32_t) {
	defer recovered(f, &r)
	c, err := find(handles.Handle(h))
	if err != nil {
		return fail(f, err)
	}
	joined, err := c.status()
	if err == nil && !joined {
		return C.MSCCLPP_IN_PROGRESS
	}
	return fail(f, err)
}

//export mscclppGoCommCheck
func mscclppGoCommCheck(h C.uintptr_t, f *C.struct_failure) (r C.int32_t) {
	defer recovered(f, &r)
	_, p, err := ready(handles.Handle(h))
	if err != nil {
		return fail(f, err)
	}
	return fail(f, p.calls.Check())
}

//export mscclppGoCommSplit
func mscclppGoCommSplit(h C.uintptr_t, color, key C.int32_t, out *C.uintptr_t, f *C.struct_failure) (r C.int32_t) {
	defer recovered(f, &r)
	c, p, err := ready(handles.Handle(h))
	if err != nil {
		return fail(f, err)
	}
	child, err := c.split(p, int(color), int(key))
	if err != nil || child == nil {
		return fail(f, err)
	}
	made, err := table.Add(kindComm, child)
	if err != nil {
		return fail(f, errors.Join(err, child.destroy(err, false)))
	}
	bind(made, child)
	*out = C.uintptr_t(made)
	return C.MSCCLPP_SUCCESS
}

//export mscclppGoCommShrink
func mscclppGoCommShrink(h C.uintptr_t, excluded *C.int32_t, count C.size_t, flags C.uint32_t, out *C.uintptr_t, f *C.struct_failure) (r C.int32_t) {
	defer recovered(f, &r)
	c, p, err := ready(handles.Handle(h))
	if err != nil {
		return fail(f, err)
	}
	if flags&^C.MSCCLPP_SHRINK_ABORT != 0 {
		return fail(f, fmt.Errorf("%w: comm shrink: flags 0x%x: expected 0 or MSCCLPP_SHRINK_ABORT", framework.ErrInvalid, flags))
	}
	var ranks []int
	for _, rank := range unsafe.Slice((*int32)(unsafe.Pointer(excluded)), int(min(count, math.MaxInt32))) {
		ranks = append(ranks, int(rank))
	}
	child, err := c.shrink(p, ranks, flags&C.MSCCLPP_SHRINK_ABORT != 0)
	if err != nil {
		return fail(f, err)
	}
	made, err := table.Add(kindComm, child)
	if err != nil {
		return fail(f, errors.Join(err, child.destroy(err, false)))
	}
	*out = C.uintptr_t(made)
	return C.MSCCLPP_SUCCESS
}

//export mscclppGoCommSettle
func mscclppGoCommSettle(h C.uintptr_t, streams *unsafe.Pointer, count C.size_t, timeout C.uint64_t, f *C.struct_failure) (r C.int32_t) {
	defer recovered(f, &r)
	c, p, err := ready(handles.Handle(h))
	if err != nil {
		return fail(f, err)
	}
	ctx := c.ctx
	if timeout > 0 && timeout < math.MaxInt64 {
		var cancel context.CancelFunc
		ctx, cancel = context.WithTimeout(ctx, time.Duration(timeout))
		defer cancel()
	}
	if count == 0 {
		return fail(f, c.explain(collectives.Settle(ctx, p.calls)))
	}
	all := unsafe.Slice((*device.Stream)(unsafe.Pointer(streams)), int(count))
	return fail(f, c.explain(p.world.Settle(ctx, all...)))
}

//export mscclppGoCommDestroy
func mscclppGoCommDestroy(h C.uintptr_t, f *C.struct_failure) (r C.int32_t) {
	defer recovered(f, &r)
	unbind(handles.Handle(h))
	v, err := table.Remove(kindComm, handles.Handle(h))
	if err != nil {
		return fail(f, err)
	}
	return fail(f, v.(*communicator).destroy(errDestroyed, false))
}

//export mscclppGoCommAbort
func mscclppGoCommAbort(h C.uintptr_t, cause *C.char, alone C.int, f *C.struct_failure) (r C.int32_t) {
	defer recovered(f, &r)
	unbind(handles.Handle(h))
	v, err := table.Remove(kindComm, handles.Handle(h))
	if err != nil {
		return fail(f, err)
	}
	text := C.GoString(cause)
	if text == "" {
		text = "by the program"
	}
	v.(*communicator).abort(fmt.Errorf("%w: aborted: %s", framework.ErrClosed, text), alone != 0)
	return C.MSCCLPP_SUCCESS
}

//export mscclppGoCommDump
func mscclppGoCommDump(h C.uintptr_t, write C.mscclpp_write_fn, context unsafe.Pointer, f *C.struct_failure) (r C.int32_t) {
	defer recovered(f, &r)
	_, p, err := ready(handles.Handle(h))
	if err != nil {
		return fail(f, err)
	}
	return fail(f, p.world.Dump(&writer{write, context}))
}

// writer passes text to a function of the program.
type writer struct {
	write   C.mscclpp_write_fn
	context unsafe.Pointer
}

// Write implements io.Writer.
func (w *writer) Write(text []byte) (int, error) {
	if len(text) > 0 {
		C.call_write(w.write, w.context, (*C.char)(unsafe.Pointer(&text[0])), C.size_t(len(text)))
	}
	return len(text), nil
}
