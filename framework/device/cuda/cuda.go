// Package cuda is an NVIDIA GPU as a device, through the driver's library, which is
// opened at run time. Nothing of the vendor's is needed to build, and on a machine
// without a driver the error names the missing library.
//
// A device works in its primary context, as PyTorch and the vendor's runtime do, so
// that memory and streams can be exchanged with them. Every call sets that context
// first and restores the previous one afterwards, so it does not matter on which thread
// a goroutine runs. Calls that allocate, load or wait do not disturb streams that other
// threads capture into graphs, in any capture mode.
package cuda

// #include "shim.h"
import "C"

import (
	"fmt"
	"strings"
	"sync"
	"sync/atomic"

	"github.com/mscclpp-go/mscclpp/framework"
	"github.com/mscclpp-go/mscclpp/framework/device"
)

const deviceType = "cuda"

// Option changes a device.
type Option func(*options)

type options struct {
	legacy, fabric, dmaBuf, hosted, noGDRCopy bool
}

// Legacy makes Alloc use the driver's older memory and sharing, which it otherwise
// falls back to where memory behind descriptors is not to be had.
func Legacy() Option { return func(o *options) { o.legacy = true } }

// Fabric makes Alloc ask for memory that other hosts of one NVLink fabric can
// import as well. Where that is refused, memory is made without.
func Fabric() Option { return func(o *options) { o.fabric = true } }

// DMABuf makes Export add a share for NICs where the device has it. Without it,
// Memory.DMABuf gives one on demand.
func DMABuf() Option { return func(o *options) { o.dmaBuf = true } }

// Device is one GPU. It implements device.Device and device.Engine.
type Device struct {
	*primary
	info    device.Info
	options options
	closed  atomic.Bool
	// noFabric is set when the driver refused to make memory for the fabric.
	noFabric atomic.Bool
	// captures are the streams whose goroutine BeginCapture tied to its thread.
	captures sync.Map
}

// Open returns the device with the index among those that are visible.
// ErrUnavailable: no driver, or no device. ErrInvalid: no device of this index.
func Open(index int, opts ...Option) (*Device, error) {
	drv, err := openDriver()
	if err != nil {
		return nil, fmt.Errorf("cuda: %w", err)
	}
	return drv.open(index, opts...)
}

func (drv *driver) open(index int, opts ...Option) (*Device, error) {
	if index < 0 || index >= drv.devices {
		return nil, fmt.Errorf("cuda: %w: device %d: expected 0 to %d; CUDA_VISIBLE_DEVICES says which are visible",
			framework.ErrInvalid, index, drv.devices-1)
	}
	k, err := retain(drv, index)
	if err != nil {
		return nil, err
	}
	major, minor := int(k.facts.major), int(k.facts.minor)
	d := &Device{primary: k, info: device.Info{
		Device: framework.Device{Type: deviceType, Index: index},
		Name:   C.GoString(&k.facts.name[0]),
		Archs:  archs(major, minor),
		SMs:    int(k.facts.sms),
	}}
	for _, o := range opts {
		o(&d.options)
	}
	if k.facts.memops64 == 0 {
		_ = k.drop()
		return nil, fmt.Errorf("cuda:%d open: %w: %s has no 64-bit stream memory operations: expected Volta or later",
			index, framework.ErrUnavailable, d.info.Name)
	}
	return d, nil
}

// archs lists the image architectures that a device of a compute capability can
// load, best first: newer devices compile images for older ones.
func archs(major, minor int) []string {
	var names []string
	for _, a := range []int{90, 80} {
		if 10*major+minor >= a {
			names = append(names, fmt.Sprintf("sm_%d", a))
		}
	}
	return names
}

// Info describes the device.
func (d *Device) Info() device.Info { return d.info }

// Capability returns the compute capability: 9, 0 for Hopper.
func (d *Device) Capability() (major, minor int) {
	return int(d.facts.major), int(d.facts.minor)
}

// PCI returns the address on the bus, as in /sys/bus/pci/devices: "0000:19:00.0".
func (d *Device) PCI() string { return busAddress(C.GoString(&d.facts.pci[0])) }

// busAddress spells an address as the kernel does: lower case, and a domain of four
// digits unless it needs more.
func busAddress(s string) string {
	s = strings.ToLower(s)
	domain, rest, ok := strings.Cut(s, ":")
	if n := len(domain) - 4; ok && n > 0 && strings.Trim(domain[:n], "0") == "" {
		return domain[n:] + ":" + rest
	}
	return s
}

// UUID returns the number that the device was made with, which no setting changes.
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
	if err := d.check("memory info", C.cuda_mem_info(d.c, &f, &t)); err != nil {
		return 0, 0, err
	}
	return uint64(f), uint64(t), nil
}

// Reaches reports whether kernels of this device can load and store the memory of
// another one of this process's visible devices.
func (d *Device) Reaches(index int) (bool, error) {
	if err := d.live("peer access"); err != nil {
		return false, err
	}
	return d.reaches(index)
}

// Close makes further calls fail. Memory, modules, streams, events and graphs live
// until they are closed themselves.
func (d *Device) Close() error {
	if d.closed.Swap(true) {
		return nil
	}
	return d.drop()
}

func (d *Device) live(op string) error {
	if d.closed.Load() {
		return fmt.Errorf("cuda:%d %s: device: %w", d.index, op, framework.ErrClosed)
	}
	return nil
}

// begin is live for what outlives the device: the caller drops the context.
func (d *Device) begin(op string) error {
	if err := d.live(op); err != nil {
		return err
	}
	return d.hold(op)
}

var (
	_ device.Device      = (*Device)(nil)
	_ device.Engine      = (*Device)(nil)
	_ device.Prioritizer = (*Device)(nil)
	_ device.Flusher     = (*Device)(nil)
)
