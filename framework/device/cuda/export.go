package cuda

// #include "shim.h"
import "C"

import (
	"fmt"
	"os"

	"github.com/mscclpp-go/mscclpp/framework"
)

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
