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

// allocator makes and imports memory of a device.
type allocator struct {
	*gpu
	options options
	// noFabric is set when the driver refused to make memory for the fabric.
	noFabric atomic.Bool
}

// Memory is memory that kernels of a device can address. It implements device.Memory.
type Memory struct {
	dev     *allocator
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
func (d *allocator) Alloc(bytes uint64) (device.Memory, error) {
	m, err := d.alloc(bytes)
	if err != nil {
		return nil, err
	}
	return m, nil
}

const maxBytes = 1 << 46 // beyond any device; keeps sums from wrapping

func (d *allocator) alloc(bytes uint64) (*Memory, error) {
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
func (d *allocator) allocVMM(b *block) C.cuda_status {
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

func (d *allocator) allocLegacy(b *block) C.cuda_status {
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
func (d *allocator) FabricRefused() bool { return d.noFabric.Load() }

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
