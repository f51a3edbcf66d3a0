package cuda

import (
	"errors"
	"fmt"

	"github.com/mscclpp-go/mscclpp/framework"
	"github.com/mscclpp-go/mscclpp/framework/memfd"
)

// Hosted reports whether the device was opened with this option.
func (d *allocator) Hosted() bool { return d.options.hosted }

// allocHosted makes memory of the host and registers it. The memory is shared by its
// descriptor.
func (d *allocator) allocHosted(bytes uint64) (*Memory, error) {
	if err := d.live("alloc"); err != nil {
		return nil, err
	}
	if d.facts.host_register == 0 {
		return nil, fmt.Errorf("%s alloc: %w: %s cannot register host memory", d.info.Device, framework.ErrUnsupported, d.info.Name)
	}
	h, err := memfd.New("mscclpp", bytes, memfd.Options{})
	if err != nil {
		return nil, fmt.Errorf("%s alloc: %w", d.info.Device, err)
	}
	m, err := d.register(uintptr(h.Addr()), bytes)
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
