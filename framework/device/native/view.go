package native

// #include "table.h"
import "C"

import (
	"fmt"
	"sync/atomic"

	"github.com/mscclpp-go/mscclpp/framework"
	"github.com/mscclpp-go/mscclpp/framework/device"
)

// hostView is memory of a device into which the host stores.
type hostView struct {
	o      *opened
	addr   uintptr // of the memory, for kernels…
	host   uintptr // …and here
	bytes  uint64
	view   C.uint64_t
	closed atomic.Bool
}

// MapForHost implements [device.HostMapper].
func (d *Device) MapForHost(m device.Memory) (device.HostView, error) {
	const op = "map for the host"
	own, ok := m.(*Memory)
	switch {
	case d.closed.Load():
		return nil, d.live(op)
	case !ok || own.dev.opened != d.opened || own.bytes < 8:
		return nil, fmt.Errorf("%s %s: %w: expected memory of this device, of 8 bytes or more", d.info.Device, op, framework.ErrInvalid)
	case own.closed.Load():
		return nil, fmt.Errorf("%s %s: memory: %w", d.info.Device, op, framework.ErrClosed)
	case own.host != 0:
		return nil, d.unsupported(op, "it is memory of the host")
	case d.b.has&hasViews == 0:
		return nil, d.unsupported(op, "the processor cannot store into memory of the device")
	case own.part == nil:
		return nil, d.unsupported(op, "expected memory that this process has allocated")
	}
	part := own.part.m
	part.address, part.bytes = C.uint64_t(own.addr), C.uint64_t(own.bytes)
	v := &hostView{o: d.opened, addr: own.addr, bytes: own.bytes}
	var host C.uint64_t
	if err := d.check(op, C.native_view_open(d.t, own.part.owner.d, &part, &v.view, &host)); err != nil {
		return nil, err
	}
	v.host = uintptr(host)
	return v, nil
}

// Store implements [device.HostView].
func (v *hostView) Store(addr uintptr, value uint64) error {
	offset := uint64(addr - v.addr) // far beyond the end for what comes before the memory
	switch {
	case v.closed.Load():
		return fmt.Errorf("%s store by the host: mapping: %w", v.o.info.Device, framework.ErrClosed)
	case addr%8 != 0 || offset > v.bytes-8:
		return fmt.Errorf("%s store by the host: %w: word at %#x: expected a multiple of 8 in %d bytes at %#x", v.o.info.Device, framework.ErrInvalid, addr, v.bytes, v.addr)
	}
	if st := C.native_view_store(v.o.t, v.view, C.uint64_t(v.host+uintptr(offset)), C.uint64_t(value)); st.code != 0 {
		return v.o.check("store by the host", st)
	}
	return nil
}

// Settle implements [device.HostView].
func (v *hostView) Settle() error {
	if v.closed.Load() {
		return fmt.Errorf("%s stores by the host: mapping: %w", v.o.info.Device, framework.ErrClosed)
	}
	return v.o.check("stores by the host", C.native_view_settle(v.o.t, v.view, C.uint64_t(v.host&^7)))
}

// Close implements [device.HostView].
func (v *hostView) Close() error {
	if v.closed.Swap(true) {
		return nil
	}
	return v.o.check("unmap from the host", C.native_view_close(v.o.t, v.view))
}
