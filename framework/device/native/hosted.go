package native

import (
	"errors"
	"fmt"

	"github.com/mscclpp-go/mscclpp/framework"
	"github.com/mscclpp-go/mscclpp/framework/device"
	"github.com/mscclpp-go/mscclpp/framework/memfd"
)

// allocHosted makes memory of the host and registers it. The memory is shared by its descriptor.
func (d *Device) allocHosted(bytes uint64) (device.Memory, error) {
	if err := d.live("alloc"); err != nil {
		return nil, err
	}
	if d.b.has&hasHost == 0 {
		return nil, d.unsupported("alloc", "the device cannot register host memory")
	}
	h, err := memfd.New("mscclpp", bytes, memfd.Options{})
	if err != nil {
		return nil, fmt.Errorf("%s alloc: %w", d.info.Device, err)
	}
	m, err := d.register(uintptr(h.Addr()), bytes, h.File(), 0)
	if err != nil {
		return nil, errors.Join(err, h.Close())
	}
	unregister := m.release
	m.file = h.File()
	m.release = func() error { return errors.Join(unregister(), h.Close()) }
	return m, nil
}

// exportHosted lends the descriptor of memory that allocHosted made.
func (m *Memory) exportHosted() ([]framework.Share, error) {
	s, err := framework.Share{Kind: framework.ShareMemFD, FD: m.file}.Dup()
	if err != nil {
		return nil, fmt.Errorf("%s export: %w", m.dev.info.Device, err)
	}
	return []framework.Share{s}, nil
}
