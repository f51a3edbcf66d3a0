// Package cuda is an NVIDIA GPU as a device, through the driver's library, which is
// opened at run time. Nothing of the vendor's is needed to build, and on a machine
// without a driver the error names the missing library.
//
// A device works in its primary context, as PyTorch and the vendor's runtime do, so
// that memory and streams can be exchanged with them. Every call sets that context
// first and restores the previous one afterwards, so it does not matter on which thread
// a goroutine runs. Calls that allocate, load or wait do not disturb streams that other
// threads capture into graphs, in any capture mode.
package cuda

// #include "shim.h"
import "C"

import (
	"fmt"

	"github.com/mscclpp-go/mscclpp/framework"
	"github.com/mscclpp-go/mscclpp/framework/device"
)

// Device is one GPU. It implements device.Device and device.Engine: an engine enqueues work on streams, an allocator
// makes and imports memory, and a loader has images of kernels.
type Device struct {
	*gpu
	*engine
	*allocator
	*loader
}

// Open returns the device with the index among those that are visible.
// ErrUnavailable: no driver, or no device. ErrInvalid: no device of this index.
func Open(index int, opts ...Option) (*Device, error) {
	drv, err := openDriver()
	if err != nil {
		return nil, fmt.Errorf("cuda: %w", err)
	}
	return drv.open(index, opts...)
}

func (drv *driver) open(index int, opts ...Option) (*Device, error) {
	if index < 0 || index >= drv.devices {
		return nil, fmt.Errorf("cuda: %w: device %d: expected 0 to %d; CUDA_VISIBLE_DEVICES says which are visible",
			framework.ErrInvalid, index, drv.devices-1)
	}
	k, err := retain(drv, index)
	if err != nil {
		return nil, err
	}
	major, minor := int(k.facts.major), int(k.facts.minor)
	g := &gpu{primary: k, info: device.Info{
		Device: framework.Device{Type: deviceType, Index: index},
		Name:   C.GoString(&k.facts.name[0]),
		Archs:  archs(major, minor),
		SMs:    int(k.facts.sms),
	}}
	d := &Device{gpu: g, engine: &engine{gpu: g}, allocator: &allocator{gpu: g}, loader: &loader{gpu: g}}
	for _, o := range opts {
		o(&d.options)
	}
	d.code = openCode(&d.options, g.info.Device, major, minor)
	if k.facts.memops64 == 0 {
		_ = k.drop()
		return nil, fmt.Errorf("cuda:%d open: %w: %s has no 64-bit stream memory operations: expected Volta or later",
			index, framework.ErrUnavailable, d.info.Name)
	}
	return d, nil
}

// archs lists the image architectures that a device of a compute capability can
// load, best first: newer devices compile images for older ones.
func archs(major, minor int) []string {
	var names []string
	for _, a := range []int{90, 80} {
		if 10*major+minor >= a {
			names = append(names, fmt.Sprintf("sm_%d", a))
		}
	}
	return names
}

var (
	_ device.Device      = (*Device)(nil)
	_ device.Engine      = (*Device)(nil)
	_ device.Prioritizer = (*Device)(nil)
	_ device.Flusher     = (*Device)(nil)
	_ device.Assembled   = (*Device)(nil)
)
