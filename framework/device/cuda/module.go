package cuda

import (
	"fmt"
	"sync/atomic"

	"github.com/mscclpp-go/mscclpp/framework"
	"github.com/mscclpp-go/mscclpp/framework/device"
	"github.com/mscclpp-go/mscclpp/framework/device/native"
)

// Module is a loaded image. It implements device.Module.
type Module struct {
	module   *native.Module
	dev      framework.Device
	form     string
	resident *resident // of machine code, which others may use as well
	closed   atomic.Bool
}

// moduleOf returns no nil pointer in an interface.
func moduleOf(m *Module, err error) (device.Module, error) {
	if err != nil {
		return nil, err
	}
	return m, nil
}

// loadAs has the driver load an image.
func loadAs(d *native.Marking, form string, image []byte) (*Module, error) {
	m, err := d.Load(image)
	if err != nil {
		return nil, err
	}
	return &Module{module: m.(*native.Module), dev: d.Info().Device, form: form}, nil
}

// Form says what was loaded: PTX, machine code for a chip, or a binary of the caller's.
func (m *Module) Form() string { return m.form }

// Kernel finds an entry point. It must not be launched after the module is closed.
func (m *Module) Kernel(symbol string) (device.Kernel, error) {
	if m.closed.Load() {
		return nil, fmt.Errorf("%s kernel %s: module: %w", m.dev, symbol, framework.ErrClosed)
	}
	return m.module.Kernel(symbol)
}

// Close unloads the image, unless others use it.
func (m *Module) Close() error {
	if m.closed.Swap(true) || m.resident != nil && !m.resident.leave() {
		return nil
	}
	return m.module.Close()
}

var _ device.Module = (*Module)(nil)
