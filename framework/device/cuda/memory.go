package cuda

// #include "shim.h"
import "C"

import (
	"fmt"
	"os"
	"sync/atomic"

	"github.com/mscclpp-go/mscclpp/framework"
	"github.com/mscclpp-go/mscclpp/framework/device"
)

// Memory is memory that kernels of a device can address. It implements device.Memory.
type Memory struct {
	dev     *Device
	addr    uintptr
	bytes   uint64
	host    uintptr      // where the process itself finds it; 0 for device memory
	block   *block       // the memory that Export offers; nil for memory that was mapped
	file    *os.File     // of memory that Hosted made; Export offers that instead
	release func() error // gives up what was made
	closed  atomic.Bool
}

// Addr returns the address of the first byte in kernels of the device.
func (m *Memory) Addr() uintptr { return m.addr }

// Bytes returns the size that was asked for.
func (m *Memory) Bytes() uint64 { return m.bytes }

// HostAddr returns the address of the first byte for the process, 0 if the memory is
// the device's own.
func (m *Memory) HostAddr() uintptr { return m.host }

// Close gives the memory back. Mappings of it that others made stay valid. Nothing
// that uses it may still run on the device; the driver may wait for what does.
func (m *Memory) Close() error {
	if m.closed.Swap(true) {
		return nil
	}
	return m.release()
}

// Alloc returns zeroed device memory behind a descriptor, or, where the driver does
// not make such memory, behind an older handle.
func (d *Device) Alloc(bytes uint64) (device.Memory, error) {
	m, err := d.alloc(bytes)
	if err != nil {
		return nil, err
	}
	return m, nil
}

const maxBytes = 1 << 46 // beyond any device; keeps sums from wrapping

func (d *Device) alloc(bytes uint64) (*Memory, error) {
	if bytes == 0 || bytes > maxBytes {
		return nil, fmt.Errorf("%s alloc: %w: %d bytes: expected 1 to %d", d.info.Device, framework.ErrInvalid, bytes, uint64(maxBytes))
	}
	if d.options.hosted {
		return d.allocHosted(bytes)
	}
	if err := d.begin("alloc"); err != nil {
		return nil, err
	}
	b := &block{owner: d.primary, bytes: bytes}
	st := d.allocVMM(b)
	if b.kind == 0 && refused(st) {
		st = d.allocLegacy(b)
	}
	if err := d.check(fmt.Sprintf("alloc %d bytes", bytes), st); err != nil {
		return nil, errorsFirst(err, d.drop())
	}
	b.enter()
	return &Memory{dev: d, addr: uintptr(b.base), bytes: bytes, block: b, release: b.release}, nil
}

// allocVMM makes memory behind a handle, with the best abilities that the driver
// grants.
func (d *Device) allocVMM(b *block) C.cuda_status {
	last := C.cuda_status{code: C.CUDA_ERROR_NOT_SUPPORTED}
	if d.options.legacy || d.facts.vmm == 0 || d.facts.posix_fd == 0 {
		return last
	}
	const fd, fabric = C.CU_MEM_HANDLE_TYPE_POSIX_FILE_DESCRIPTOR, C.CU_MEM_HANDLE_TYPE_FABRIC
	rdma := d.facts.rdma_vmm
	for _, try := range []struct {
		types C.int
		rdma  C.int
		on    bool
	}{
		{fd | fabric, rdma, d.options.fabric && d.facts.fabric != 0 && !d.noFabric.Load()},
		{fd, rdma, true},
		{fd, 0, rdma != 0},
	} {
		if !try.on {
			continue
		}
		last = C.cuda_create(d.c, C.uint64_t(b.bytes), try.types, try.rdma, &b.vmm)
		if last.code == C.CUDA_SUCCESS {
			b.kind, b.mapped, b.types = blockVMM, true, int(try.types)
			b.base, b.start, b.whole = uint64(b.vmm.address), uint64(b.vmm.address), uint64(b.vmm.bytes)
			return last
		}
		if !refused(last) {
			return last
		}
		if try.types&fabric != 0 {
			d.noFabric.Store(true)
		}
	}
	return last
}

func (d *Device) allocLegacy(b *block) C.cuda_status {
	var address C.uint64_t
	st := C.cuda_alloc(d.c, C.uint64_t(b.bytes), &address)
	if st.code == C.CUDA_SUCCESS {
		b.kind, b.base, b.legacy = blockLegacy, uint64(address), true
		b.start, b.whole = b.base, b.bytes
	}
	return st
}

// FabricRefused reports whether the driver was asked for memory of the fabric, and
// did not make it.
func (d *Device) FabricRefused() bool { return d.noFabric.Load() }

// Export returns the ways to reach the memory: within the process, by its address;
// then what other processes can import, best first. Memory that was mapped exports
// nothing.
func (m *Memory) Export() ([]framework.Share, error) {
	if m.closed.Load() {
		return nil, fmt.Errorf("%s export: memory: %w", m.dev.info.Device, framework.ErrClosed)
	}
	if m.file != nil {
		return m.exportHosted()
	}
	b := m.block
	if b == nil {
		return nil, nil
	}
	shares := []framework.Share{{Kind: framework.ShareLocal, Blob: b.local()}}
	more, err := m.exports(b)
	shares = append(shares, more...)
	if err != nil {
		_ = framework.Parcel{Shares: shares}.Close()
		return nil, err
	}
	return shares, nil
}

func (m *Memory) exports(b *block) (shares []framework.Share, err error) {
	if b.types&C.CU_MEM_HANDLE_TYPE_POSIX_FILE_DESCRIPTOR != 0 {
		s, err := b.exportFD()
		if err != nil {
			return shares, err
		}
		shares = append(shares, s)
	}
	if b.types&C.CU_MEM_HANDLE_TYPE_FABRIC != 0 {
		// Made for it, but not to be had all the same: others can still import it.
		if s, err := b.exportFabric(); err != nil {
			m.dev.noFabric.Store(true)
		} else {
			shares = append(shares, s)
		}
	}
	if b.legacy {
		s, err := b.exportLegacy()
		if err != nil {
			return shares, err
		}
		shares = append(shares, s)
	}
	if m.dev.options.dmaBuf && m.dev.facts.dma_buf != 0 {
		s, err := m.DMABuf()
		if err != nil {
			return shares, err
		}
		shares = append(shares, s)
	}
	return shares, nil
}

// withHandle lends the driver's handle of the block.
func (b *block) withHandle(use func(C.uint64_t) C.cuda_status) error {
	if b.kind == blockVMM {
		return b.owner.check("export", use(b.vmm.handle))
	}
	var h C.uint64_t
	if err := b.owner.check("export", C.cuda_retain_handle(b.owner.c, C.uint64_t(b.base), &h)); err != nil {
		return err
	}
	defer C.cuda_release_handle(b.owner.c, h)
	return b.owner.check("export", use(h))
}

func (b *block) exportFD() (framework.Share, error) {
	fd := C.int(-1)
	err := b.withHandle(func(h C.uint64_t) C.cuda_status { return C.cuda_export_fd(b.owner.c, h, &fd) })
	if err != nil {
		return framework.Share{}, err
	}
	return framework.Share{Kind: framework.ShareVMM, FD: os.NewFile(uintptr(fd), "cuda-memory")}, nil
}

func (b *block) exportFabric() (framework.Share, error) {
	blob := make([]byte, C.sizeof_CUmemFabricHandle)
	err := b.withHandle(func(h C.uint64_t) C.cuda_status { return C.cuda_export_fabric(b.owner.c, h, ptr(blob)) })
	if err != nil {
		return framework.Share{}, err
	}
	return framework.Share{Kind: framework.ShareFabric, Blob: blob}, nil
}

// DMABuf implements [gpu.DMABufMemory].
func (m *Memory) DMABuf() (framework.Share, error) {
	b := m.block
	if m.closed.Load() {
		return framework.Share{}, fmt.Errorf("%s dma-buf: memory: %w", m.dev.info.Device, framework.ErrClosed)
	}
	if b == nil || b.kind == blockHost || m.dev.facts.dma_buf == 0 {
		return framework.Share{}, fmt.Errorf("%s dma-buf: %w: expected memory of a device that exports dma-buf", m.dev.info.Device, framework.ErrUnsupported)
	}
	page := uint64(os.Getpagesize())
	bytes := (b.bytes + page - 1) &^ (page - 1)
	if b.base%page != 0 || b.base+bytes > b.start+b.whole && b.kind == blockForeign {
		return framework.Share{}, fmt.Errorf("%s dma-buf: %w: memory at %#x: expected whole pages of %d bytes",
			m.dev.info.Device, framework.ErrInvalid, b.base, page)
	}
	fd := C.int(-1)
	if err := b.owner.check("dma-buf", C.cuda_export_dma_buf(b.owner.c, C.uint64_t(b.base), C.uint64_t(bytes), &fd)); err != nil {
		return framework.Share{}, err
	}
	return framework.Share{Kind: framework.ShareDMABuf, FD: os.NewFile(uintptr(fd), "cuda-dma-buf")}, nil
}

// errorsFirst returns the first error that is one.
func errorsFirst(errs ...error) error {
	for _, err := range errs {
		if err != nil {
			return err
		}
	}
	return nil
}

var (
	_ device.Memory       = (*Memory)(nil)
	_ device.DMABufMemory = (*Memory)(nil)
)
