package native

// #include <stdlib.h>
// #include "table.h"
import "C"

import (
	"errors"
	"fmt"
	"runtime"
	"strings"
	"sync"
	"sync/atomic"
	"unsafe"

	"github.com/mscclpp-go/mscclpp/framework"
	"github.com/mscclpp-go/mscclpp/framework/device"
)

// opened is a device that the back end has opened. It lives as long as anything made from it.
type opened struct {
	b     *Backend
	t, d  C.uintptr_t // the table and the device, for calls
	index int
	info  device.Info
	facts C.mscclpp_device_info
	links []framework.DeviceLink

	linked bool // links are known, and there may be none

	direct *C.native_context // for C, which launches without Go

	mu    sync.Mutex
	users int
}

// Device is a device of a back end. It implements device.Device.
type Device struct {
	*opened
	options options
	closed  atomic.Bool
}

// Option changes a device.
type Option func(*options)

type options struct{ hosted, onDemand bool }

// Hosted makes Alloc use memory of the host that is registered with the device, for devices that cannot address each other's
// memory. Every device and process of the host reaches it; kernels and copy engines use it as they use their own.
func Hosted() Option { return func(o *options) { o.hosted = true } }

// OnDemand makes Export add the shares that are otherwise made where they are asked for, as by Memory.DMABuf.
func OnDemand() Option { return func(o *options) { o.onDemand = true } }

// Streaming is a device with streams. It implements device.Engine, device.Prioritizer and device.Flusher.
type Streaming struct {
	*Device
	captures sync.Map // streams whose goroutine BeginCapture tied to its thread
	made     sync.Map // streams of NewStream, which CloseStream may close
}

// Marking is a device whose streams can wait for each other. It implements device.Marker.
type Marking struct{ *Streaming }

// Open opens the device with the index among those that are visible. options are lines "key=value". The result is a
// *Device, a *Streaming or a *Marking, by the abilities of the device.
func (b *Backend) Open(index int, options string, opts ...Option) (device.Device, error) {
	n, err := b.Count()
	if err != nil {
		return nil, err
	}
	if index < 0 || index >= n {
		return nil, fmt.Errorf("%s: %w: device %d: expected 0 to %d", b.typ, framework.ErrInvalid, index, n-1)
	}
	o := &opened{b: b, t: b.t, index: index, users: 1}
	text := C.CString(options)
	defer C.free(unsafe.Pointer(text))
	if err := o.check("open", C.native_open(b.t, C.int32_t(index), text, &o.d)); err != nil {
		return nil, err
	}
	if err := o.describe(); err != nil {
		return nil, errors.Join(err, o.drop())
	}
	d := &Device{opened: o}
	for _, set := range opts {
		set(&d.options)
	}
	switch {
	case b.has&hasEvents != 0:
		return &Marking{&Streaming{Device: d}}, nil
	case b.has&hasStreams != 0:
		return &Streaming{Device: d}, nil
	}
	return d, nil
}

func (o *opened) describe() error {
	if o.direct = C.native_context_of(o.t, o.d); o.direct == nil {
		return fmt.Errorf("%s:%d open: %w: out of memory", o.b.typ, o.index, framework.ErrUnavailable)
	}
	o.facts.size = C.sizeof_mscclpp_device_info
	if err := o.check("info", C.native_info(o.t, o.d, &o.facts)); err != nil {
		return err
	}
	o.info = device.Info{
		Device: framework.Device{Type: o.b.typ, Index: o.index},
		Name:   text(o.facts.name[:]),
		Archs:  strings.Fields(text(o.facts.archs[:])),
		SMs:    max(int(o.facts.processors), 1),
	}
	if len(o.info.Archs) == 0 {
		return fmt.Errorf("%s info: %w: the device names no architectures of images: expected one or more", o.info.Device, framework.ErrInvalid)
	}
	return o.readLinks()
}

// hold adds a user.
func (o *opened) hold(op string) error {
	o.mu.Lock()
	defer o.mu.Unlock()
	if o.users == 0 {
		return fmt.Errorf("%s %s: device: %w", o.info.Device, op, framework.ErrClosed)
	}
	o.users++
	return nil
}

// drop removes a user. With the last one the device is closed.
func (o *opened) drop() error {
	o.mu.Lock()
	defer o.mu.Unlock()
	if o.users--; o.users > 0 {
		return nil
	}
	err := o.check("close", C.native_close(o.t, o.d))
	C.free(unsafe.Pointer(o.direct))
	return err
}

func (o *opened) check(op string, st C.native_status) error { return o.b.check(op, o.index, st) }

// Handle is the device of the table, a mscclpp_device*, for packages that bring the table. It is valid until Close, and as long
// as anything that was made from the device.
func (d *Device) Handle() uintptr { return uintptr(d.d) }

// Hosted reports whether the device was opened with this option.
func (d *Device) Hosted() bool { return d.options.hosted }

// Info describes the device.
func (d *Device) Info() device.Info { return d.info }

// PCI returns the address on the bus, as in /sys/bus/pci/devices; "" if it is on none.
func (d *Device) PCI() string { return text(d.facts.pci[:]) }

// UUID returns the number that the device was made with.
func (d *Device) UUID() (id [16]byte) {
	for i := range id {
		id[i] = byte(d.facts.uuid[i])
	}
	return id
}

// MemoryInfo returns the device memory, in bytes, that is free, and all of it.
func (d *Device) MemoryInfo() (free, total uint64, err error) {
	if err := d.live("memory info"); err != nil {
		return 0, 0, err
	}
	var f, t C.uint64_t
	if err := d.check("memory info", C.native_memory_info(d.t, d.d, &f, &t)); err != nil {
		return 0, 0, err
	}
	return uint64(f), uint64(t), nil
}

// Bound runs f on a thread on which the device is the current one, for libraries of its maker.
func (d *Device) Bound(f func() error) error {
	if err := d.live("bind a thread"); err != nil {
		return err
	}
	if d.b.has&hasBinding == 0 {
		return f()
	}
	runtime.LockOSThread()
	defer runtime.UnlockOSThread()
	var saved [4]C.uint64_t
	if err := d.check("bind a thread", C.native_bind(d.t, d.d, &saved[0])); err != nil {
		return err
	}
	err := f()
	return errors.Join(err, d.check("unbind a thread", C.native_unbind(d.t, d.d, &saved[0])))
}

// Close makes further calls fail. Memory, modules, streams, events and graphs live until they are closed themselves.
func (d *Device) Close() error {
	if d.closed.Swap(true) {
		return nil
	}
	return d.drop()
}

// Live refuses an operation of a device that is closed.
func (d *Device) Live(op string) error { return d.live(op) }

func (d *Device) live(op string) error {
	if d.closed.Load() {
		return fmt.Errorf("%s %s: device: %w", d.info.Device, op, framework.ErrClosed)
	}
	return nil
}

// begin is live for what outlives the device: the caller drops it.
func (d *Device) begin(op string) error {
	if err := d.live(op); err != nil {
		return err
	}
	return d.hold(op)
}

func (d *Device) unsupported(op, what string) error {
	return fmt.Errorf("%s %s: %w: %s", d.info.Device, op, framework.ErrUnsupported, what)
}

var (
	_ device.Device     = (*Device)(nil)
	_ device.HostMapper = (*Device)(nil)
	_ device.Wrapper    = (*Device)(nil)

	_ device.DataAllocator = (*Device)(nil)

	_ device.Engine      = (*Streaming)(nil)
	_ device.Prioritizer = (*Streaming)(nil)
	_ device.Flusher     = (*Streaming)(nil)
	_ device.Marker      = (*Marking)(nil)
)
