// Package host is the CPU as a device: memory that other processes can map,
// kernels that are functions of a shared object, and an emulated switch.
//
// Everything that a GPU offers through its driver exists here in its simplest
// form, so that whatever is built on device.Device runs, and is tested, on a machine
// without one. It is also the product for jobs on CPUs, so a launch is one call
// into C and allocates nothing.
package host

import (
	"fmt"
	"sync/atomic"
	"unsafe"

	"github.com/mscclpp-go/mscclpp/framework"
	"github.com/mscclpp-go/mscclpp/framework/device"
	"github.com/mscclpp-go/mscclpp/framework/memfd"
)

// Option changes a device.
type Option func(*Device)

// Prefault limits how much of an allocation, own or mapped, has its pages filled at once.
// The rest is reserved too, and filled when first touched. 0, the default, fills
// everything: right for memory that is used, wasteful for large scratch.
func Prefault(bytes uint64) Option { return func(d *Device) { d.options.Prefault = bytes } }

// Device is the CPU. It implements device.Device.
type Device struct {
	info    device.Info
	options memfd.Options
	closed  atomic.Bool
}

// Open returns the CPU. Devices are independent of each other and cost nothing.
func Open(options ...Option) (*Device, error) {
	d := &Device{info: device.Info{Device: framework.Host, Name: cpuName(), Archs: archs(), SMs: 1}}
	for _, o := range options {
		o(d)
	}
	return d, nil
}

// Info describes the CPU. A kernel runs with one block of one thread.
func (d *Device) Info() device.Info { return d.info }

// Alloc returns memory behind a sealed descriptor.
func (d *Device) Alloc(bytes uint64) (device.Memory, error) {
	if err := d.live("alloc"); err != nil {
		return nil, err
	}
	m, err := memfd.New("mscclpp", bytes, d.options)
	if err != nil {
		return nil, fmt.Errorf("host alloc: %w", err)
	}
	return &Memory{addr: uintptr(m.Addr()), bytes: bytes, region: newRegion(m)}, nil
}

// Close makes further calls fail. Memory, objects and modules of the device live
// until they are closed themselves.
func (d *Device) Close() error {
	d.closed.Store(true)
	return nil
}

func (d *Device) live(op string) error {
	if d.closed.Load() {
		return fmt.Errorf("host %s: device: %w", op, framework.ErrClosed)
	}
	return nil
}

// Wrap makes memory that the program has, from malloc, mmap or Go's heap, usable
// where device.Memory is asked for. It has no shares: other processes cannot map it.
// The caller keeps it alive and in place; Close does nothing to it.
func Wrap(addr uintptr, bytes uint64) *Memory {
	return &Memory{addr: addr, bytes: bytes}
}

// WrapMemory implements [device.Wrapper].
func (d *Device) WrapMemory(addr uintptr, bytes uint64) (device.Memory, error) {
	if err := d.live("wrap"); err != nil {
		return nil, err
	}
	return Wrap(addr, bytes), nil
}

// at turns an address outside of Go's heap into a pointer.
func at(addr uintptr) unsafe.Pointer { return *(*unsafe.Pointer)(unsafe.Pointer(&addr)) }

var (
	_ device.Device  = (*Device)(nil)
	_ device.Wrapper = (*Device)(nil)
)
