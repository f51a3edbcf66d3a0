package cuda

import (
	"fmt"
	"log/slog"
	"sync"
	"time"

	"github.com/mscclpp-go/mscclpp/framework"
	"github.com/mscclpp-go/mscclpp/framework/device"
	"github.com/mscclpp-go/mscclpp/framework/device/native"
	"github.com/mscclpp-go/mscclpp/framework/internal/machinecode"
)

// code is the machine code of images that a device may load in their place.
type code struct {
	library *machinecode.Library
	log     *slog.Logger
}

// openCode reads the containers. One that cannot be read is reported and passed over: its
// images are compiled by the driver.
func openCode(o *options, dev framework.Device, major, minor int) *code {
	c := &code{log: o.log}
	if c.log == nil {
		c.log = slog.New(slog.DiscardHandler)
	}
	library, err := machinecode.Open(o.machineCode, major, minor)
	if err != nil {
		c.log.Warn("machine code of kernels is passed over, and the driver compiles them", "device", dev, "reason", err)
	} else if library.Empty() {
		c.log.Info("there is no machine code of kernels for this GPU, and the driver compiles them", "device", dev, "capability", fmt.Sprintf("%d.%d", major, minor))
	}
	c.library = library
	return c
}

func (c *code) empty() bool { return c.library.Empty() }

// LoadAssembled makes the kernels of the image with this sha256 callable, from machine code
// if there is any that the driver takes. Else both results are nil.
func (d *Device) LoadAssembled(sha256 string) (device.Module, error) {
	if err := d.Live("load"); err != nil || d.code.empty() {
		return nil, err
	}
	if m := d.assembled(sha256); m != nil {
		return m, nil
	}
	return nil, nil //nolint:nilnil // documented: there is none
}

// assembled loads machine code of an image, nil if there is none. A fault of it is
// reported once, and the image takes its place.
func (d *Device) assembled(sha256 string) *Module {
	began := time.Now()
	found, err := d.code.library.Find(sha256)
	if err != nil {
		d.code.log.Warn("machine code is damaged, and the driver compiles the kernels", "device", d.Info().Device, "reason", err)
	}
	if found == nil {
		return nil
	}
	m, err := d.shared(found)
	if err != nil {
		d.code.library.Refuse(found, sha256)
		d.code.log.Warn("the driver refuses machine code, and compiles the kernels", "device", d.Info().Device, "image", found.ID, "file", found.Path, "reason", err)
		return nil
	}
	d.code.log.Debug("machine code of kernels is loaded", "device", d.Info().Device, "image", found.ID, "form", m.form, "took", time.Since(began))
	return m
}

// residents are the modules of machine code that the process has loaded. Each communicator of
// an NCCL program has a device of its own for the same GPU, and all of them use the same.
var residents = struct {
	sync.Mutex
	of map[residentKey]*resident
}{of: map[residentKey]*resident{}}

type residentKey struct {
	driver *native.Backend
	index  int
	sha256 string // of the machine code
}

type resident struct {
	key   residentKey
	users int // under the lock of residents

	loading sync.Mutex
	module  *native.Module // of the device that loaded it, which lives as long; nil until then
}

// shared loads machine code, or finds it loaded.
func (d *Device) shared(found *machinecode.Found) (*Module, error) {
	r := enterResident(residentKey{d.back, d.Info().Device.Index, found.SHA256})
	r.loading.Lock()
	defer r.loading.Unlock()
	form := "machine code for " + found.Chip
	if r.module != nil {
		return &Module{module: r.module, dev: d.Info().Device, form: form, resident: r}, nil
	}
	m, err := d.loadAs(form, found.Bytes)
	if err != nil {
		r.leave()
		return nil, err
	}
	r.module, m.resident = m.module, r
	return m, nil
}

func enterResident(key residentKey) *resident {
	residents.Lock()
	defer residents.Unlock()
	r := residents.of[key]
	if r == nil {
		r = &resident{key: key}
		residents.of[key] = r
	}
	r.users++
	return r
}

// leave ends one use, and reports whether it was the last.
func (r *resident) leave() (last bool) {
	residents.Lock()
	defer residents.Unlock()
	if r.users--; r.users > 0 {
		return false
	}
	delete(residents.of, r.key)
	return true
}
