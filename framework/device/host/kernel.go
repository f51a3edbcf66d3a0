package host

// #include "launch.h"
import "C"

import (
	"fmt"
	"unsafe"

	"github.com/mscclpp-go/mscclpp/framework"
	"github.com/mscclpp-go/mscclpp/framework/device"
	"github.com/mscclpp-go/mscclpp/framework/kernel"
)

// The C side's shape is that of the contract; else this does not compile.
const _ = -(C.sizeof_mscclpp_host_shape ^ unsafe.Sizeof(kernel.LaunchShape{}))

// Kernel is an entry point. It implements device.Kernel.
type Kernel struct {
	entry  uintptr
	symbol string
}

// Launch runs the kernel on the calling thread and returns when it is done. The
// kernel is compiled for one block of one thread; it receives other shapes, and they
// change nothing.
func (k *Kernel) Launch(l device.Launch, args unsafe.Pointer, _ uintptr) error {
	if l.Grid == 0 || l.Block == 0 || l.Stream != 0 {
		return k.refuse(l)
	}
	launch(k.entry, uintptr(args), l.Grid, l.Block, l.Shared)
	return nil
}

func (k *Kernel) refuse(l device.Launch) error {
	return fmt.Errorf("host launch %s: %w: grid %d, block %d, stream %#x: expected at least 1, 1, and the default stream",
		k.symbol, framework.ErrInvalid, l.Grid, l.Block, uintptr(l.Stream))
}

// launch crosses into C. The directive keeps what args points to alive and in
// place, which the conversion to an integer would not.
//
//go:uintptrescapes
//go:noinline
func launch(entry, args uintptr, grid, block, shared uint32) {
	C.mscclpp_host_launch(C.uintptr_t(entry), C.uintptr_t(args), C.uint32_t(grid), C.uint32_t(block), C.uint32_t(shared))
}

var _ device.Kernel = (*Kernel)(nil)
