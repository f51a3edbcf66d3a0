package cuda

// #include <stdlib.h>
// #include "shim.h"
import "C"

import (
	"bytes"
	"crypto/sha256"
	"debug/elf"
	"encoding/hex"
	"errors"
	"fmt"
	"strconv"
	"strings"
	"sync"
	"time"
	"unsafe"

	"github.com/mscclpp-go/mscclpp/framework"
	"github.com/mscclpp-go/mscclpp/framework/device"
	"github.com/mscclpp-go/mscclpp/framework/kernel"
	"github.com/mscclpp-go/mscclpp/internal/onfirstuse"
)

// loader loads images of kernels.
type loader struct {
	*gpu
	code *code
}

// Module is a loaded image. It implements device.Module.
type Module struct {
	dev  *loader
	form string

	resident *resident // of machine code, which others may use as well

	mu     sync.Mutex
	handle C.uintptr_t // 0 once closed
}

// Load makes the kernels of an image callable: PTX, for which there may be machine code,
// and which the driver else compiles and remembers on disk; or a binary. The compiler's
// messages are part of the error, in Error.Log.
func (d *loader) Load(image []byte) (device.Module, error) {
	return d.holding(func() (*Module, error) { return d.load(image) })
}

// holding loads while the context is held, for the module if there is one.
func (d *loader) holding(load func() (*Module, error)) (device.Module, error) {
	if err := d.begin("load"); err != nil {
		return nil, err
	}
	m, err := load()
	if err != nil || m == nil {
		return nil, errorsFirst(err, d.drop())
	}
	return m, nil
}

func (d *loader) load(image []byte) (*Module, error) {
	if len(image) == 0 {
		return nil, fmt.Errorf("%s load: %w: empty image: expected PTX or a binary for %s", d.info.Device, framework.ErrInvalid, d.info.Name)
	}
	if err := d.checkMachine(image); err != nil {
		return nil, fmt.Errorf("%s load: %w", d.info.Device, err)
	}
	if err := checkABI(image); err != nil {
		return nil, fmt.Errorf("%s load: %w", d.info.Device, err)
	}
	if bytes.HasPrefix(image, []byte(elf.ELFMAG)) {
		return d.loadAs("binary", image)
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
		d.code.log.Info("the driver has compiled kernels", "device", d.info.Device, "took", time.Since(began))
	}
	return m, err
}

// loadAs has the driver load an image.
func (d *loader) loadAs(form string, image []byte) (*Module, error) {
	var log [16384]C.char
	m := &Module{dev: d, form: form}
	st := C.cuda_module_load(d.c, ptr(image), C.size_t(len(image)), &m.handle, &log[0], C.size_t(len(log)))
	if st.code != C.CUDA_SUCCESS {
		err := d.drv.fail("load", d.index, C.GoString(st.call), int(st.code))
		err.Log = C.GoString(&log[0])
		if err.Code == C.CUDA_ERROR_INVALID_IMAGE || err.Code == C.CUDA_ERROR_NO_BINARY_FOR_GPU {
			return nil, fmt.Errorf("%w: expected %s", err, d.loadable())
		}
		return nil, err
	}
	return m, nil
}

// loadable says what the device takes.
func (d *loader) loadable() string {
	return "PTX or a binary for " + strings.Join(d.info.Archs, " or ")
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

// Form says what was loaded: PTX, machine code for a chip, or a binary of the caller's.
func (m *Module) Form() string { return m.form }

// Kernel finds an entry point. It must not be launched after the module is closed.
func (m *Module) Kernel(symbol string) (device.Kernel, error) {
	m.mu.Lock()
	defer m.mu.Unlock()
	d := m.dev
	if m.handle == 0 {
		return nil, fmt.Errorf("%s kernel %s: module: %w", d.info.Device, symbol, framework.ErrClosed)
	}
	name := C.CString(symbol)
	defer C.free(unsafe.Pointer(name))
	var function C.uintptr_t
	var f C.cuda_kernel_facts
	st := C.cuda_kernel(d.c, m.handle, name, &function, &f)
	if st.code == C.CUDA_ERROR_NOT_FOUND {
		return nil, fmt.Errorf("%s kernel: %w: the image has no symbol %s", d.info.Device, framework.ErrInvalid, symbol)
	}
	if err := d.check("kernel "+symbol, st); err != nil {
		return nil, err
	}
	k := &Kernel{
		primary: d.primary, function: function, symbol: symbol, overlap: d.facts.major >= 9,
		attributes: Attributes{
			Registers: int(f.registers), Local: int(f.local), Shared: int(f.shared), MaxThreads: int(f.threads),
		},
	}
	k.dynamic.Store(uint32(max(f.dynamic, 0)))
	return k, nil
}

// Close unloads the image.
func (m *Module) Close() error {
	m.mu.Lock()
	defer m.mu.Unlock()
	if m.handle == 0 {
		return nil
	}
	handle := m.handle
	m.handle = 0
	var err error
	if m.resident == nil || m.resident.leave() {
		err = m.dev.check("unload", C.cuda_module_unload(m.dev.c, handle))
	}
	return errors.Join(err, m.dev.drop())
}

var _ device.Module = (*Module)(nil)
