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

// Allocation implements [device.Arranger]: for memory behind handles that can be exported.
func (d *allocator) Allocation(addr uintptr, bytes uint64) (whole device.Memory, offset, unit uint64, err error) {
	if err := d.live("allocation"); err != nil {
		return nil, 0, 0, err
	}
	op := fmt.Sprintf("allocation of %d bytes at %#x", bytes, addr)
	var r C.cuda_range
	var u C.uint64_t
	if err := d.check(op, C.cuda_range_of(d.c, C.uint64_t(addr), &r)); err != nil {
		return nil, 0, 0, err
	}
	if r.vmm == 0 || r.handle_types&C.CU_MEM_HANDLE_TYPE_POSIX_FILE_DESCRIPTOR == 0 {
		return nil, 0, 0, fmt.Errorf("%s %s: %w: expected memory behind a handle that can be exported, as of ncclMemAlloc", d.info.Device, op, framework.ErrUnsupported)
	}
	if err := d.check(op, C.cuda_unit(d.c, &u)); err != nil {
		return nil, 0, 0, err
	}
	start := uint64(r.start)
	m, err := d.Wrap(uintptr(start), uint64(r.bytes))
	if err != nil {
		return nil, 0, 0, err
	}
	offset = uint64(addr) - start
	if err := within(offset, bytes, uint64(r.bytes)); err != nil {
		return nil, 0, 0, errors.Join(fmt.Errorf("%s %s: %w", d.info.Device, op, err), m.Close())
	}
	return m, offset, uint64(u), nil
}

// arrangement implements device.Arrangement.
type arrangement struct {
	dev    *allocator
	base   uint64
	stride uint64
	parts  int
}

// Arrange implements [device.Arranger].
func (d *allocator) Arrange(parts int, stride uint64) (device.Arrangement, error) {
	if parts < 1 || stride == 0 || stride > maxBytes || uint64(parts) > maxBytes/stride {
		return nil, fmt.Errorf("%s arrange: %w: %d parts of %d bytes", d.info.Device, framework.ErrInvalid, parts, stride)
	}
	if err := d.begin("arrange"); err != nil {
		return nil, err
	}
	var base C.uint64_t
	const largePage = 2 << 20
	if err := d.check("arrange", C.cuda_reserve(d.c, C.uint64_t(uint64(parts)*stride), largePage, &base)); err != nil {
		return nil, errorsFirst(err, d.drop())
	}
	return &arrangement{d, uint64(base), stride, parts}, nil
}

// Base implements device.Arrangement.
func (a *arrangement) Base() uintptr { return uintptr(a.base) }

// Close implements device.Arrangement.
func (a *arrangement) Close() error {
	return errors.Join(a.dev.check("arrange", C.cuda_unreserve(a.dev.c, C.uint64_t(a.base), C.uint64_t(uint64(a.parts)*a.stride))), a.dev.drop())
}

// Put implements device.Arrangement.
func (a *arrangement) Put(part int, at uint64, m framework.Mapping) (device.Memory, error) {
	d := a.dev
	if part < 0 || part >= a.parts || m.Offset != 0 {
		return nil, fmt.Errorf("%s arrange: %w: offset %d of an allocation as part %d of %d: expected all of it", d.info.Device, framework.ErrInvalid, m.Offset, part, a.parts)
	}
	if err := within(at, m.Bytes, a.stride); err != nil {
		return nil, fmt.Errorf("%s arrange: %w", d.info.Device, err)
	}
	if len(m.Shares) == 0 {
		return nil, fmt.Errorf("%s arrange: %w: mapping without shares", d.info.Device, framework.ErrInvalid)
	}
	var reasons []error
	for _, s := range m.Shares {
		handle, err := d.handleOf(s)
		if err == nil {
			var placed *Memory
			if placed, err = d.place(handle, a.base+uint64(part)*a.stride+at, m.Bytes); err == nil {
				return placed, nil
			}
		}
		reasons = append(reasons, fmt.Errorf("%s: %w", s.Kind, err))
	}
	return nil, fmt.Errorf("%s arrange %d bytes: %w", d.info.Device, m.Bytes, join(reasons))
}

// handleOf opens the allocation behind a share.
func (d *allocator) handleOf(s framework.Share) (C.uint64_t, error) {
	var handle C.uint64_t
	switch s.Kind {
	case framework.ShareLocal:
		id, err := parseLocal(s.Blob)
		if err != nil {
			return 0, err
		}
		blocks.Lock()
		defer blocks.Unlock()
		b := blocks.open[id]
		if b == nil {
			return 0, fmt.Errorf("%w: its memory was closed", framework.ErrClosed)
		}
		return handle, d.check("arrange", C.cuda_retain_handle(d.c, C.uint64_t(b.base), &handle))
	case framework.ShareVMM:
		if s.FD == nil {
			return 0, fmt.Errorf("%w: share without a descriptor", framework.ErrInvalid)
		}
		raw, err := s.FD.SyscallConn()
		if err != nil {
			return 0, fmt.Errorf("%w: descriptor: %w", framework.ErrInvalid, err)
		}
		var opened error
		if err := raw.Control(func(fd uintptr) {
			opened = d.check("import", C.cuda_open_handle(d.c, C.CU_MEM_HANDLE_TYPE_POSIX_FILE_DESCRIPTOR, C.int(fd), nil, &handle))
		}); err != nil {
			return 0, fmt.Errorf("%w: descriptor: %w", framework.ErrInvalid, err)
		}
		return handle, opened
	case framework.ShareFabric:
		if len(s.Blob) != C.sizeof_CUmemFabricHandle {
			return 0, fmt.Errorf("%w: handle of %d bytes: expected %d", framework.ErrInvalid, len(s.Blob), C.sizeof_CUmemFabricHandle)
		}
		return handle, d.check("import", C.cuda_open_handle(d.c, C.CU_MEM_HANDLE_TYPE_FABRIC, 0, unsafe.Pointer(&s.Blob[0]), &handle))
	}
	return 0, fmt.Errorf("%w: expected local, vmm or fabric", framework.ErrUnsupported)
}

// place maps the allocation of a handle, which it gives back: the mapping keeps the memory.
func (d *allocator) place(handle C.uint64_t, address, bytes uint64) (*Memory, error) {
	err := d.begin("arrange")
	if err == nil {
		if err = explained(d.check("arrange", C.cuda_place(d.c, handle, C.uint64_t(address), C.uint64_t(bytes))), bytes); err != nil {
			err = errorsFirst(err, d.drop())
		}
	}
	_ = d.check("arrange", C.cuda_release_handle(d.c, handle))
	if err != nil {
		return nil, err
	}
	return &Memory{dev: d, addr: uintptr(address), bytes: bytes, release: func() error {
		return errors.Join(d.check("unmap", C.cuda_displace(d.c, C.uint64_t(address), C.uint64_t(bytes))), d.drop())
	}}, nil
}

var _ device.Arranger = (*Device)(nil)
