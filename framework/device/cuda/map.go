package cuda

// #include "shim.h"
import "C"

import (
	"errors"
	"fmt"
	"os"
	"slices"
	"strings"
	"unsafe"

	"github.com/mscclpp-go/mscclpp/framework"
	"github.com/mscclpp-go/mscclpp/framework/device"
	"github.com/mscclpp-go/mscclpp/framework/memfd"
)

// Map makes memory of another process, of another device of this process, or of the
// host, addressable by kernels of the device.
func (d *allocator) Map(m framework.Mapping) (device.Memory, error) {
	if err := d.live("map"); err != nil {
		return nil, err
	}
	if len(m.Shares) == 0 {
		return nil, fmt.Errorf("%s map: %w: mapping without shares", d.info.Device, framework.ErrInvalid)
	}
	var reasons []error
	for _, s := range m.Shares {
		memory, err := d.mapShare(s, m.Offset, m.Bytes)
		if err == nil {
			return memory, nil
		}
		reasons = append(reasons, fmt.Errorf("%s: %w", s.Kind, err))
	}
	return nil, fmt.Errorf("%s map %d bytes at %d: %w", d.info.Device, m.Bytes, m.Offset, join(reasons))
}

func (d *allocator) mapShare(s framework.Share, offset, bytes uint64) (*Memory, error) {
	switch s.Kind {
	case framework.ShareLocal:
		return d.openLocal(s.Blob, offset, bytes)
	case framework.ShareVMM:
		return d.openFD(s.FD, offset, bytes)
	case framework.ShareFabric:
		if len(s.Blob) != C.sizeof_CUmemFabricHandle {
			return nil, fmt.Errorf("%w: handle of %d bytes: expected %d", framework.ErrInvalid, len(s.Blob), C.sizeof_CUmemFabricHandle)
		}
		return d.importBlock(C.CU_MEM_HANDLE_TYPE_FABRIC, 0, ptr(s.Blob), offset, bytes)
	case framework.ShareLegacyIPC:
		return d.openLegacy(s.Blob, offset, bytes)
	case framework.ShareMemFD:
		return d.openHost(s.FD, offset, bytes)
	}
	return nil, fmt.Errorf("%w: expected local, vmm, fabric, legacy-ipc or memfd", framework.ErrUnsupported)
}

func (d *allocator) openFD(f *os.File, offset, bytes uint64) (m *Memory, err error) {
	if f == nil {
		return nil, fmt.Errorf("%w: share without a descriptor", framework.ErrInvalid)
	}
	raw, err := f.SyscallConn()
	if err != nil {
		return nil, fmt.Errorf("%w: descriptor: %w", framework.ErrInvalid, err)
	}
	if e := raw.Control(func(fd uintptr) {
		m, err = d.importBlock(C.CU_MEM_HANDLE_TYPE_POSIX_FILE_DESCRIPTOR, C.int(fd), nil, offset, bytes)
	}); e != nil {
		return nil, fmt.Errorf("%w: descriptor: %w", framework.ErrInvalid, e)
	}
	return m, err
}

// importBlock maps the memory behind a handle. The driver maps no part of an
// allocation: ErrUnsupported, unless offset and bytes reach its last unit.
func (d *allocator) importBlock(kind, fd C.int, blob unsafe.Pointer, offset, bytes uint64) (*Memory, error) {
	if err := within(offset, bytes, maxBytes); err != nil {
		return nil, err
	}
	if err := d.begin("map"); err != nil {
		return nil, err
	}
	var b C.cuda_block
	if err := d.check("import", C.cuda_import(d.c, kind, fd, blob, C.uint64_t(offset+bytes), &b)); err != nil {
		return nil, errorsFirst(explained(err, offset+bytes), d.drop())
	}
	return &Memory{dev: d, addr: uintptr(b.address) + uintptr(offset), bytes: bytes, release: func() error {
		return errors.Join(d.check("unmap", C.cuda_destroy(d.c, &b)), d.drop())
	}}, nil
}

// explained adds to an answer of the driver what it means for memory of others. The meaning of a
// code depends on the step: one code alone may say that a kind of handle, a part of an allocation,
// or a path between two GPUs is not available.
func explained(err error, end uint64) error {
	var e *Error
	if !errors.As(err, &e) {
		return err
	}
	switch {
	case e.Call == "cuMemMap" && e.Code == C.CUDA_ERROR_NOT_SUPPORTED:
		return fmt.Errorf("%w (an allocation is mapped whole: expected a range that ends with it, not at %d)", err, end)
	case e.Call == "cuMemSetAccess" && (e.Code == C.CUDA_ERROR_INVALID_DEVICE || e.Code == C.CUDA_ERROR_PEER_ACCESS_UNSUPPORTED):
		return fmt.Errorf("%w (expected a GPU that may address the memory of the other one, or memory of the host that both register)", err)
	}
	return err
}

// openHost maps host memory into the process and makes it known to the driver.
func (d *allocator) openHost(f *os.File, offset, bytes uint64) (*Memory, error) {
	if d.facts.host_register == 0 {
		return nil, fmt.Errorf("%w: %s cannot register host memory", framework.ErrUnsupported, d.info.Name)
	}
	h, err := memfd.Open(f, offset, bytes)
	if err != nil {
		return nil, err
	}
	m, err := d.register(uintptr(h.Addr()), bytes)
	if err != nil {
		return nil, errors.Join(err, h.Close())
	}
	unregister := m.release
	m.release = func() error { return errors.Join(unregister(), h.Close()) }
	return m, nil
}

// register pins host memory, whole pages of it, and makes it addressable.
func (d *allocator) register(host uintptr, bytes uint64) (*Memory, error) {
	if err := d.begin("register"); err != nil {
		return nil, err
	}
	page := uintptr(memfd.PageSize())
	start := host &^ (page - 1)
	end := (host + uintptr(bytes) + page - 1) &^ (page - 1)
	var address C.uint64_t
	if err := d.check("register", C.cuda_register(d.c, C.uint64_t(start), C.uint64_t(end-start), &address)); err != nil {
		return nil, errorsFirst(err, d.drop())
	}
	return &Memory{dev: d, addr: uintptr(address) + host - start, bytes: bytes, host: host, release: func() error {
		return errors.Join(d.check("unregister", C.cuda_unregister(d.c, C.uint64_t(start))), d.drop())
	}}, nil
}

// join reports every reason on one line.
func join(reasons []error) error {
	if len(reasons) == 1 {
		return reasons[0]
	}
	return &joined{reasons}
}

type joined struct{ all []error }

func (j *joined) Error() string {
	texts := make([]string, len(j.all))
	for i, err := range j.all {
		texts[i] = strings.ReplaceAll(err.Error(), "\n", "; ")
	}
	return strings.Join(texts, "; ")
}

func (j *joined) Unwrap() []error { return j.all }

// openLocal finds the block behind a local share, gives the device access to it and
// becomes a user of it.
func (d *allocator) openLocal(blob []byte, offset, bytes uint64) (*Memory, error) {
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
	if err := within(offset, bytes, b.bytes); err != nil {
		return nil, err
	}
	if err := d.grant(b); err != nil {
		return nil, err
	}
	if err := d.hold("map"); err != nil {
		return nil, err
	}
	b.users++
	release := func() error { return errors.Join(b.release(), d.drop()) }
	return &Memory{dev: d, addr: uintptr(b.base + offset), bytes: bytes, release: release}, nil
}

// grant gives the device access to a block of another one. blocks is locked.
func (d *allocator) grant(b *block) error {
	if b.kind == blockHost || b.owner.index == d.index || slices.Contains(b.granted, d.index) {
		return nil
	}
	can, err := d.reaches(b.owner.index)
	if err != nil {
		return err
	}
	if !can {
		return fmt.Errorf("%w: %s has no peer access to cuda:%d", framework.ErrUnsupported, d.info.Device, b.owner.index)
	}
	var st C.cuda_status
	if b.mapped {
		st = C.cuda_grant(d.c, C.uint64_t(b.start), C.uint64_t(b.whole))
	} else {
		st = C.cuda_enable_peer(d.c, b.owner.c)
	}
	if err := d.check("peer access", st); err != nil {
		return err
	}
	b.granted = append(b.granted, d.index)
	return nil
}
