// Package verbs is the common part of the transports over InfiniBand and RoCE:
// libibverbs, loaded when it is needed; the choice of device, port and address; a reliable
// connection for each link; and a proxy that turns triggers into work requests.
//
// A put is an RDMA write. How a signal is sent is the difference between the transports:
// as an atomic that the peer's adapter adds to the counter, or as an immediate that the
// peer's plugin counts. In both a connection has one queue pair, whose requests the peer's
// adapter performs in the order in which they were posted.
package verbs

// #cgo LDFLAGS: -ldl
// #include <stdlib.h>
// #include "shim.h"
import "C"

import (
	"fmt"
	"sync"
	"syscall"
	"unsafe"

	"github.com/mscclpp-go/mscclpp/framework"
)

// library is a loaded libibverbs.
type library struct {
	c    *C.mscclpp_verbs
	path string
}

const defaultLibrary = "libibverbs.so.1"

// load loads the library by a path or a name.
func load(path string) (*library, error) {
	if path == "" {
		path = defaultLibrary
	}
	name := C.CString(path)
	defer C.free(unsafe.Pointer(name))
	var why [256]C.char
	c := C.mscclpp_verbs_load(name, &why[0], C.size_t(len(why)))
	if c == nil {
		return nil, fmt.Errorf("%w: %s cannot be loaded: %s; install libibverbs1, or name the library by the option library", framework.ErrUnavailable, path, C.GoString(&why[0]))
	}
	return &library{c: c, path: path}, nil
}

const maxDevices = 64

// devices lists the names of the adapters, in the library's order.
func (l *library) devices() ([]string, error) {
	var names [maxDevices][C.mscclpp_verbs_name]C.char
	n := C.mscclpp_verbs_list(l.c, &names[0], maxDevices)
	if n < 0 {
		// ENOSYS: the kernel has no RDMA at all, so there are no devices.
		if e := syscall.Errno(-n); e != syscall.ENOSYS && e != syscall.ENOENT {
			return nil, fmt.Errorf("%w: list of RDMA devices: %w", framework.ErrUnavailable, e)
		}
		return nil, nil
	}
	all := make([]string, n)
	for i := range all {
		all[i] = C.GoString(&names[i][0])
	}
	return all, nil
}

// adapter is one that was opened, with the port that is used.
type adapter struct {
	lib  *library
	c    C.mscclpp_verbs_device
	name string

	port     int
	portAttr portFacts
	gidIndex int
	gid      [16]byte

	direct *directPath // to GPUs; nil for none

	mu     sync.Mutex
	closed bool
}

// portFacts are what is known of a port.
type portFacts struct {
	active   bool
	ethernet bool
	mtu      int // as the library counts: 1 for 256 bytes to 5 for 4096
	lid      uint16
	gids     int
	longest  uint64 // message, in bytes
}

func (l *library) open(name string) (*adapter, error) {
	s := C.CString(name)
	defer C.free(unsafe.Pointer(s))
	d := &adapter{lib: l, name: name}
	if e := C.mscclpp_verbs_open(l.c, s, &d.c); e != 0 {
		e := syscall.Errno(e)
		return nil, fmt.Errorf("%w: open of RDMA device %s: %w%s", framework.ErrUnavailable, name, e, openAdvice(e))
	}
	return d, nil
}

func (d *adapter) close() {
	d.mu.Lock()
	defer d.mu.Unlock()
	if !d.closed {
		d.closed = true
		C.mscclpp_verbs_close(d.lib.c, &d.c)
	}
}

// atomics reports whether the adapter adds to memory on behalf of a peer.
func (d *adapter) atomics() bool { return d.c.attr.atomic_cap != C.rv_atomic_none }

// longest is how much one request can carry.
func (d *adapter) longest() uint64 {
	if n := d.portAttr.longest; n > 0 {
		return min(n, largestPut)
	}
	return largestPut
}

func (d *adapter) ports() int { return int(d.c.attr.phys_port_cnt) }

func (d *adapter) queryPort(port int) (portFacts, error) {
	var a C.struct_rv_port_attr
	if e := C.mscclpp_verbs_port(d.lib.c, d.c.context, C.int(port), &a); e != 0 {
		return portFacts{}, fmt.Errorf("%w: device %s port %d: %w", framework.ErrUnavailable, d.name, port, syscall.Errno(e))
	}
	return portFacts{
		active:   a.state == C.rv_port_active,
		ethernet: a.link_layer == C.rv_link_layer_ethernet,
		mtu:      int(a.active_mtu),
		lid:      uint16(a.lid),
		gids:     int(a.gid_tbl_len),
		longest:  uint64(a.max_msg_sz),
	}, nil
}

// queryGID returns an entry of a port's table of addresses; kind is -1 where the library
// does not know.
func (d *adapter) queryGID(port, index int) (gid [16]byte, kind int, err error) {
	var t C.int
	if e := C.mscclpp_verbs_gid(d.lib.c, d.c.context, C.int(port), C.int(index), (*C.uint8_t)(&gid[0]), &t); e != 0 {
		return gid, -1, syscall.Errno(e)
	}
	return gid, int(t), nil
}

// region is memory that the adapter may touch.
type region struct {
	dev        *adapter
	mr         *C.struct_rv_mr
	addr       uint64 // by which adapters name its first byte
	bytes      uint64
	lkey, rkey uint32
}

// register makes memory of this process known to the adapter.
func (d *adapter) register(addr unsafe.Pointer, bytes uint64, access int) (*region, error) {
	var e C.int
	mr := C.mscclpp_verbs_register(d.lib.c, d.c.pd, addr, C.size_t(bytes), C.int(access), &e)
	if mr == nil {
		return nil, d.refused(bytes, syscall.Errno(e))
	}
	return &region{dev: d, mr: mr, addr: uint64(uintptr(addr)), bytes: bytes, lkey: uint32(mr.lkey), rkey: uint32(mr.rkey)}, nil
}

// registerDMABuf does the same with memory of another device, by its descriptor.
func (d *adapter) registerDMABuf(fd uintptr, offset, bytes uint64, access int) (*region, error) {
	if r := d.direct.register(d, fd, offset, bytes, access); r != nil {
		return r, nil
	}
	if C.mscclpp_verbs_has_dmabuf(d.lib.c) == 0 {
		return nil, fmt.Errorf("%w: %s cannot register dma-buf memory: expected libibverbs 1.12 (rdma-core 34) or newer", framework.ErrUnsupported, d.lib.path)
	}
	var e C.int
	mr := C.mscclpp_verbs_register_dmabuf(d.lib.c, d.c.pd, C.uint64_t(offset), C.size_t(bytes), C.uint64_t(offset), C.int(fd), C.int(access), &e)
	if mr == nil {
		if errno := syscall.Errno(e); errno == syscall.EOPNOTSUPP || errno == syscall.ENOSYS {
			return nil, fmt.Errorf("%w: device %s cannot register dma-buf memory: %w", framework.ErrUnsupported, d.name, errno)
		}
		return nil, d.refused(bytes, syscall.Errno(e))
	}
	return &region{dev: d, mr: mr, addr: offset, bytes: bytes, lkey: uint32(mr.lkey), rkey: uint32(mr.rkey)}, nil
}

func (d *adapter) refused(bytes uint64, e syscall.Errno) error {
	return fmt.Errorf("%w: device %s: registration of %d bytes: %w%s", framework.ErrUnavailable, d.name, bytes, e, lockAdvice(e))
}

func (r *region) close() {
	if r == nil {
		return
	}
	C.mscclpp_verbs_deregister(r.dev.lib.c, r.mr)
}

// largestPut is that of one request; a message has 31 bits on most adapters.
const largestPut = 1 << 30
