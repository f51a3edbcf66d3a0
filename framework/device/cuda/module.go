package cuda

import (
	"bytes"
	"crypto/sha256"
	"debug/elf"
	"encoding/hex"
	"fmt"
	"strconv"
	"strings"
	"sync/atomic"
	"time"

	"github.com/mscclpp-go/mscclpp/framework"
	"github.com/mscclpp-go/mscclpp/framework/device"
	"github.com/mscclpp-go/mscclpp/framework/device/native"
	"github.com/mscclpp-go/mscclpp/framework/kernel"
	"github.com/mscclpp-go/mscclpp/internal/onfirstuse"
)

// Module is a loaded image. It implements device.Module.
type Module struct {
	module   *native.Module
	dev      framework.Device
	form     string
	resident *resident // of machine code, which others may use as well
	closed   atomic.Bool
}

// Load makes the kernels of an image callable: PTX, for which there may be machine code,
// and which the driver else compiles and remembers on disk; or a binary. The compiler's
// messages are part of the error, in Error.Log.
func (d *Device) Load(image []byte) (device.Module, error) {
	if err := d.loads(image); err != nil {
		return nil, err
	}
	if len(image) == 0 || bytes.HasPrefix(image, []byte(elf.ELFMAG)) {
		return moduleOf(d.loadAs("binary", image))
	}
	if !d.code.empty() {
		sum := sha256.Sum256(image)
		if m := d.assembled(hex.EncodeToString(sum[:])); m != nil {
			return m, nil
		}
	}
	began := time.Now()
	m, err := d.loadAs("PTX", image)
	if err == nil {
		d.code.log.Info("the driver has compiled kernels", "device", m.dev, "took", time.Since(began))
	}
	return moduleOf(m, err)
}

// loads refuses what the driver would say little about.
func (d *Device) loads(image []byte) error {
	if err := d.Live("load"); err != nil {
		return err
	}
	if err := d.checkMachine(image); err != nil {
		return fmt.Errorf("%s load: %w", d.Info().Device, err)
	}
	if err := checkABI(image); err != nil {
		return fmt.Errorf("%s load: %w", d.Info().Device, err)
	}
	return nil
}

// moduleOf returns no nil pointer in an interface.
func moduleOf(m *Module, err error) (device.Module, error) {
	if err != nil {
		return nil, err
	}
	return m, nil
}

// loadAs has the driver load an image.
func (d *Device) loadAs(form string, image []byte) (*Module, error) {
	m, err := d.Marking.Load(image)
	if err != nil {
		return nil, err
	}
	return &Module{module: m.(*native.Module), dev: d.Info().Device, form: form}, nil
}

// loadable says what the device takes.
func (d *Device) loadable() string {
	return "PTX or a binary for " + strings.Join(d.Info().Archs, " or ")
}

// checkMachine refuses what was built for a processor, or for another maker's GPU: of
// that the driver says no more than that it is invalid.
func (d *Device) checkMachine(image []byte) error {
	f, err := elf.NewFile(bytes.NewReader(image))
	if err == nil && f.Machine != elf.EM_CUDA {
		return fmt.Errorf("%w: image for %v: expected %s", framework.ErrInvalid, f.Machine, d.loadable())
	}
	return nil // PTX, or for the driver to judge
}

var abiWord = onfirstuse.Regexp(`\bmscclpp_abi = (\d+);`)

// checkABI refuses PTX that was built with headers of other layouts. Images that do
// not use the headers do not say; of binaries it is not known.
func checkABI(image []byte) error {
	found := abiWord().FindSubmatch(image)
	if found != nil && string(found[1]) != strconv.Itoa(kernel.ABI) {
		return fmt.Errorf("%w: image of ABI %s: expected %d; build it again", framework.ErrInvalid, found[1], kernel.ABI)
	}
	return nil
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
