// Package devicetest is a device without hardware, for tests of what is built on
// device.Device and device.Engine: memory of the host under addresses that the host cannot
// use, different ones for each mapping, and streams that work beside their callers.
//
// Code that takes an address of the device for one of the host faults at once, and so
// does nothing by accident. Copies beyond mapped memory, or into memory that was
// unmapped, fail as they do on hardware: later, and for good. It runs no kernels.
package devicetest

import (
	"fmt"
	"sync"
	"unsafe"

	"github.com/mscclpp-go/mscclpp/framework"
	"github.com/mscclpp-go/mscclpp/framework/device"
	"github.com/mscclpp-go/mscclpp/framework/device/host"
)

// far makes an address of the device out of one of the host. No processor
// translates such an address.
const far = 1 << 62

// Device is a device.Device, a device.Engine and a device.Marker.
type Device struct {
	host  *host.Device
	index int

	mu      sync.Mutex
	ranges  map[uintptr]uint64 // the mapped ranges: first address to size
	streams map[device.Stream]*stream
	last    device.Stream
	err     error // of the device; it stays
	hold    chan struct{}
	copies  uint64
	writes  uint64
	queries uint64
}

// Open returns device number index of type "cuda".
func Open(index int) (*Device, error) {
	h, err := host.Open()
	if err != nil {
		return nil, err
	}
	return &Device{host: h, index: index, ranges: map[uintptr]uint64{}, streams: map[device.Stream]*stream{}}, nil
}

// Info implements device.Device.
func (d *Device) Info() device.Info {
	return device.Info{Device: framework.Device{Type: "cuda", Index: d.index}, Name: "fake", SMs: 4}
}

// Memory is memory of the device.
type Memory struct {
	device.Memory
	device *Device
}

// Addr returns the address as the device uses it.
func (m *Memory) Addr() uintptr { return m.Memory.Addr() + far }

// Export returns the descriptor alone: another mapping has another address, also in
// the same process.
func (m *Memory) Export() ([]framework.Share, error) {
	all, err := m.Memory.Export()
	if err != nil {
		return nil, err
	}
	var kept []framework.Share
	for _, s := range all {
		if s.Kind == framework.ShareMemFD {
			kept = append(kept, s)
		} else {
			s.Close()
		}
	}
	return kept, nil
}

// Close unmaps the memory. A copy that comes too late fails.
func (m *Memory) Close() error {
	m.device.mu.Lock()
	delete(m.device.ranges, m.Addr())
	m.device.mu.Unlock()
	return m.Memory.Close()
}

func (d *Device) adopt(m device.Memory, err error) (device.Memory, error) {
	if err != nil {
		return nil, err
	}
	made := &Memory{Memory: m, device: d}
	d.mu.Lock()
	defer d.mu.Unlock()
	d.ranges[made.Addr()] = m.Bytes()
	return made, nil
}

// Alloc implements device.Device.
func (d *Device) Alloc(bytes uint64) (device.Memory, error) { return d.adopt(d.host.Alloc(bytes)) }

// Map implements device.Device: memory of a peer, or of the host.
func (d *Device) Map(m framework.Mapping) (device.Memory, error) {
	var shares []framework.Share
	for _, s := range m.Shares {
		if s.Kind == framework.ShareMemFD { // never local: that would be the same address
			shares = append(shares, s)
		}
	}
	m.Shares = shares
	return d.adopt(d.host.Map(m))
}

// Object implements device.Device; there is no switch.
func (d *Device) Object(framework.Object, *framework.Share) (device.Object, error) {
	return nil, fmt.Errorf("%w: the fake device has no switch", framework.ErrUnsupported)
}

// Load implements device.Device; there are no kernels.
func (d *Device) Load([]byte) (device.Module, error) {
	return nil, fmt.Errorf("%w: the fake device runs no kernels", framework.ErrUnsupported)
}

// Close ends all streams.
func (d *Device) Close() error {
	d.Hold()()
	d.mu.Lock()
	var open []device.Stream
	for s := range d.streams {
		open = append(open, s)
	}
	d.mu.Unlock()
	for _, s := range open {
		_ = d.CloseStream(s)
	}
	return d.host.Close()
}

// Word is the word at an address of the device, for tests that play a kernel.
func (d *Device) Word(addr uintptr) *uint64 { return (*uint64)(d.at(addr, 8)) }

// Bytes is memory of the device, for tests that play a kernel.
func (d *Device) Bytes(addr uintptr, n uint64) []byte { return unsafe.Slice((*byte)(d.at(addr, n)), n) }

// at translates; it panics where a kernel would fault.
func (d *Device) at(addr uintptr, n uint64) unsafe.Pointer {
	d.mu.Lock()
	defer d.mu.Unlock()
	if !d.mapped(addr, n) {
		panic(fmt.Sprintf("devicetest: %d bytes at %#x are not mapped on the device", n, addr))
	}
	return closeTo(addr)
}

// mapped reports whether a range is. The caller holds mu.
func (d *Device) mapped(addr uintptr, n uint64) bool {
	for first, size := range d.ranges {
		if addr >= first && uint64(addr-first) <= size && n <= size-uint64(addr-first) {
			return true
		}
	}
	return false
}

func closeTo(addr uintptr) unsafe.Pointer {
	addr -= far
	return *(*unsafe.Pointer)(unsafe.Pointer(&addr))
}

var (
	_ device.Device = (*Device)(nil)
	_ device.Engine = (*Device)(nil)
)
