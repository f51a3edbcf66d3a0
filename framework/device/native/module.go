package native

// #include <stdlib.h>
// #include "table.h"
import "C"

import (
	"errors"
	"fmt"
	"strings"
	"sync"
	"sync/atomic"
	"unsafe"

	"github.com/mscclpp-go/mscclpp/framework"
	"github.com/mscclpp-go/mscclpp/framework/device"
)

// Module is a loaded image. It implements device.Module.
type Module struct {
	dev *Device

	mu     sync.Mutex
	handle C.uintptr_t // 0 once closed
}

// Load makes the kernels of an image callable. The compiler's messages are part of the error, in Error.Log.
func (d *Device) Load(image []byte) (device.Module, error) {
	if err := d.live("load"); err != nil {
		return nil, err
	}
	if len(image) == 0 {
		return nil, fmt.Errorf("%s load: %w: empty image: expected one for %s", d.info.Device, framework.ErrInvalid, strings.Join(d.info.Archs, " or "))
	}
	if err := d.begin("load"); err != nil {
		return nil, err
	}
	var log [16384]C.char
	m := &Module{dev: d}
	st := C.native_module_load(d.t, d.d, ptr(image), C.uint64_t(len(image)), &m.handle, &log[0], C.uint64_t(len(log)))
	if st.code != C.MSCCLPP_DEVICE_OK {
		err := d.b.fail("load", d.index, st)
		err.Log = text(log[:])
		if errors.Is(err, framework.ErrInvalid) {
			return nil, firstOf(fmt.Errorf("%w: expected an image for %s", err, strings.Join(d.info.Archs, " or ")), d.drop())
		}
		return nil, firstOf(err, d.drop())
	}
	return m, nil
}

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
	k := &Kernel{opened: d.opened, symbol: symbol}
	k.facts.size = C.sizeof_mscclpp_device_kernel_info
	st := C.native_kernel_find(d.t, d.d, m.handle, name, &k.handle, &k.facts)
	if st.code == C.MSCCLPP_DEVICE_NOT_FOUND {
		return nil, fmt.Errorf("%s kernel: %w: the image has no symbol %s", d.info.Device, framework.ErrInvalid, symbol)
	}
	if err := d.check("kernel "+symbol, st); err != nil {
		return nil, err
	}
	k.dynamic.Store(uint32(k.facts.dynamic))
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
	return errors.Join(m.dev.check("unload", C.native_module_unload(m.dev.t, m.dev.d, handle)), m.dev.drop())
}

// Kernel is an entry point. It implements device.Kernel.
type Kernel struct {
	*opened
	handle  C.uintptr_t
	symbol  string
	facts   C.mscclpp_device_kernel_info
	dynamic atomic.Uint32 // most dynamic shared memory that a launch may ask for
}

// Attributes are the properties of a compiled kernel.
type Attributes struct {
	Registers  int // a thread
	Local      int // memory of a thread, bytes; not 0 if registers were spilled
	Shared     int // static shared memory of a block, bytes
	MaxThreads int // of a block
}

// Attributes returns what the compiler made of the kernel.
func (k *Kernel) Attributes() Attributes {
	f := &k.facts
	return Attributes{Registers: int(f.registers), Local: int(f.local), Shared: int(f.shared), MaxThreads: int(f.threads)}
}

// Direct says how C launches the kernel, without Launch: by a function of the form of internal/fastpath, which the context and
// the kernel's handle come first of. The kernel takes no dynamic shared memory then. overlap says whether launches may.
func (k *Kernel) Direct() (launch, context, function uintptr, overlap bool) {
	return uintptr(C.native_direct_launch), uintptr(unsafe.Pointer(k.direct)), uintptr(k.handle), k.opened.facts.overlap != 0
}

// Launch enqueues the kernel on the stream and returns. One call into C does it all.
func (k *Kernel) Launch(l device.Launch, args unsafe.Pointer, bytes uintptr) error {
	if l.Grid == 0 || l.Block == 0 {
		return k.refuse(l)
	}
	if l.Shared > k.dynamic.Load() {
		if err := k.allow(l.Shared); err != nil {
			return err
		}
	}
	flags := uint32(0)
	if l.Overlap {
		flags = C.MSCCLPP_DEVICE_LAUNCH_OVERLAP
	}
	flags |= uint32(l.Cluster) << C.MSCCLPP_DEVICE_LAUNCH_CLUSTER
	if st := launch(k.t, k.d, k.handle, uintptr(l.Stream), l.Grid, l.Block, l.Shared, flags, uintptr(args), bytes); st.code != 0 {
		return k.check(fmt.Sprintf("launch %s, grid %d, block %d, shared %d, cluster %d", k.symbol, l.Grid, l.Block, l.Shared, max(1, l.Cluster)), st)
	}
	return nil
}

// launch crosses into C. The directive keeps what args points to alive and in place, which the conversion to an integer would
// not.
//
//go:uintptrescapes
//go:noinline
func launch(t, d, kernel C.uintptr_t, stream uintptr, grid, block, shared, flags uint32, args, bytes uintptr) C.native_status {
	return C.native_launch(t, d, kernel, C.uintptr_t(stream), C.uint32_t(grid), C.uint32_t(block), C.uint32_t(shared), C.uint32_t(flags),
		C.uintptr_t(args), C.size_t(bytes))
}

func (k *Kernel) refuse(l device.Launch) error {
	return fmt.Errorf("%s launch %s: %w: grid %d, block %d: expected at least 1 and 1", k.info.Device, k.symbol, framework.ErrInvalid, l.Grid, l.Block)
}

// allow raises the limit of dynamic shared memory: to the most at once, so that concurrent launches cannot lower it again.
func (k *Kernel) allow(shared uint32) error {
	most := int64(k.opened.facts.shared_most) - int64(k.facts.shared)
	if int64(shared) > most {
		return fmt.Errorf("%s launch %s: %w: %d bytes of shared memory: expected at most %d", k.info.Device, k.symbol, framework.ErrInvalid, shared, max(most, 0))
	}
	if err := k.check("launch "+k.symbol, C.native_kernel_allow(k.t, k.d, k.handle, C.uint32_t(most))); err != nil {
		return err
	}
	k.dynamic.Store(uint32(most))
	return nil
}

// MaxBlocks returns how many blocks of the shape can be resident on the device at once, if it runs nothing else: a grid whose
// blocks wait for each other must not be larger.
func (k *Kernel) MaxBlocks(block, shared uint32) (int, error) {
	if block == 0 || block > uint32(k.facts.threads) {
		return 0, fmt.Errorf("%s occupancy of %s: %w: %d threads: expected 1 to %d", k.info.Device, k.symbol, framework.ErrInvalid, block, uint32(k.facts.threads))
	}
	if shared > k.dynamic.Load() {
		if err := k.allow(shared); err != nil {
			return 0, err
		}
	}
	var blocks C.uint32_t
	if err := k.check("occupancy of "+k.symbol, C.native_kernel_fit(k.t, k.d, k.handle, C.uint32_t(block), C.uint32_t(shared), &blocks)); err != nil {
		return 0, err
	}
	return int(blocks), nil
}

var (
	_ device.Module = (*Module)(nil)
	_ device.Kernel = (*Kernel)(nil)
)
