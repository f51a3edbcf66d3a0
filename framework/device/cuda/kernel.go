package cuda

// #include "shim.h"
import "C"

import (
	"fmt"
	"sync/atomic"
	"unsafe"

	"github.com/mscclpp-go/mscclpp/framework"
	"github.com/mscclpp-go/mscclpp/framework/device"
)

// Kernel is an entry point. It implements device.Kernel.
type Kernel struct {
	*primary
	function   C.uintptr_t
	symbol     string
	overlap    bool
	attributes Attributes
	dynamic    atomic.Uint32 // most dynamic shared memory that a launch may ask for
}

// Attributes are the properties of a compiled kernel.
type Attributes struct {
	Registers  int // a thread
	Local      int // memory of a thread, bytes; not 0 if registers were spilled
	Shared     int // static shared memory of a block, bytes
	MaxThreads int // of a block
}

// Attributes returns what the compiler made of the kernel.
func (k *Kernel) Attributes() Attributes { return k.attributes }

// Launch enqueues the kernel on the stream and returns. One call into C does it
// all; arguments are copied by the driver before it returns.
func (k *Kernel) Launch(l device.Launch, args unsafe.Pointer, bytes uintptr) error {
	if l.Grid == 0 || l.Block == 0 {
		return k.refuse(l)
	}
	if l.Shared > k.dynamic.Load() {
		if err := k.allow(l.Shared); err != nil {
			return err
		}
	}
	overlap := 0
	if l.Overlap && k.overlap {
		overlap = 1
	}
	if code := launch(k.hot, k.function, uintptr(l.Stream), l.Grid, l.Block, l.Shared, overlap, uintptr(args), bytes); code != 0 {
		return k.failed(l, code)
	}
	return nil
}

// Direct says how C launches the kernel, without Launch: by a function with the arguments of launch in this file, which the
// context and the kernel's handle come first of. The kernel takes no dynamic shared memory then. overlap says whether launches may.
func (k *Kernel) Direct() (launch, context, function uintptr, overlap bool) {
	return uintptr(C.cuda_launch), uintptr(k.hot), uintptr(k.function), k.overlap
}

// launch crosses into C. The directive keeps what args points to alive and in
// place, which the conversion to an integer would not.
//
//go:uintptrescapes
//go:noinline
func launch(context, function C.uintptr_t, stream uintptr, grid, block, shared uint32, overlap int, args, bytes uintptr) C.int {
	return C.cuda_launch(context, function, C.uintptr_t(stream), C.uint32_t(grid), C.uint32_t(block), C.uint32_t(shared),
		C.int(overlap), C.uintptr_t(args), C.size_t(bytes))
}

func (k *Kernel) refuse(l device.Launch) error {
	return fmt.Errorf("cuda:%d launch %s: %w: grid %d, block %d: expected at least 1 and 1",
		k.index, k.symbol, framework.ErrInvalid, l.Grid, l.Block)
}

func (k *Kernel) failed(l device.Launch, code C.int) error {
	return k.code(fmt.Sprintf("launch %s, grid %d, block %d, shared %d", k.symbol, l.Grid, l.Block, l.Shared), "cuLaunchKernelEx", code)
}

// allow raises the limit of dynamic shared memory: the driver gives 48 KiB
// unasked.
func (k *Kernel) allow(shared uint32) error {
	most := int(k.facts.shared_optin) - k.attributes.Shared
	if most < 0 || int64(shared) > int64(most) {
		return fmt.Errorf("cuda:%d launch %s: %w: %d bytes of shared memory: expected at most %d",
			k.index, k.symbol, framework.ErrInvalid, shared, most)
	}
	// To the most at once, so that concurrent launches cannot lower it again.
	if err := k.check("launch "+k.symbol, C.cuda_kernel_shared(k.c, k.function, C.int(most))); err != nil {
		return err
	}
	k.dynamic.Store(uint32(most))
	return nil
}

// MaxBlocks returns how many blocks of the shape can be resident on the device at
// once, if it runs nothing else: a grid whose blocks wait for each other must not be
// larger.
func (k *Kernel) MaxBlocks(block, shared uint32) (int, error) {
	if block == 0 || int64(block) > int64(k.attributes.MaxThreads) {
		return 0, fmt.Errorf("cuda:%d occupancy of %s: %w: %d threads: expected 1 to %d",
			k.index, k.symbol, framework.ErrInvalid, block, k.attributes.MaxThreads)
	}
	if shared > k.dynamic.Load() {
		if err := k.allow(shared); err != nil {
			return 0, err
		}
	}
	var blocks C.int
	if err := k.check("occupancy of "+k.symbol, C.cuda_occupancy(k.c, k.function, C.int(block), C.uint64_t(shared), &blocks)); err != nil {
		return 0, err
	}
	return int(blocks) * int(k.facts.sms), nil
}

var _ device.Kernel = (*Kernel)(nil)
