// Package cuda is an NVIDIA GPU as a device: a table of mscclpp/device_backend.h over the driver's library, which is opened at
// run time, and what package native does not have. Nothing of the vendor's is needed to build, and on a machine without a
// driver the error names the missing library.
//
// A device works in its primary context, as PyTorch and the vendor's runtime do, so that memory and streams can be exchanged
// with them. Every call sets that context first and restores the previous one afterwards, so it does not matter on which thread
// a goroutine runs. Calls that allocate, load or wait do not disturb streams that other threads capture into graphs, in any
// capture mode.
package cuda

// #cgo LDFLAGS: -ldl -pthread
// #cgo CFLAGS: -std=gnu11
// #include "shim.h"
import "C"

import (
	"errors"
	"fmt"
	"strings"
	"unsafe"

	"github.com/mscclpp-go/mscclpp/framework"
	"github.com/mscclpp-go/mscclpp/framework/device"
	"github.com/mscclpp-go/mscclpp/framework/device/native"
)

// Device is one GPU. It implements device.Device, device.Engine and the optional interfaces that go with them. Memory, modules,
// streams, events and graphs live until they are closed themselves, also behind Close.
type Device struct {
	*native.Marking
	*loader
	facts C.cuda_facts
}

// Things that are made from a device are those of package native.
type (
	// Memory is memory that kernels of a device can address.
	Memory = native.Memory
	// Kernel is an entry point.
	Kernel = native.Kernel
	// Attributes are the properties of a compiled kernel.
	Attributes = native.Attributes
	// Event marks a point in a stream.
	Event = native.Event
	// Graph is the recording of a capture, ready to be launched.
	Graph = native.Graph
	// Error is a refusal of the driver. Its codes are the driver's; those from 65536 on are words of the table.
	Error = native.Error
	// CaptureMode says what other calls a capture forbids, as the driver defines it. Calls of this package are allowed under all
	// of them.
	CaptureMode = native.CaptureMode
)

// Modes of capture.
const (
	CaptureGlobal      = native.CaptureGlobal
	CaptureThreadLocal = native.CaptureThreadLocal
	CaptureRelaxed     = native.CaptureRelaxed
)

// Words of the table: codes that are added to the driver's answers.
const (
	wordWhole   = C.CUDA_WORDS_WHOLE * C.CUDA_HINT
	wordAccess  = C.CUDA_WORDS_ACCESS * C.CUDA_HINT
	wordImage   = C.CUDA_WORDS_IMAGE * C.CUDA_HINT
	wordSwitch  = C.CUDA_WORDS_SWITCH * C.CUDA_HINT
	wordGDRCopy = C.CUDA_WORDS_GDRCOPY * C.CUDA_HINT
	wordEnd     = (C.CUDA_WORDS_GDRCOPY_OFF + 1) * C.CUDA_HINT
)

// Open returns the device with the index among those that are visible.
// ErrUnavailable: no driver, or no device. ErrInvalid: no device of this index.
func Open(index int, opts ...Option) (*Device, error) {
	back, path, err := openDriver()
	if err != nil {
		return nil, err
	}
	var o options
	for _, set := range opts {
		set(&o)
	}
	opened, err := back.Open(index, strings.Join(o.lines(path), "\n"), o.native()...)
	if err != nil {
		if n, e := back.Count(); e == nil && (index < 0 || index >= n) {
			return nil, fmt.Errorf("%w; %s says which are visible", err, envVisible)
		}
		return nil, err
	}
	marking, ok := opened.(*native.Marking)
	if !ok { // never: the table has events
		return nil, errors.Join(fmt.Errorf("cuda:%d open: %w: a device without events", index, framework.ErrUnsupported), opened.Close())
	}
	d := &Device{Marking: marking, loader: &loader{dev: marking, back: back}}
	d.facts = d.context().facts
	d.code = openCode(&o, d.Info().Device, int(d.facts.major), int(d.facts.minor))
	return d, nil
}

// context is the device of the table.
func (d *Device) context() *C.cuda_context {
	at := d.Handle() // read as a pointer: it is memory of C
	return *(**C.cuda_context)(unsafe.Pointer(&at))
}

// Capability returns the compute capability: 9, 0 for Hopper.
func (d *Device) Capability() (major, minor int) { return int(d.facts.major), int(d.facts.minor) }

// LineBytes is how many bytes a line of mscclpp/line.h takes in memory. Kernels for these GPUs store one as it is. The emulated
// driver runs kernels that were compiled for processors, which store two packets for each of its units.
func (d *Device) LineBytes() uint64 {
	if strings.HasPrefix(d.Info().Name, "Emulated") {
		return 256
	}
	return 128
}

// FabricRefused reports whether the driver was asked for memory of the fabric, and did not make it.
func (d *Device) FabricRefused() bool {
	return d.Live("fabric") == nil && C.cuda_fabric_refused(d.context()) != 0
}

// DriverVersion is the highest version of CUDA that the driver supports: 12060 is 12.6. 0: not known.
func (d *Device) DriverVersion() int {
	v, err := Version()
	if err != nil {
		return 0
	}
	return v
}

// handle is the driver's handle of the context.
func (d *Device) handle() uintptr { return uintptr(unsafe.Pointer(d.context().context)) }

// swapCurrent makes a context that of the calling thread, as an application does, and returns the one that it had. Tests show
// by it that calls restore it.
func (d *Device) swapCurrent(context uintptr) (found uintptr) {
	return uintptr(C.cuda_swap_current(C.uintptr_t(d.Handle()), C.uintptr_t(context)))
}

// archs lists the image architectures that a device of a compute capability can load, best first: newer devices compile images
// for older ones.
func archs(major, minor int) string {
	var text [256]C.char
	C.cuda_archs(C.int(major), C.int(minor), &text[0], C.size_t(len(text)))
	return C.GoString(&text[0])
}

// busAddress spells an address as the kernel does.
func busAddress(s string) string {
	var text [64]C.char
	for i := range min(len(s), len(text)-1) {
		text[i] = C.char(s[i])
	}
	C.cuda_bus_address(&text[0])
	return C.GoString(&text[0])
}

// parseLegacy checks a share of the driver's older kind: the place in the allocation where its memory lies.
func parseLegacy(blob []byte) (start, size uint64, ok bool) {
	var handle C.CUipcMemHandle
	var s, n C.uint64_t
	wrong := C.cuda_parse_legacy((*C.uint8_t)(unsafe.SliceData(blob)), C.uint32_t(len(blob)), &handle, &s, &n)
	return uint64(s), uint64(n), wrong == 0
}

var (
	_ device.Device      = (*Device)(nil)
	_ device.Engine      = (*Device)(nil)
	_ device.Marker      = (*Device)(nil)
	_ device.Prioritizer = (*Device)(nil)
	_ device.Flusher     = (*Device)(nil)
	_ device.Assembled   = (*Device)(nil)
	_ device.HostMapper  = (*Device)(nil)
)
