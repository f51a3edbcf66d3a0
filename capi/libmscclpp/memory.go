package main

// #include "internal.h"
import "C"

import (
	"errors"
	"fmt"
	"math"
	"unsafe"

	"github.com/mscclpp-go/mscclpp/capi/internal/handles"
	"github.com/mscclpp-go/mscclpp/framework"
	"github.com/mscclpp-go/mscclpp/framework/comm"
	"github.com/mscclpp-go/mscclpp/framework/device"
	"github.com/mscclpp-go/mscclpp/framework/kernel"
)

//export mscclppGoMemoryAlloc
func mscclppGoMemoryAlloc(h C.uintptr_t, bytes C.size_t, out *C.uintptr_t, f *C.struct_failure) (r C.int32_t) {
	defer recovered(f, &r)
	c, p, err := ready(handles.Handle(h))
	if err != nil {
		return fail(f, err)
	}
	m, err := p.world.Alloc(uint64(bytes))
	if err != nil {
		return fail(f, err)
	}
	return fail(f, adopt(c, kindMemory, m, func() error { return c.behind(m.Close) }, out))
}

//export mscclppGoMemoryRegister
func mscclppGoMemoryRegister(h, address C.uintptr_t, bytes C.size_t, out *C.uintptr_t, f *C.struct_failure) (r C.int32_t) {
	defer recovered(f, &r)
	c, p, err := ready(handles.Handle(h))
	if err != nil {
		return fail(f, err)
	}
	inner, err := wrap(p.job.Device, uintptr(address), uint64(bytes))
	if err != nil {
		return fail(f, err)
	}
	m, err := p.world.Register(inner)
	if err != nil {
		_ = inner.Close()
		return fail(f, err)
	}
	free := func() error {
		err := m.Close()
		_ = inner.Close() // it is the program's
		return err
	}
	return fail(f, adopt(c, kindMemory, m, func() error { return c.behind(free) }, out))
}

// wrap makes memory of the program that of a device.
func wrap(d device.Device, address uintptr, bytes uint64) (device.Memory, error) {
	if d, ok := d.(device.Wrapper); ok {
		return d.WrapMemory(address, bytes)
	}
	return nil, fmt.Errorf("%w: memory register: device %v", framework.ErrUnsupported, d.Info().Device)
}

//export mscclppGoMemoryRange
func mscclppGoMemoryRange(h C.uintptr_t, address *C.uintptr_t, bytes *C.size_t, f *C.struct_failure) (r C.int32_t) {
	defer recovered(f, &r)
	o, err := objectOf[*comm.Memory](kindMemory, h)
	if err != nil {
		return fail(f, err)
	}
	write(address, bytes, o.value.Addr(), o.value.Bytes())
	return C.MSCCLPP_SUCCESS
}

// mscclppGoMemoryKeep gives a handle, which belongs to no communicator, to one more mapping of memory in this process: at its own address.
//
//export mscclppGoMemoryKeep
func mscclppGoMemoryKeep(h C.uintptr_t, out *C.uintptr_t, f *C.struct_failure) (r C.int32_t) {
	defer recovered(f, &r)
	o, err := objectOf[*comm.Memory](kindMemory, h)
	if err != nil {
		return fail(f, err)
	}
	p := o.owner.parts.Load()
	shares, err := o.value.Export()
	if err != nil {
		return fail(f, err)
	}
	mapping := framework.Mapping{Shares: shares, Bytes: o.value.Bytes()}
	defer framework.Attachment{Mappings: []framework.Mapping{mapping}}.Close()
	mapped, err := p.job.Device.Map(mapping)
	if err != nil {
		return fail(f, err)
	}
	kept, err := table.Add(kindKept, mapped)
	if err != nil {
		return fail(f, errors.Join(err, mapped.Close()))
	}
	*out = C.uintptr_t(kept)
	return C.MSCCLPP_SUCCESS
}

//export mscclppGoMemoryRelease
func mscclppGoMemoryRelease(kept C.uintptr_t, f *C.struct_failure) (r C.int32_t) {
	defer recovered(f, &r)
	v, err := table.Remove(kindKept, handles.Handle(kept))
	if err != nil {
		return fail(f, err)
	}
	return fail(f, v.(device.Memory).Close())
}

// write fills in the places that the program has given.
func write(address *C.uintptr_t, bytes *C.size_t, at uintptr, n uint64) {
	if address != nil {
		*address = C.uintptr_t(at)
	}
	if bytes != nil {
		*bytes = C.size_t(n)
	}
}

//export mscclppGoWindowCreate
func mscclppGoWindowCreate(h, memory C.uintptr_t, out *C.uintptr_t, f *C.struct_failure) (r C.int32_t) {
	defer recovered(f, &r)
	c, p, err := ready(handles.Handle(h))
	if err != nil {
		return fail(f, err)
	}
	m, err := within[*comm.Memory](c, kindMemory, memory)
	if err != nil {
		return fail(f, err)
	}
	ctx, cancel := c.bounded()
	defer cancel()
	s, err := p.world.Exchange(ctx, m)
	if err != nil {
		return fail(f, c.explain(err))
	}
	return fail(f, adoptWindow(c, s, out))
}

// adoptWindow gives a window a handle. Calls do not find one that was freed, and those that are queued still use it.
func adoptWindow(c *communicator, s *comm.Symmetric, out *C.uintptr_t) error {
	return adopt(c, kindWindow, s, func() error {
		s.Retire()
		return c.behind(s.Close)
	}, out)
}

//export mscclppGoWindowPeer
func mscclppGoWindowPeer(h C.uintptr_t, rank C.int32_t, address *C.uintptr_t, bytes *C.size_t, f *C.struct_failure) (r C.int32_t) {
	defer recovered(f, &r)
	o, err := objectOf[*comm.Symmetric](kindWindow, h)
	if err != nil {
		return fail(f, err)
	}
	p := o.owner.parts.Load()
	if rank < 0 || int(rank) >= p.world.Size() {
		return fail(f, fmt.Errorf("%w: window peer: rank %d of %d", framework.ErrInvalid, rank, p.world.Size()))
	}
	at := o.value.Own().Addr()
	if int(rank) != p.world.Rank() {
		at = o.value.Peer(int(rank))
	}
	write(address, bytes, at, o.value.Bytes(int(rank)))
	return C.MSCCLPP_SUCCESS
}

//export mscclppGoWindowChannels
func mscclppGoWindowChannels(h C.uintptr_t, out unsafe.Pointer, size *C.size_t, f *C.struct_failure) (r C.int32_t) {
	defer recovered(f, &r)
	o, err := objectOf[*comm.Symmetric](kindWindow, h)
	if err != nil {
		return fail(f, err)
	}
	p := o.owner.parts.Load()
	need := C.size_t(p.world.Size()) * C.size_t(unsafe.Sizeof(kernel.MemoryChannelHandle{}))
	if room := *size; room < need {
		*size = need
		return fail(f, fmt.Errorf("%w: window channels: room for %d bytes: expected %d", framework.ErrInvalid, room, need))
	}
	ctx, cancel := o.owner.bounded()
	defer cancel()
	list, err := p.world.MemoryChannels(ctx, o.value)
	if err != nil {
		return fail(f, o.owner.explain(err))
	}
	*size = need
	copy(unsafe.Slice((*kernel.MemoryChannelHandle)(out), len(list)), list)
	return C.MSCCLPP_SUCCESS
}

//export mscclppGoCommControl
func mscclppGoCommControl(h C.uintptr_t, out *C.uintptr_t, f *C.struct_failure) (r C.int32_t) {
	defer recovered(f, &r)
	_, p, err := ready(handles.Handle(h))
	if err != nil {
		return fail(f, err)
	}
	*out = C.uintptr_t(p.world.Control())
	return C.MSCCLPP_SUCCESS
}

// fill copies bytes to a place of the program's; *size is the room there, and then what is needed.
func fill(out unsafe.Pointer, size *C.size_t, what string, value []byte) error {
	room := int(min(uint64(*size), math.MaxInt32))
	*size = C.size_t(len(value))
	if room < len(value) {
		return fmt.Errorf("%w: %s: room for %d bytes: expected %d", framework.ErrInvalid, what, room, len(value))
	}
	copy(unsafe.Slice((*byte)(out), room), value)
	return nil
}
