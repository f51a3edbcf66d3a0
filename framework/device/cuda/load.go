package cuda

import (
	"bytes"
	"crypto/sha256"
	"debug/elf"
	"encoding/hex"
	"fmt"
	"strconv"
	"strings"
	"time"

	"github.com/mscclpp-go/mscclpp/framework"
	"github.com/mscclpp-go/mscclpp/framework/device"
	"github.com/mscclpp-go/mscclpp/framework/device/native"
	"github.com/mscclpp-go/mscclpp/framework/internal/machinecode"
	"github.com/mscclpp-go/mscclpp/framework/kernel"
	"github.com/mscclpp-go/mscclpp/internal/onfirstuse"
)

// loader loads images of kernels.
type loader struct {
	dev  *native.Marking
	back *native.Backend
	code *code
}

// Load makes the kernels of an image callable: PTX, for which there may be machine code,
// and which the driver else compiles and remembers on disk; or a binary. The compiler's
// messages are part of the error, in Error.Log.
func (d *loader) Load(image []byte) (device.Module, error) {
	if err := d.loads(image); err != nil {
		return nil, err
	}
	if len(image) == 0 || bytes.HasPrefix(image, []byte(elf.ELFMAG)) {
		return moduleOf(loadAs(d.dev, "binary", image))
	}
	if !d.code.empty() {
		sum := sha256.Sum256(image)
		if m := d.assembled(hex.EncodeToString(sum[:])); m != nil {
			return m, nil
		}
	}
	began := time.Now()
	m, err := loadAs(d.dev, "PTX", image)
	if err == nil {
		d.code.log.Info("the driver has compiled kernels", "device", m.dev, "took", time.Since(began))
	}
	return moduleOf(m, err)
}

// loads refuses what the driver would say little about.
func (d *loader) loads(image []byte) error {
	if err := d.dev.Live("load"); err != nil {
		return err
	}
	if err := d.checkMachine(image); err != nil {
		return fmt.Errorf("%s load: %w", d.dev.Info().Device, err)
	}
	if err := checkABI(image); err != nil {
		return fmt.Errorf("%s load: %w", d.dev.Info().Device, err)
	}
	return nil
}

// loadable says what the device takes.
func (d *loader) loadable() string {
	return "PTX or a binary for " + strings.Join(d.dev.Info().Archs, " or ")
}

// checkMachine refuses what was built for a processor, or for another maker's GPU: of
// that the driver says no more than that it is invalid.
func (d *loader) checkMachine(image []byte) error {
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

// LoadAssembled makes the kernels of the image with this sha256 callable, from machine code
// if there is any that the driver takes. Else both results are nil.
func (d *loader) LoadAssembled(sha256 string) (device.Module, error) {
	if err := d.dev.Live("load"); err != nil || d.code.empty() {
		return nil, err
	}
	if m := d.assembled(sha256); m != nil {
		return m, nil
	}
	return nil, nil //nolint:nilnil // documented: there is none
}

// assembled loads machine code of an image, nil if there is none. A fault of it is
// reported once, and the image takes its place.
func (d *loader) assembled(sha256 string) *Module {
	began := time.Now()
	found, err := d.code.library.Find(sha256)
	if err != nil {
		d.code.log.Warn("machine code is damaged, and the driver compiles the kernels", "device", d.dev.Info().Device, "reason", err)
	}
	if found == nil {
		return nil
	}
	m, err := d.shared(found)
	if err != nil {
		d.code.library.Refuse(found, sha256)
		d.code.log.Warn("the driver refuses machine code, and compiles the kernels", "device", d.dev.Info().Device, "image", found.ID, "file", found.Path, "reason", err)
		return nil
	}
	d.code.log.Debug("machine code of kernels is loaded", "device", d.dev.Info().Device, "image", found.ID, "form", m.form, "took", time.Since(began))
	return m
}

// shared loads machine code, or finds it loaded.
func (d *loader) shared(found *machinecode.Found) (*Module, error) {
	r := enterResident(residentKey{d.back, d.dev.Info().Device.Index, found.SHA256})
	r.loading.Lock()
	defer r.loading.Unlock()
	form := "machine code for " + found.Chip
	if r.module != nil {
		return &Module{module: r.module, dev: d.dev.Info().Device, form: form, resident: r}, nil
	}
	m, err := loadAs(d.dev, form, found.Bytes)
	if err != nil {
		r.leave()
		return nil, err
	}
	r.module, m.resident = m.module, r
	return m, nil
}
