package cuda

// #include "shim.h"
import "C"

import (
	"errors"
	"fmt"
	"unsafe"

	"github.com/mscclpp-go/mscclpp/framework"
	"github.com/mscclpp-go/mscclpp/framework/device"
)

// Wrap makes memory that the application got from the driver, as a tensor of
// PyTorch, usable where device.Memory is asked for, exports included. The range must
// lie within one allocation. The application keeps the memory; Close does nothing
// to it, and has to come before it is freed.
//
// Memory from the driver's older allocator, which PyTorch uses unless configured
// otherwise, can be shared whole or in part; memory behind handles from its start
// only. From pools of the driver nothing can be shared with other processes.
func (d *allocator) Wrap(addr uintptr, bytes uint64) (*Memory, error) {
	if err := d.begin("wrap"); err != nil {
		return nil, err
	}
	m, err := d.wrap(uint64(addr), bytes)
	if err != nil {
		return nil, errorsFirst(err, d.drop())
	}
	return m, nil
}

func (d *allocator) wrap(addr, bytes uint64) (*Memory, error) {
	var r C.cuda_range
	op := fmt.Sprintf("wrap %d bytes at %#x", bytes, addr)
	if err := d.check(op, C.cuda_range_of(d.c, C.uint64_t(addr), &r)); err != nil {
		return nil, err
	}
	start, whole := uint64(r.start), uint64(r.bytes)
	if start == 0 || addr < start {
		return nil, fmt.Errorf("%s %s: %w: expected memory that the driver allocated or registered", d.info.Device, op, framework.ErrInvalid)
	}
	if err := within(addr-start, bytes, whole); err != nil {
		return nil, fmt.Errorf("%s %s: %w", d.info.Device, op, err)
	}
	if r.host == 0 && int(r.ordinal) != d.index {
		return nil, fmt.Errorf("%s %s: %w: memory of cuda:%d", d.info.Device, op, framework.ErrInvalid, int(r.ordinal))
	}
	b := &block{
		owner: d.primary, kind: blockForeign, base: addr, bytes: bytes, start: start, whole: whole,
		mapped: r.vmm != 0, legacy: r.legacy != 0,
	}
	if b.mapped && addr == start {
		b.types = int(r.handle_types)
	}
	if r.host != 0 {
		b.kind, b.legacy, b.types = blockHost, false, 0
	}
	b.enter()
	return &Memory{dev: d, addr: uintptr(addr), bytes: bytes, block: b, release: b.release}, nil
}

// AllocHost returns zeroed, pinned memory of the host, which kernels and copy
// engines of all devices reach, and the process at HostAddr. It cannot be shared
// with other processes.
func (d *allocator) AllocHost(bytes uint64) (*Memory, error) {
	if bytes == 0 || bytes > maxBytes {
		return nil, fmt.Errorf("%s alloc host: %w: %d bytes: expected 1 to %d", d.info.Device, framework.ErrInvalid, bytes, uint64(maxBytes))
	}
	if err := d.begin("alloc host"); err != nil {
		return nil, err
	}
	var host, address C.uint64_t
	if err := d.check("alloc host", C.cuda_host_alloc(d.c, C.uint64_t(bytes), &host, &address)); err != nil {
		return nil, errorsFirst(err, d.drop())
	}
	return &Memory{dev: d, addr: uintptr(address), bytes: bytes, host: uintptr(host), release: func() error {
		return errors.Join(d.check("free host", C.cuda_host_free(d.c, host)), d.drop())
	}}, nil
}

// HostBytes views memory of the host as a slice; nil for memory of a device. It must
// not be used after Close.
func (m *Memory) HostBytes() []byte {
	if m.host == 0 {
		return nil
	}
	return unsafe.Slice((*byte)(at(m.host)), m.bytes)
}

// at turns an address outside of Go's heap into a pointer.
func at(addr uintptr) unsafe.Pointer { return *(*unsafe.Pointer)(unsafe.Pointer(&addr)) }

// WriteAt copies b to device memory and returns when it is there. It waits for
// nothing that runs on streams.
func (d *allocator) WriteAt(b []byte, addr uintptr) error {
	if err := d.live("write"); err != nil || len(b) == 0 {
		return err
	}
	return d.check("write", C.cuda_upload(d.c, C.uint64_t(addr), ptr(b), C.uint64_t(len(b))))
}

// ReadAt copies device memory to b. It waits for nothing that runs on streams.
func (d *allocator) ReadAt(b []byte, addr uintptr) error {
	if err := d.live("read"); err != nil || len(b) == 0 {
		return err
	}
	return d.check("read", C.cuda_download(d.c, ptr(b), C.uint64_t(addr), C.uint64_t(len(b))))
}

// Fill sets bytes of device memory to a value and returns when it is done. It waits
// for nothing that runs on streams.
func (d *allocator) Fill(addr uintptr, value byte, bytes uint64) error {
	if err := d.live("fill"); err != nil || bytes == 0 {
		return err
	}
	return d.check("fill", C.cuda_fill(d.c, C.uint64_t(addr), C.int(value), C.uint64_t(bytes)))
}

// Object refuses: multicast windows are not made by this package.
func (d *allocator) Object(o framework.Object, _ *framework.Share) (device.Object, error) {
	if err := d.live("object"); err != nil {
		return nil, err
	}
	return nil, fmt.Errorf("%s object: %w: %s", d.info.Device, framework.ErrUnsupported, noMulticast(o))
}
