package native

// #include "table.h"
import "C"

import (
	"errors"
	"fmt"
	"os"
	"strings"

	"github.com/mscclpp-go/mscclpp/framework"
	"github.com/mscclpp-go/mscclpp/framework/device"
	"github.com/mscclpp-go/mscclpp/framework/memfd"
)

// Map makes memory of another process, of another device of this process, or of the host, addressable by kernels.
func (d *Device) Map(m framework.Mapping) (device.Memory, error) {
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

func (d *Device) mapShare(s framework.Share, offset, bytes uint64) (*Memory, error) {
	switch s.Kind {
	case framework.ShareLocal:
		return d.openLocal(s.Blob, offset, bytes)
	case framework.ShareMemFD:
		return d.openHost(s.FD, offset, bytes)
	}
	names := []string{"local", "memfd"}
	for i, k := range d.b.kinds {
		if k.name == s.Kind && !k.onDemand {
			return d.importShare(i, s, offset, bytes)
		}
		if !k.onDemand {
			names = append(names, string(k.name))
		}
	}
	return nil, fmt.Errorf("%w: expected one of %s", framework.ErrUnsupported, strings.Join(names, ", "))
}

// importShare has the back end map a share of one of its kinds.
func (d *Device) importShare(kind int, s framework.Share, offset, bytes uint64) (m *Memory, err error) {
	if err := within(offset, bytes, maxBytes); err != nil {
		return nil, err
	}
	if e := lend(kind, s, func(c *C.mscclpp_device_share) { m, err = d.imported(c, offset, bytes) }); e != nil {
		return nil, e
	}
	return m, err
}

// lend has a share as the back end takes it, for the time of a call.
func lend(kind int, s framework.Share, use func(*C.mscclpp_device_share)) error {
	c := C.mscclpp_device_share{size: C.sizeof_mscclpp_device_share, kind: C.uint32_t(kind), fd: -1, blob_bytes: C.uint32_t(len(s.Blob))}
	if len(s.Blob) > len(c.blob) {
		return fmt.Errorf("%w: share of %d bytes: expected at most %d", framework.ErrInvalid, len(s.Blob), len(c.blob))
	}
	for i, b := range s.Blob {
		c.blob[i] = C.uint8_t(b)
	}
	if !s.Kind.HasFD() {
		use(&c)
		return nil
	}
	if s.FD == nil || len(s.Blob) != 0 {
		return fmt.Errorf("%w: share without a descriptor, or with bytes beside it", framework.ErrInvalid)
	}
	raw, err := s.FD.SyscallConn()
	if err == nil {
		err = raw.Control(func(fd uintptr) {
			c.fd = C.int32_t(fd)
			use(&c)
		})
	}
	if err != nil {
		return fmt.Errorf("%w: descriptor: %w", framework.ErrInvalid, err)
	}
	return nil
}

func (d *Device) imported(c *C.mscclpp_device_share, offset, bytes uint64) (*Memory, error) {
	if err := d.begin("map"); err != nil {
		return nil, err
	}
	got := C.mscclpp_device_memory{size: C.sizeof_mscclpp_device_memory}
	if err := d.check("import", C.native_import_share(d.t, d.d, c, C.uint64_t(offset), C.uint64_t(bytes), &got)); err != nil {
		return nil, firstOf(err, d.drop())
	}
	return &Memory{dev: d, addr: uintptr(got.address), bytes: bytes, release: func() error {
		return errors.Join(d.check("unmap", C.native_unmap(d.t, d.d, &got)), d.drop())
	}}, nil
}

// openHost maps host memory into the process and makes it known to the device.
func (d *Device) openHost(f *os.File, offset, bytes uint64) (*Memory, error) {
	if d.b.has&hasHost == 0 {
		return nil, fmt.Errorf("%w: %s cannot register host memory", framework.ErrUnsupported, d.info.Name)
	}
	h, err := memfd.Open(f, offset, bytes)
	if err != nil {
		return nil, err
	}
	m, err := d.register(uintptr(h.Addr()), bytes, h.File(), offset)
	if err != nil {
		return nil, errors.Join(err, h.Close())
	}
	unregister := m.release
	m.release = func() error { return errors.Join(unregister(), h.Close()) }
	return m, nil
}

// register pins host memory, whole pages of it, and makes it addressable.
func (d *Device) register(host uintptr, bytes uint64, f *os.File, offset uint64) (*Memory, error) {
	if err := d.begin("register"); err != nil {
		return nil, err
	}
	page := uintptr(memfd.PageSize())
	start := host &^ (page - 1)
	end := (host + uintptr(bytes) + page - 1) &^ (page - 1)
	fd := C.int32_t(-1)
	if f != nil {
		fd = C.int32_t(f.Fd())
	}
	var address C.uint64_t
	st := C.native_host_register(d.t, d.d, C.uint64_t(start), C.uint64_t(end-start), fd, C.uint64_t(offset&^uint64(page-1)), &address)
	if err := d.check("register", st); err != nil {
		return nil, firstOf(err, d.drop())
	}
	return &Memory{dev: d, addr: uintptr(address) + host - start, bytes: bytes, host: host, release: func() error {
		return errors.Join(d.check("unregister", C.native_host_unregister(d.t, d.d, C.uint64_t(start))), d.drop())
	}}, nil
}

// AllocHost returns zeroed, pinned memory of the host, which all devices of the back end reach, and the process at HostAddr.
// It cannot be shared with other processes.
func (d *Device) AllocHost(bytes uint64) (*Memory, error) {
	if err := d.checkSize("alloc host", bytes); err != nil {
		return nil, err
	}
	if d.b.has&hasHost == 0 {
		return nil, d.unsupported("alloc host", "the device reaches no memory of the host")
	}
	if err := d.begin("alloc host"); err != nil {
		return nil, err
	}
	var host, address C.uint64_t
	if err := d.check("alloc host", C.native_host_alloc(d.t, d.d, C.uint64_t(bytes), &host, &address)); err != nil {
		return nil, firstOf(err, d.drop())
	}
	return &Memory{dev: d, addr: uintptr(address), bytes: bytes, host: uintptr(host), release: func() error {
		return errors.Join(d.check("free host", C.native_host_free(d.t, d.d, host)), d.drop())
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
