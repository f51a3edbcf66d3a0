package native

// #include "table.h"
import "C"

import (
	"errors"
	"fmt"

	"github.com/mscclpp-go/mscclpp/framework"
	"github.com/mscclpp-go/mscclpp/framework/device"
)

// Allocation implements [device.Arranger]: for memory that can be exported, and placed.
func (d *Device) Allocation(addr uintptr, bytes uint64) (whole device.Memory, offset, unit uint64, err error) {
	op := fmt.Sprintf("allocation of %d bytes at %#x", bytes, addr)
	if err := placing(d, op); err != nil {
		return nil, 0, 0, err
	}
	r := C.mscclpp_device_memory{size: C.sizeof_mscclpp_device_memory}
	if err := d.check(op, C.native_range_of(d.t, d.d, C.uint64_t(addr), &r)); err != nil {
		return nil, 0, 0, err
	}
	start, size := uint64(r.start), uint64(r.whole)
	m, err := d.Wrap(uintptr(start), size)
	if err != nil {
		return nil, 0, 0, err
	}
	offset = uint64(addr) - start
	if err = within(offset, bytes, size); err != nil {
		err = fmt.Errorf("%s %s: %w", d.info.Device, op, err)
	} else if !m.placeable() {
		err = d.unsupported(op, "expected memory behind a handle that can be exported, as of ncclMemAlloc")
	}
	if err != nil {
		return nil, 0, 0, firstOf(err, m.Close())
	}
	return m, offset, uint64(d.facts.unit), nil
}

func placing(d *Device, op string) error {
	if err := d.live(op); err != nil {
		return err
	}
	if d.b.has&hasPlaces == 0 || d.facts.unit == 0 {
		return d.unsupported(op, "the device maps no memory at addresses that are asked for")
	}
	return nil
}

// placeable reports whether one of the memory's shares can be placed.
func (m *Memory) placeable() bool {
	for i, k := range m.dev.b.kinds {
		if k.places && !k.onDemand && m.block.m.shares&(1<<i) != 0 {
			return true
		}
	}
	return false
}

// arrangement implements device.Arrangement.
type arrangement struct {
	dev    *Device
	base   uint64
	stride uint64
	parts  int
}

// Arrange implements [device.Arranger].
func (d *Device) Arrange(parts int, stride uint64) (device.Arrangement, error) {
	const op = "arrange"
	if err := placing(d, op); err != nil {
		return nil, err
	}
	if parts < 1 || stride == 0 || stride > maxBytes || uint64(parts) > maxBytes/stride {
		return nil, fmt.Errorf("%s %s: %w: %d parts of %d bytes", d.info.Device, op, framework.ErrInvalid, parts, stride)
	}
	if err := d.begin(op); err != nil {
		return nil, err
	}
	var base C.uint64_t
	if err := d.check(op, C.native_reserve(d.t, d.d, C.uint64_t(uint64(parts)*stride), &base)); err != nil {
		return nil, firstOf(err, d.drop())
	}
	return &arrangement{d, uint64(base), stride, parts}, nil
}

// Base implements device.Arrangement.
func (a *arrangement) Base() uintptr { return uintptr(a.base) }

// Close implements device.Arrangement.
func (a *arrangement) Close() error {
	d := a.dev
	return errors.Join(d.check("arrange", C.native_unreserve(d.t, d.d, C.uint64_t(a.base), C.uint64_t(uint64(a.parts)*a.stride))), d.drop())
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
		memory, err := place(d, s, a.base+uint64(part)*a.stride+at, m.Bytes)
		if err == nil {
			return memory, nil
		}
		reasons = append(reasons, fmt.Errorf("%s: %w", s.Kind, err))
	}
	return nil, fmt.Errorf("%s arrange %d bytes: %w", d.info.Device, m.Bytes, join(reasons))
}

// place maps the allocation behind a share at an address.
func place(d *Device, s framework.Share, address, bytes uint64) (*Memory, error) {
	if s.Kind == framework.ShareLocal {
		return placeLocal(d, s.Blob, address, bytes)
	}
	for i, k := range d.b.kinds {
		if k.name != s.Kind || !k.places {
			continue
		}
		var m *Memory
		var err error
		if e := lend(i, s, func(c *C.mscclpp_device_share) {
			m, err = placed(d, address, bytes, func(out *C.mscclpp_device_memory) C.native_status {
				return C.native_place_share(d.t, d.d, c, C.uint64_t(address), C.uint64_t(bytes), out)
			})
		}); e != nil {
			return nil, e
		}
		return m, err
	}
	return nil, fmt.Errorf("%w: it is not mapped at addresses that are asked for", framework.ErrUnsupported)
}

func placeLocal(d *Device, blob []byte, address, bytes uint64) (*Memory, error) {
	id, err := parseLocal(blob)
	if err != nil {
		return nil, err
	}
	blocks.Lock()
	defer blocks.Unlock()
	b := blocks.open[id]
	if b == nil {
		return nil, fmt.Errorf("%w: its memory was closed", framework.ErrClosed)
	}
	if b.owner.b != d.b {
		return nil, fmt.Errorf("%w: memory of %s", framework.ErrUnsupported, b.owner.info.Device)
	}
	own := b.m
	return placed(d, address, bytes, func(out *C.mscclpp_device_memory) C.native_status {
		return C.native_place_own(d.t, d.d, &own, C.uint64_t(address), C.uint64_t(bytes), out)
	})
}

func placed(d *Device, address, bytes uint64, place func(*C.mscclpp_device_memory) C.native_status) (*Memory, error) {
	if err := d.begin("arrange"); err != nil {
		return nil, err
	}
	got := C.mscclpp_device_memory{size: C.sizeof_mscclpp_device_memory}
	if err := d.check("arrange", place(&got)); err != nil {
		return nil, firstOf(err, d.drop())
	}
	return &Memory{dev: d, addr: uintptr(address), bytes: bytes, release: func() error {
		return errors.Join(d.check("unmap", C.native_displace(d.t, d.d, &got)), d.drop())
	}}, nil
}

var _ device.Arranger = (*Device)(nil)
