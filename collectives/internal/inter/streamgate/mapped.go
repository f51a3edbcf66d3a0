package streamgate

import (
	"errors"

	"github.com/mscclpp-go/mscclpp/framework"
	"github.com/mscclpp-go/mscclpp/framework/device"
)

// Device is one whose streams can wait for a word: those of package cuda.
type Device interface {
	device.Device
	device.Engine
	device.Marker
	WaitValue(s device.Stream, addr uintptr, value uint64) error
}

// Of returns a device as one whose streams can wait for a word, if they can.
func Of(d device.Device) (Device, bool) {
	waiting, ok := d.(Device)
	if may, asked := d.(interface{ Waits() bool }); asked && !may.Waits() {
		return nil, false // of a kind that has such devices and others
	}
	return waiting, ok
}

// Mapped is memory of the host that a device maps.
type Mapped struct {
	Host   device.Memory
	Device device.Memory // the same, as the device sees it
}

// Map allocates memory of the host and maps it on a device.
func Map(d, host device.Device, bytes uint64) (Mapped, error) {
	m, err := host.Alloc(bytes)
	if err != nil {
		return Mapped{}, err
	}
	s, err := expose(d, m)
	if err != nil {
		m.Close()
	}
	return s, err
}

// expose maps memory of the host on a device.
func expose(d device.Device, m device.Memory) (Mapped, error) {
	shares, err := m.Export()
	if err != nil {
		return Mapped{}, err
	}
	mapping := framework.Mapping{Role: framework.RolePeer, Peer: framework.NoPeer, Shares: shares, Bytes: m.Bytes()}
	defer framework.Attachment{Mappings: []framework.Mapping{mapping}}.Close()
	mapped, err := d.Map(mapping)
	if err != nil {
		return Mapped{}, err
	}
	return Mapped{m, mapped}, nil
}

// Close releases both.
func (m Mapped) Close() error {
	var all []error
	for _, x := range []device.Memory{m.Device, m.Host} {
		if x != nil {
			all = append(all, x.Close())
		}
	}
	return errors.Join(all...)
}
