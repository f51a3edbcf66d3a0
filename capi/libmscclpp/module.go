package main

// #include "internal.h"
import "C"

import (
	"fmt"
	"sync"
	"unsafe"

	"github.com/mscclpp-go/mscclpp/capi/internal/handles"
	"github.com/mscclpp-go/mscclpp/framework"
	"github.com/mscclpp-go/mscclpp/framework/device"
)

// module is an image of the program's own kernels. The handles of its kernels end with it.
type module struct {
	owner  *communicator
	loaded device.Module

	mu      sync.Mutex
	closed  bool
	kernels []handles.Handle
}

//export mscclppGoModuleLoad
func mscclppGoModuleLoad(h C.uintptr_t, image unsafe.Pointer, bytes C.size_t, out *C.uintptr_t, f *C.struct_failure) (r C.int32_t) {
	defer recovered(f, &r)
	c, p, err := ready(handles.Handle(h))
	if err != nil {
		return fail(f, err)
	}
	loaded, err := p.job.Device.Load(unsafe.Slice((*byte)(image), int(bytes)))
	if err != nil {
		return fail(f, fmt.Errorf("module load: %w", err))
	}
	m := &module{owner: c, loaded: loaded}
	return fail(f, adopt(c, kindModule, m, m.close, out))
}

// close unloads the image, once.
func (m *module) close() error {
	m.mu.Lock()
	defer m.mu.Unlock()
	if m.closed {
		return nil
	}
	m.closed = true
	for _, h := range m.kernels {
		_, _ = table.Remove(kindKernel, h) // unless the communicator has ended it
		m.owner.mu.Lock()
		delete(m.owner.objects, h)
		m.owner.mu.Unlock()
	}
	return m.loaded.Close()
}

//export mscclppGoModuleKernel
func mscclppGoModuleKernel(h C.uintptr_t, symbol *C.char, out *C.uintptr_t, f *C.struct_failure) (r C.int32_t) {
	defer recovered(f, &r)
	o, err := objectOf[*module](kindModule, h)
	if err != nil {
		return fail(f, err)
	}
	return fail(f, o.value.kernel(C.GoString(symbol), out))
}

func (m *module) kernel(symbol string, out *C.uintptr_t) error {
	m.mu.Lock()
	defer m.mu.Unlock()
	if m.closed {
		return fmt.Errorf("%w: module kernel: the module was freed", framework.ErrClosed)
	}
	k, err := m.loaded.Kernel(symbol)
	if err != nil {
		return fmt.Errorf("module kernel: %w", err)
	}
	if err := adopt(m.owner, kindKernel, k, func() error { return nil }, out); err != nil {
		return err
	}
	m.kernels = append(m.kernels, handles.Handle(*out))
	return nil
}

//export mscclppGoKernelLaunch
func mscclppGoKernelLaunch(h C.uintptr_t, o *C.mscclpp_launch_options_t, args unsafe.Pointer, bytes C.size_t, f *C.struct_failure) (r C.int32_t) {
	defer recovered(f, &r)
	k, err := objectOf[device.Kernel](kindKernel, h)
	if err != nil {
		return fail(f, err)
	}
	if err := k.owner.usable(); err != nil {
		return fail(f, err)
	}
	k.owner.launched.Store(true)
	l := device.Launch{Grid: uint32(o.grid), Block: uint32(o.block), Shared: uint32(o.shared), Stream: device.Stream(uintptr(o.stream))}
	return fail(f, k.value.Launch(l, args, uintptr(bytes)))
}

// usable is why kernels are not launched any more, or nil.
func (c *communicator) usable() error {
	p := c.parts.Load()
	if p == nil {
		return errNotJoined
	}
	return p.world.Err()
}
