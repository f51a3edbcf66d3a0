package native

// #include "table.h"
import "C"

import (
	"fmt"
	"os"
	"sync"

	"github.com/mscclpp-go/mscclpp/framework"
	"github.com/mscclpp-go/mscclpp/framework/device"
)

// Multicast returns nil if the device can be a member of a multicast object, else why not. It asks the driver to make nothing.
func (d *Device) Multicast() error {
	if err := d.live("multicast"); err != nil {
		return err
	}
	if d.b.has&hasMulticast == 0 {
		return d.unsupported("multicast", "the device has no multicast objects")
	}
	return d.check("multicast", C.native_multicast_ready(d.t, d.d))
}

// multicast is an object, or the name of one that another process has made. It implements device.Object. The device is held
// until it is closed.
type multicast struct {
	dev *Device

	mu     sync.Mutex
	m      C.mscclpp_device_multicast
	bound  map[uint64]uint64 // ranges: sizes by place
	window *window
	closed bool
}

// Object creates a multicast object, or opens the one behind a share.
func (d *Device) Object(o framework.Object, share *framework.Share) (device.Object, error) {
	if o.Kind != framework.ObjectMulticast {
		return nil, d.unsupported("object", fmt.Sprintf("kind %d: expected a multicast object", o.Kind))
	}
	if err := d.Multicast(); err != nil {
		return nil, err
	}
	if o.Ranks < 1 || o.Bytes == 0 || o.Bytes > maxBytes {
		return nil, fmt.Errorf("%s object: %w: window of %d bytes for %d members: expected both", d.info.Device, framework.ErrInvalid, o.Bytes, o.Ranks)
	}
	if err := d.begin("object"); err != nil {
		return nil, err
	}
	made := &multicast{dev: d, m: C.mscclpp_device_multicast{size: C.sizeof_mscclpp_device_multicast}}
	err := made.open(o, share)
	if err != nil {
		return nil, firstOf(err, d.drop())
	}
	return made, nil
}

func (o *multicast) open(want framework.Object, share *framework.Share) error {
	d, members, bytes := o.dev, C.uint32_t(want.Ranks), C.uint64_t(want.Bytes)
	if share == nil {
		return d.check("make a multicast object", C.native_multicast_create(d.t, d.d, members, bytes, &o.m))
	}
	kind := -1
	for i, k := range d.b.kinds {
		if k.name == share.Kind {
			kind = i
		}
	}
	if kind < 0 || share.FD == nil {
		return fmt.Errorf("%s open a multicast object: %w: share of kind %s: expected one that the device made", d.info.Device, framework.ErrUnsupported, share.Kind)
	}
	raw, err := share.FD.SyscallConn()
	if err != nil {
		return fmt.Errorf("%s open a multicast object: %w: descriptor: %w", d.info.Device, framework.ErrInvalid, err)
	}
	c := C.mscclpp_device_share{size: C.sizeof_mscclpp_device_share, kind: C.uint32_t(kind)}
	if e := raw.Control(func(fd uintptr) {
		c.fd = C.int32_t(fd)
		err = d.check("open a multicast object", C.native_multicast_open(d.t, d.d, &c, members, bytes, &o.m))
	}); e != nil {
		return fmt.Errorf("%s open a multicast object: %w: descriptor: %w", d.info.Device, framework.ErrInvalid, e)
	}
	return err
}

func (o *multicast) live(op string) error {
	if o.closed {
		return fmt.Errorf("%s %s: multicast object: %w", o.dev.info.Device, op, framework.ErrClosed)
	}
	return nil
}

// Share returns the share by which other members open the object; the caller owns it.
func (o *multicast) Share() (framework.Share, error) {
	o.mu.Lock()
	defer o.mu.Unlock()
	if err := o.live("share"); err != nil {
		return framework.Share{}, err
	}
	d := o.dev
	c := C.mscclpp_device_share{size: C.sizeof_mscclpp_device_share, fd: -1}
	if err := d.check("share a multicast object", C.native_multicast_share(d.t, d.d, &o.m, &c)); err != nil {
		return framework.Share{}, err
	}
	if c.fd < 0 || int(c.kind) >= len(d.b.kinds) {
		return framework.Share{}, fmt.Errorf("%s share a multicast object: %w: the back end gave descriptor %d of kind %d", d.info.Device, framework.ErrUnavailable, int(c.fd), uint32(c.kind))
	}
	name := d.b.kinds[c.kind].name
	return framework.Share{Kind: name, FD: os.NewFile(uintptr(c.fd), string(name))}, nil
}

// Add makes the device a member. No member may bind, or map, before all are.
func (o *multicast) Add() error {
	o.mu.Lock()
	defer o.mu.Unlock()
	if err := o.live("add"); err != nil {
		return err
	}
	return o.dev.check("add the GPU to a multicast object", C.native_multicast_add(o.dev.t, o.dev.d, &o.m))
}

// Bind makes the device's own memory part of the window. It waits until all members are added.
func (o *multicast) Bind(_ int, own device.Memory, share *framework.Share, offset, bytes uint64) error {
	o.mu.Lock()
	defer o.mu.Unlock()
	if err := o.live("bind"); err != nil {
		return err
	}
	if share != nil {
		return fmt.Errorf("%s bind: %w: expected memory that this device allocated", o.dev.info.Device, framework.ErrInvalid)
	}
	return o.bind(0, own, offset, bytes)
}

// Unit implements device.Ranges.
func (o *multicast) Unit() uint64 { return uint64(o.m.unit) }

// BindAt implements device.Ranges.
func (o *multicast) BindAt(place uint64, own device.Memory, bytes uint64) error {
	o.mu.Lock()
	defer o.mu.Unlock()
	if err := o.live("bind"); err != nil {
		return err
	}
	return o.bind(place, own, 0, bytes)
}

// bind makes memory a range of the window. The object is locked.
func (o *multicast) bind(place uint64, own device.Memory, offset, bytes uint64) error {
	d, unit := o.dev, o.Unit()
	m, ok := own.(*Memory)
	if !ok || m.block == nil || m.block.owner != d.opened {
		return fmt.Errorf("%s bind: %w: expected memory that this device allocated", d.info.Device, framework.ErrInvalid)
	}
	if err := within(offset, bytes, m.bytes); err != nil {
		return fmt.Errorf("%s bind: %w", d.info.Device, err)
	}
	bytes = (bytes + unit - 1) / unit * unit
	if place%unit != 0 || place > uint64(o.m.bytes) || bytes > uint64(o.m.bytes)-place {
		return fmt.Errorf("%s bind: %w: %d bytes at %d of a window of %d: expected whole units of %d inside of it", d.info.Device, framework.ErrInvalid, bytes, place, uint64(o.m.bytes), unit)
	}
	for at, size := range o.bound {
		if place < at+size && at < place+bytes {
			return fmt.Errorf("%s bind: %w: memory is bound already at %d", d.info.Device, framework.ErrInvalid, at)
		}
	}
	st := C.native_multicast_bind(d.t, d.d, &o.m, &m.block.m, C.uint64_t(offset), C.uint64_t(place), C.uint64_t(bytes))
	if err := d.check("bind memory to a multicast object", st); err != nil {
		return err
	}
	if o.bound == nil {
		o.bound = map[uint64]uint64{}
	}
	o.bound[place] = bytes
	return nil
}

// UnbindAt implements device.Ranges.
func (o *multicast) UnbindAt(place uint64) error {
	o.mu.Lock()
	defer o.mu.Unlock()
	return o.unbind(place)
}

// unbind takes a range out. The object is locked.
func (o *multicast) unbind(place uint64) error {
	bytes, ok := o.bound[place]
	if !ok {
		return nil
	}
	delete(o.bound, place)
	return o.dev.check("unbind memory of a multicast object", C.native_multicast_unbind(o.dev.t, o.dev.d, &o.m, C.uint64_t(place), C.uint64_t(bytes)))
}

// Map makes the window an address, for instructions of multicast alone.
func (o *multicast) Map() (device.Memory, uint64, error) {
	o.mu.Lock()
	defer o.mu.Unlock()
	if err := o.live("map"); err != nil {
		return nil, 0, err
	}
	if o.window != nil {
		return nil, 0, fmt.Errorf("%s map: %w: the window is mapped already", o.dev.info.Device, framework.ErrInvalid)
	}
	if err := o.dev.check("map a multicast object", C.native_multicast_map(o.dev.t, o.dev.d, &o.m)); err != nil {
		return nil, 0, err
	}
	o.window = &window{o}
	return o.window, 0, nil
}

// unmap takes the window's address away. The object is locked.
func (o *multicast) unmap() error {
	if o.window == nil {
		return nil
	}
	o.window = nil
	return o.dev.check("unmap a multicast object", C.native_multicast_unmap(o.dev.t, o.dev.d, &o.m))
}

// Close ends the membership, in the order that hardware needs: the window first, then the memory's part in it, and the object
// last. The memory is closed behind it.
func (o *multicast) Close() error {
	o.mu.Lock()
	defer o.mu.Unlock()
	if o.closed {
		return nil
	}
	o.closed = true
	d := o.dev
	err := o.unmap()
	for place := range o.bound {
		err = firstOf(err, o.unbind(place))
	}
	err = firstOf(err, d.check("close a multicast object", C.native_multicast_close(d.t, d.d, &o.m)))
	return firstOf(err, d.drop())
}

// window is a multicast object as memory. It exports nothing.
type window struct{ o *multicast }

func (w *window) Addr() uintptr { return uintptr(w.o.m.address) }
func (w *window) Bytes() uint64 { return uint64(w.o.m.bytes) }

// Export implements device.Memory: members open the object instead.
func (w *window) Export() ([]framework.Share, error) { return nil, nil }

// Close unmaps the window.
func (w *window) Close() error {
	w.o.mu.Lock()
	defer w.o.mu.Unlock()
	if w.o.window != w {
		return nil
	}
	return w.o.unmap()
}

var (
	_ device.Object = (*multicast)(nil)
	_ device.Ranges = (*multicast)(nil)
	_ device.Memory = (*window)(nil)
)
