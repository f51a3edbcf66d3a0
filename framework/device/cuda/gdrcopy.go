package cuda

// #include <stdlib.h>
// #include "gdrcopy.h"
import "C"

import (
	"fmt"
	"os"
	"strings"
	"sync"
	"sync/atomic"
	"syscall"
	"unsafe"

	"github.com/mscclpp-go/mscclpp/framework"
	"github.com/mscclpp-go/mscclpp/framework/device"
)

// EnvGDRCopy is the environment variable that names the library of GDRCopy to open. By
// default it is found as libgdrapi.so.2 or libgdrapi.so.
const EnvGDRCopy = "MSCCLPP_GDRCOPY_LIBRARY"

// gpuPage is the unit in which memory of a GPU is pinned.
const gpuPage = 1 << 16

// gdrLibraries holds what was opened, by path. It is never closed.
var gdrLibraries = struct {
	sync.Mutex
	open map[string]*C.gdrcopy_library
}{open: map[string]*C.gdrcopy_library{}}

// openGDRCopy opens the library that the environment names.
func openGDRCopy() (*C.gdrcopy_library, error) {
	paths := []string{"libgdrapi.so.2", "libgdrapi.so"}
	if path := os.Getenv(EnvGDRCopy); path != "" {
		paths = []string{path}
	}
	gdrLibraries.Lock()
	defer gdrLibraries.Unlock()
	var reasons []string
	for _, path := range paths {
		if l := gdrLibraries.open[path]; l != nil {
			return l, nil
		}
		name := C.CString(path)
		defer C.free(unsafe.Pointer(name))
		var why [512]C.char
		if l := C.gdrcopy_open(name, &why[0], C.size_t(len(why))); l != nil {
			gdrLibraries.open[path] = l
			return l, nil
		}
		reasons = append(reasons, C.GoString(&why[0]))
	}
	return nil, fmt.Errorf("%w: no GDRCopy: %s", framework.ErrUnavailable, strings.Join(reasons, "; "))
}

// hostView is memory of a device, mapped by GDRCopy.
type hostView struct {
	device framework.Device
	addr   uintptr // of the memory, for kernels…
	host   uintptr // …and here
	bytes  uint64
	view   *C.gdrcopy_view
	closed atomic.Bool
}

const opMapForHost = "map for the host"

// MapForHost implements [device.HostMapper]. ErrUnavailable: GDRCopy, its kernel module or the
// permission to open that is missing, or it does not pin or map the memory.
func (d *allocator) MapForHost(m device.Memory) (device.HostView, error) {
	fail := func(err error) (device.HostView, error) {
		return nil, fmt.Errorf("%s %s: %w", d.info.Device, opMapForHost, err)
	}
	own, ok := m.(*Memory)
	switch {
	case d.closed.Load():
		return nil, d.live(opMapForHost)
	case !ok || own.dev.primary != d.primary || own.bytes < 8:
		return fail(fmt.Errorf("%w: expected memory of this device, of 8 bytes or more", framework.ErrInvalid))
	case own.closed.Load():
		return fail(fmt.Errorf("memory: %w", framework.ErrClosed))
	case own.host != 0:
		return fail(fmt.Errorf("%w: it is memory of the host", framework.ErrUnsupported))
	case d.options.noGDRCopy:
		return fail(fmt.Errorf("%w: GDRCopy is switched off", framework.ErrUnsupported))
	}
	library, err := openGDRCopy()
	if err != nil {
		return fail(err)
	}
	first := own.addr &^ (gpuPage - 1)
	end := (own.addr + uintptr(own.bytes) + gpuPage - 1) &^ (gpuPage - 1)
	v := &hostView{device: d.info.Device, addr: own.addr, bytes: own.bytes}
	var host C.uint64_t
	if err := gdrError(C.gdrcopy_map(library, C.uint64_t(first), C.uint64_t(end-first), &v.view, &host)); err != nil {
		return fail(err)
	}
	v.host = uintptr(host) + own.addr - first
	return v, nil
}

func gdrError(st C.cuda_status) error {
	if st.code == 0 {
		return nil
	}
	return fmt.Errorf("%w: %s of GDRCopy: %w", framework.ErrUnavailable, C.GoString(st.call), syscall.Errno(st.code))
}

// Store implements [device.HostView].
func (v *hostView) Store(addr uintptr, value uint64) error {
	offset := uint64(addr - v.addr) // far beyond the end for what comes before the memory
	switch {
	case v.closed.Load():
		return fmt.Errorf("%s store by the host: mapping: %w", v.device, framework.ErrClosed)
	case addr%8 != 0 || offset > v.bytes-8:
		return fmt.Errorf("%s store by the host: %w: word at %#x: expected a multiple of 8 in %d bytes at %#x", v.device, framework.ErrInvalid, addr, v.bytes, v.addr)
	}
	C.gdrcopy_store(C.uintptr_t(v.host+uintptr(offset)), C.uint64_t(value))
	return nil
}

// Settle implements [device.HostView].
func (v *hostView) Settle() error {
	if v.closed.Load() {
		return fmt.Errorf("%s stores by the host: mapping: %w", v.device, framework.ErrClosed)
	}
	C.gdrcopy_settle(C.uintptr_t(v.host &^ 7))
	return nil
}

// Close implements [device.HostView].
func (v *hostView) Close() error {
	if v.closed.Swap(true) {
		return nil
	}
	if err := gdrError(C.gdrcopy_unmap(v.view)); err != nil {
		return fmt.Errorf("%s unmap from the host: %w", v.device, err)
	}
	return nil
}

var _ device.HostMapper = (*Device)(nil)
