package main

// #include "internal.h"
import "C"

import (
	"fmt"
	"math"
	"unsafe"

	"github.com/mscclpp-go/mscclpp/capi/internal/handles"
	"github.com/mscclpp-go/mscclpp/framework"
	"github.com/mscclpp-go/mscclpp/framework/comm"
	"github.com/mscclpp-go/mscclpp/framework/device"
)

//export mscclppGoWindowArrange
func mscclppGoWindowArrange(h, memory C.uintptr_t, flags C.uint32_t, out *C.uintptr_t, f *C.struct_failure) (r C.int32_t) {
	defer recovered(f, &r)
	c, p, err := ready(handles.Handle(h))
	if err != nil {
		return fail(f, err)
	}
	if flags&^C.MSCCLPP_WINDOW_PRIVATE != 0 {
		return fail(f, fmt.Errorf("%w: window arrange: flags 0x%x: expected 0 or MSCCLPP_WINDOW_PRIVATE", framework.ErrInvalid, flags))
	}
	var m *comm.Memory // none: this rank cannot take part
	if memory != 0 {
		if m, err = within[*comm.Memory](c, kindMemory, memory); err != nil {
			return fail(f, err)
		}
	}
	ctx, cancel := c.bounded()
	defer cancel()
	s, err := comm.Arrange(ctx, p.world, m, flags&C.MSCCLPP_WINDOW_PRIVATE != 0)
	if err != nil {
		return fail(f, c.explain(err))
	}
	return fail(f, adoptWindow(c, s, out))
}

//export mscclppGoWindowFlat
func mscclppGoWindowFlat(h C.uintptr_t, base *C.uintptr_t, stride *C.size_t, f *C.struct_failure) (r C.int32_t) {
	defer recovered(f, &r)
	o, err := objectOf[*comm.Symmetric](kindWindow, h)
	if err != nil {
		return fail(f, err)
	}
	at, each := o.value.Flat()
	if each == 0 {
		return fail(f, fmt.Errorf("%w: window flat: the memory of the ranks lies anywhere: expected a window of mscclpp_window_arrange", framework.ErrInvalid))
	}
	write(base, stride, at, each)
	return C.MSCCLPP_SUCCESS
}

//export mscclppGoMemoryCopy
func mscclppGoMemoryCopy(h C.uintptr_t, offset C.size_t, bytes unsafe.Pointer, n C.size_t, in C.int, f *C.struct_failure) (r C.int32_t) {
	defer recovered(f, &r)
	o, err := objectOf[*comm.Memory](kindMemory, h)
	if err != nil {
		return fail(f, err)
	}
	size := o.value.Bytes()
	if uint64(n) > size || uint64(offset) > size-uint64(n) || uint64(n) > math.MaxInt {
		return fail(f, fmt.Errorf("%w: memory copy: %d bytes at %d of %d", framework.ErrInvalid, n, offset, size))
	}
	return fail(f, copyMemory(o.owner.parts.Load().job.Device, o.value, uint64(offset), unsafe.Slice((*byte)(bytes), int(n)), in != 0))
}

// copyMemory copies between the program's bytes and memory of a device.
func copyMemory(d device.Device, m *comm.Memory, offset uint64, b []byte, in bool) error {
	if d.Info().Device == framework.Host {
		part := device.Bytes(m)[offset : offset+uint64(len(b))]
		if in {
			copy(part, b)
		} else {
			copy(b, part)
		}
		return nil
	}
	w, ok := d.(interface {
		WriteAt(data []byte, addr uintptr) error
		ReadAt(data []byte, addr uintptr) error
	})
	switch {
	case !ok:
		return fmt.Errorf("%w: memory copy: device %v", framework.ErrUnsupported, d.Info().Device)
	case in:
		return w.WriteAt(b, m.Addr()+uintptr(offset))
	}
	return w.ReadAt(b, m.Addr()+uintptr(offset))
}
