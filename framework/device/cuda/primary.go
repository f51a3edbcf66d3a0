package cuda

// #include "shim.h"
import "C"

import (
	"fmt"
	"sync"
	"unsafe"

	"github.com/mscclpp-go/mscclpp/framework"
)

// primary is a device's primary context, shared with whatever else in the process
// uses the device. It lives as long as anything made from it.
type primary struct {
	drv   *driver
	c     *C.cuda_context
	hot   C.uintptr_t // c, for calls that have no time for checks of pointers
	facts C.cuda_facts
	index int

	mu    sync.Mutex
	users int
}

func retain(drv *driver, index int) (*primary, error) {
	k := &primary{drv: drv, index: index, users: 1}
	if err := drv.check("open", index, C.cuda_retain(drv.api, C.int(index), &k.c, &k.facts)); err != nil {
		return nil, err
	}
	k.hot = C.uintptr_t(uintptr(unsafe.Pointer(k.c)))
	return k, nil
}

// hold adds a user.
func (k *primary) hold(op string) error {
	k.mu.Lock()
	defer k.mu.Unlock()
	if k.users == 0 {
		return fmt.Errorf("cuda:%d %s: device: %w", k.index, op, framework.ErrClosed)
	}
	k.users++
	return nil
}

// drop removes a user. With the last one goes the context.
func (k *primary) drop() error {
	k.mu.Lock()
	defer k.mu.Unlock()
	if k.users--; k.users > 0 {
		return nil
	}
	st := C.cuda_release(k.c)
	k.c = nil
	return k.drv.check("close", k.index, st)
}

func (k *primary) check(op string, st C.cuda_status) error { return k.drv.check(op, k.index, st) }

// code makes the error of a portion that answers with the code alone.
func (k *primary) code(op, call string, code C.int) error {
	if code == C.CUDA_SUCCESS {
		return nil
	}
	return k.drv.fail(op, k.index, call, int(code))
}

// swapCurrent makes a context that of the calling thread, as an application does,
// and returns the one that it had. Tests show by it that calls restore it.
func (drv *driver) swapCurrent(context uintptr) (found uintptr) {
	return uintptr(C.cuda_swap_current(drv.api, C.uintptr_t(context)))
}

// handle is the driver's handle of the context.
func (k *primary) handle() uintptr { return uintptr(unsafe.Pointer(k.c.context)) }

// reaches reports whether kernels of k can address memory of the device with the
// given index.
func (k *primary) reaches(index int) (bool, error) {
	if index == k.index {
		return true, nil
	}
	var can C.int
	if err := k.check("peer access", C.cuda_can_access(k.c, C.int(index), &can)); err != nil {
		return false, err
	}
	return can != 0, nil
}

// ptr is the address of a slice's first byte, for the time of a call.
func ptr(b []byte) unsafe.Pointer { return unsafe.Pointer(unsafe.SliceData(b)) }
