// Package hip is the device for AMD's GPUs. HIP's runtime library is opened at run time, so a program that uses this package runs
// on machines without it. It needs HIP 5.7 or later, and gfx90a (MI200) or gfx942 (MI300) for kernels.
//
// No GPU of AMD's has run it: it is tested over the library of package hip/emulated.
//
// Every call makes its device the current one of the thread and restores the one before, so it does not matter on which thread a
// goroutine runs. Calls that allocate, load or wait do not disturb streams that other threads capture.
package hip

// #cgo LDFLAGS: -ldl -pthread
// #cgo CFLAGS: -std=gnu11
// #include <stdlib.h>
// #include "shim.h"
import "C"

import (
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"strings"
	"sync"
	"unsafe"

	"github.com/mscclpp-go/mscclpp/framework"
	"github.com/mscclpp-go/mscclpp/framework/device"
	"github.com/mscclpp-go/mscclpp/framework/device/native"
	_ "github.com/mscclpp-go/mscclpp/framework/device/native/include" // so that builds notice a change of the header
)

// EnvLibrary is the environment variable that names the runtime library to open, for installations at unusual places. By
// default it is found as libamdhip64.so of version 7, 6 or 5, in the usual places and in /opt/rocm/lib.
const EnvLibrary = "MSCCLPP_HIP_LIBRARY"

// names of the runtime library, best first. The one without a number belongs to packages for developers, and may be of any version.
var names = []string{"libamdhip64.so.7", "libamdhip64.so.6", "libamdhip64.so.5", "libamdhip64.so"}

const rocm = "/opt/rocm/lib"

// Names of AMD's lower library, which exports dma-bufs before HIP 7.0.
const lower = "libhsa-runtime64.so.1"

// Option changes a device.
type Option func(*options)

type options struct{ vmm, hosted, dmaBuf bool }

// VMM makes Alloc use memory behind descriptors, which needs HIP 7.0. By default memory is shared by the runtime's older handles.
func VMM() Option { return func(o *options) { o.vmm = true } }

// Hosted makes Alloc use memory of the host that is registered with the device, for GPUs that cannot address each other's memory.
func Hosted() Option { return func(o *options) { o.hosted = true } }

// DMABuf makes Export add a share for NICs where the device has it.
func DMABuf() Option { return func(o *options) { o.dmaBuf = true } }

// Error is a refusal of the runtime. Its codes are the runtime's; those from 65536 on are words of the table.
type Error = native.Error

// libraries are those that were asked for, by path; each is a back end of its own.
var libraries = struct {
	sync.Mutex
	of map[string]*native.Backend
}{of: map[string]*native.Backend{}}

// Backend returns the table of AMD's GPUs, over the library that the environment names, and makes it ready.
// ErrUnavailable: there is no library, or it finds no device.
func Backend() (*native.Backend, error) {
	back, _, err := openLibrary()
	return back, err
}

func openLibrary() (back *native.Backend, path string, err error) {
	candidates := []string{os.Getenv(EnvLibrary)}
	if candidates[0] == "" {
		candidates = append([]string(nil), names...)
		for _, n := range names {
			candidates = append(candidates, filepath.Join(rocm, n))
		}
	}
	libraries.Lock()
	defer libraries.Unlock()
	var first error
	for _, path := range candidates {
		if strings.Contains(path, "\n") {
			return nil, "", fmt.Errorf("hip: %w: %s=%q", framework.ErrInvalid, EnvLibrary, path)
		}
		back, err := locked(path)
		if err == nil {
			return back, path, nil
		}
		if first == nil {
			first = err
		}
		if back != nil { // the library is there, and says no
			return nil, "", hidden(err)
		}
	}
	return nil, "", first
}

// locked opens one library. On failure the back end is not nil if it was the library that failed.
func locked(path string) (*native.Backend, error) {
	if back := libraries.of[path]; back != nil {
		choose(path)
		return back, nil
	}
	if err := words(); err != nil {
		return nil, err
	}
	back, err := native.BuiltIn(unsafe.Pointer(&C.hip_table))
	if err != nil {
		return nil, err
	}
	choose(path)
	if _, err := back.Count(); err != nil {
		var e *Error
		if errors.As(err, &e) && e.Code >= C.HIP_HINT {
			return nil, err
		}
		return back, err
	}
	libraries.of[path] = back
	return back, nil
}

func choose(path string) {
	p, l := C.CString(path), C.CString(lower)
	defer C.free(unsafe.Pointer(p))
	defer C.free(unsafe.Pointer(l))
	C.hip_choose(p, l)
}

// hidden adds to the runtime's word that there is no device what may be the cause.
func hidden(err error) error {
	var e *Error
	if !errors.As(err, &e) || e.Code != C.hipErrorNoDevice {
		return err
	}
	for _, name := range []string{"ROCR_VISIBLE_DEVICES", "HIP_VISIBLE_DEVICES", "CUDA_VISIBLE_DEVICES"} {
		if list := os.Getenv(name); list != "" {
			return fmt.Errorf("%w: %s=%q may leave none", err, name, list)
		}
	}
	return fmt.Errorf("%w: expected a GPU: look at /dev/kfd and /dev/dri, and at who may open them", err)
}

// Count returns how many devices are visible; ROCR_VISIBLE_DEVICES and HIP_VISIBLE_DEVICES may hide some.
// ErrUnavailable: there is no library, or it finds no device.
func Count() (int, error) {
	back, _, err := openLibrary()
	if err != nil {
		return 0, err
	}
	return back.Count()
}

// Open returns the device with the index among those that are visible. It implements device.Marker.
// ErrUnavailable: no library, or no device. ErrInvalid: no device of this index.
func Open(index int, opts ...Option) (*native.Marking, error) {
	back, path, err := openLibrary()
	if err != nil {
		return nil, err
	}
	var o options
	for _, set := range opts {
		set(&o)
	}
	lines := []string{"library=" + path}
	if o.vmm {
		lines = append(lines, "memory=vmm")
	}
	var more []native.Option
	if o.hosted {
		more = append(more, native.Hosted())
	}
	if o.dmaBuf {
		more = append(more, native.OnDemand())
	}
	opened, err := back.Open(index, strings.Join(lines, "\n"), more...)
	if err != nil {
		return nil, err
	}
	marking, ok := opened.(*native.Marking)
	if !ok { // never: the table has events
		return nil, errors.Join(fmt.Errorf("hip:%d open: %w: a device without events", index, framework.ErrUnsupported), opened.Close())
	}
	return marking, nil
}

// symbolNames lists the functions that are looked up in the library.
func symbolNames() []string {
	list := make([]*C.char, C.hip_symbol_names(nil, 0))
	C.hip_symbol_names(&list[0], C.size_t(len(list)))
	out := make([]string, len(list))
	for i, n := range list {
		out[i] = C.GoString(n)
	}
	return out
}

// register is what the flush register of a device holds.
func register(d *native.Marking) (value uint32, found bool) {
	at := d.Handle() // read as a pointer: it is memory of C
	c := *(**C.hip_device)(unsafe.Pointer(&at))
	if c.facts.flush == nil {
		return 0, false
	}
	return uint32(*c.facts.flush), true
}

// current is the device of the calling thread.
func current(d *native.Marking) int { return int(C.hip_current_device(C.uintptr_t(d.Handle()))) }

var _ device.Marker = (*native.Marking)(nil)
