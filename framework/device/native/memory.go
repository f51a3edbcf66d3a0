package native

// #include "table.h"
import "C"

import (
	"errors"
	"fmt"
	"os"
	"sync/atomic"
	"unsafe"

	"github.com/mscclpp-go/mscclpp/framework"
	"github.com/mscclpp-go/mscclpp/framework/device"
)

// Memory is memory that kernels of a device can address. It implements device.Memory and device.DMABufMemory.
type Memory struct {
	dev     *Device
	addr    uintptr
	bytes   uint64
	host    uintptr      // where the process itself finds it; 0 for memory of the device
	block   *block       // the memory that Export offers; nil for memory that was mapped
	part    *block       // the memory of this process that it is a part of, or all of it; nil for any other
	file    *os.File     // of memory that Hosted made; Export offers that instead
	release func() error // gives up what was made
	closed  atomic.Bool
}

// Addr returns the address of the first byte in kernels of the device.
func (m *Memory) Addr() uintptr { return m.addr }

// Bytes returns the size that was asked for.
func (m *Memory) Bytes() uint64 { return m.bytes }

// HostAddr returns the address of the first byte for the process, 0 if the memory is the device's own.
func (m *Memory) HostAddr() uintptr { return m.host }

// HostBytes views memory of the host as a slice; nil for memory of a device. It must not be used after Close.
func (m *Memory) HostBytes() []byte {
	if m.host == 0 {
		return nil
	}
	return unsafe.Slice((*byte)(at(m.host)), m.bytes)
}

// at turns an address outside of Go's heap into a pointer.
func at(addr uintptr) unsafe.Pointer { return *(*unsafe.Pointer)(unsafe.Pointer(&addr)) }

// ptr is the address of a slice's first byte, for the time of a call.
func ptr(b []byte) unsafe.Pointer { return unsafe.Pointer(unsafe.SliceData(b)) }

// Close gives the memory back. Mappings of it that others made stay valid. Nothing that uses it may still run on the device.
func (m *Memory) Close() error {
	if m.closed.Swap(true) {
		return nil
	}
	return m.release()
}

const maxBytes = 1 << 46 // beyond any device; keeps sums from wrapping

func (d *Device) checkSize(op string, bytes uint64) error {
	if bytes == 0 || bytes > maxBytes {
		return fmt.Errorf("%s %s: %w: %d bytes: expected 1 to %d", d.info.Device, op, framework.ErrInvalid, bytes, uint64(maxBytes))
	}
	return nil
}

// Alloc returns zeroed memory of the device that can be exported, and that kernels may poll.
func (d *Device) Alloc(bytes uint64) (device.Memory, error) { return d.alloc(bytes, false) }

// AllocData is Alloc for data: see device.DataAllocator. A device whose table has one kind of memory has data in that.
func (d *Device) AllocData(bytes uint64) (device.Memory, error) {
	return d.alloc(bytes, d.b.has&hasData != 0)
}

func (d *Device) alloc(bytes uint64, data bool) (device.Memory, error) {
	if err := d.checkSize("alloc", bytes); err != nil {
		return nil, err
	}
	if d.options.hosted {
		return d.allocHosted(bytes)
	}
	if err := d.begin("alloc"); err != nil {
		return nil, err
	}
	b := &block{owner: d.opened, m: C.mscclpp_device_memory{size: C.sizeof_mscclpp_device_memory}}
	var st C.native_status
	if data {
		st = C.native_alloc_data(d.t, d.d, C.uint64_t(bytes), &b.m)
	} else {
		st = C.native_alloc(d.t, d.d, C.uint64_t(bytes), &b.m)
	}
	if err := d.check(fmt.Sprintf("alloc %d bytes", bytes), st); err != nil {
		return nil, firstOf(err, d.drop())
	}
	b.m.bytes = C.uint64_t(bytes)
	b.free = func() error { return b.owner.check("free", C.native_free_memory(b.owner.t, b.owner.d, &b.m)) }
	b.enter()
	return &Memory{dev: d, addr: uintptr(b.m.address), bytes: bytes, block: b, part: b, release: b.release}, nil
}

// Wrap makes memory that the application got from the device's driver usable where device.Memory is asked for, exports
// included. The application keeps the memory; Close does nothing to it, and has to come before it is freed.
func (d *Device) Wrap(addr uintptr, bytes uint64) (*Memory, error) {
	op := fmt.Sprintf("wrap %d bytes at %#x", bytes, addr)
	if d.b.has&hasRanges == 0 {
		return nil, d.unsupported(op, "the device does not tell what is at an address")
	}
	if err := d.begin(op); err != nil {
		return nil, err
	}
	b := &block{owner: d.opened, m: C.mscclpp_device_memory{size: C.sizeof_mscclpp_device_memory}, free: func() error { return nil }}
	err := d.check(op, C.native_range_of(d.t, d.d, C.uint64_t(addr), &b.m))
	if err == nil {
		err = d.wrappable(op, addr, bytes, &b.m)
	}
	if err != nil {
		return nil, firstOf(err, d.drop())
	}
	b.m.address, b.m.bytes = C.uint64_t(addr), C.uint64_t(bytes)
	b.enter()
	return &Memory{dev: d, addr: addr, bytes: bytes, block: b, part: b, release: b.release}, nil
}

// WrapMemory implements [device.Wrapper].
func (d *Device) WrapMemory(addr uintptr, bytes uint64) (device.Memory, error) {
	m, err := d.Wrap(addr, bytes)
	if err != nil {
		return nil, err // and no nil pointer in an interface
	}
	return m, nil
}

func (d *Device) wrappable(op string, addr uintptr, bytes uint64, m *C.mscclpp_device_memory) error {
	start, whole := uint64(m.start), uint64(m.whole)
	if start == 0 || uint64(addr) < start {
		return fmt.Errorf("%s %s: %w: expected memory that the driver allocated or registered", d.info.Device, op, framework.ErrInvalid)
	}
	if err := within(uint64(addr)-start, bytes, whole); err != nil {
		return fmt.Errorf("%s %s: %w", d.info.Device, op, err)
	}
	if m.on_host == 0 && int(m.ordinal) != d.index {
		return fmt.Errorf("%s %s: %w: memory of %s:%d", d.info.Device, op, framework.ErrInvalid, d.b.typ, int(m.ordinal))
	}
	return nil
}

// Export returns the ways to reach the memory: within the process, by its address; then what other processes can import, best
// first. Memory that was mapped exports nothing.
func (m *Memory) Export() ([]framework.Share, error) {
	d := m.dev
	if m.closed.Load() {
		return nil, fmt.Errorf("%s export: memory: %w", d.info.Device, framework.ErrClosed)
	}
	if m.file != nil {
		return m.exportHosted()
	}
	if m.block == nil {
		return nil, nil
	}
	shares := []framework.Share{{Kind: framework.ShareLocal, Blob: m.block.local()}}
	for i, k := range d.b.kinds {
		if k.onDemand && !d.options.onDemand || m.block.m.shares&(1<<i) == 0 {
			continue
		}
		s, err := m.export(i)
		if errors.Is(err, framework.ErrUnsupported) {
			continue // made for it, but not to be had all the same: others can still import it
		}
		if err != nil {
			_ = framework.Parcel{Shares: shares}.Close()
			return nil, err
		}
		shares = append(shares, s)
	}
	return shares, nil
}

// export makes a share of one kind.
func (m *Memory) export(kind int) (framework.Share, error) {
	o, name := m.block.owner, m.dev.b.kinds[kind].name
	c := C.mscclpp_device_share{size: C.sizeof_mscclpp_device_share, kind: C.uint32_t(kind), fd: -1}
	if err := o.check("export "+string(name), C.native_export_share(o.t, o.d, &m.block.m, &c)); err != nil {
		return framework.Share{}, err
	}
	s := framework.Share{Kind: name}
	if c.fd >= 0 {
		s.FD = os.NewFile(uintptr(c.fd), string(name))
	}
	if n := int(c.blob_bytes); n > 0 && n <= len(c.blob) {
		s.Blob = C.GoBytes(unsafe.Pointer(&c.blob[0]), C.int(n))
	}
	if name.HasFD() != (s.FD != nil) || name.HasFD() == (s.Blob != nil) {
		_ = s.Close()
		return framework.Share{}, fmt.Errorf("%s export %s: %w: the back end gave descriptor %d and %d bytes: expected a descriptor for kinds that begin with fd:, else 1 to %d bytes",
			o.info.Device, name, framework.ErrUnavailable, int(c.fd), int(c.blob_bytes), len(c.blob))
	}
	return s, nil
}

// DMABuf implements [device.DMABufMemory].
func (m *Memory) DMABuf() (framework.Share, error) {
	if m.closed.Load() {
		return framework.Share{}, fmt.Errorf("%s dma-buf: memory: %w", m.dev.info.Device, framework.ErrClosed)
	}
	for i, k := range m.dev.b.kinds {
		if k.name == framework.ShareDMABuf && m.block != nil && m.block.m.shares&(1<<i) != 0 {
			return m.export(i)
		}
	}
	return framework.Share{}, m.dev.unsupported("dma-buf", "expected memory of a device that exports dma-buf")
}

// WriteAt copies b to device memory and returns when it is there. It waits for nothing that runs on streams.
func (d *Device) WriteAt(b []byte, addr uintptr) error {
	if err := d.live("write"); err != nil || len(b) == 0 {
		return err
	}
	return d.check("write", C.native_upload(d.t, d.d, C.uint64_t(addr), ptr(b), C.uint64_t(len(b))))
}

// ReadAt copies device memory to b. It waits for nothing that runs on streams.
func (d *Device) ReadAt(b []byte, addr uintptr) error {
	if err := d.live("read"); err != nil || len(b) == 0 {
		return err
	}
	return d.check("read", C.native_download(d.t, d.d, ptr(b), C.uint64_t(addr), C.uint64_t(len(b))))
}

// Fill sets bytes of device memory to a value and returns when it is done. It waits for nothing that runs on streams.
func (d *Device) Fill(addr uintptr, value byte, bytes uint64) error {
	if err := d.live("fill"); err != nil || bytes == 0 {
		return err
	}
	return d.check("fill", C.native_fill(d.t, d.d, C.uint64_t(addr), C.uint8_t(value), C.uint64_t(bytes)))
}

var (
	_ device.Memory       = (*Memory)(nil)
	_ device.DMABufMemory = (*Memory)(nil)
)
