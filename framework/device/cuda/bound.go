package cuda

// #include "scope.h"
// static int cuda_bind(const cuda_context* c, cuda_scope* s) { return enter(c, s); }
// static void cuda_unbind(const cuda_context* c, const cuda_scope* s) { leave(c, s); }
import "C"

import "runtime"

// Bound runs f on a thread on which the device is the current one, as libraries of
// others expect it that take the device from there: NCCL, cuBLAS.
func (d *gpu) Bound(f func() error) error {
	if err := d.live("bind a thread"); err != nil {
		return err
	}
	runtime.LockOSThread()
	defer runtime.UnlockOSThread()
	var s C.cuda_scope
	if code := C.cuda_bind(d.c, &s); code != 0 {
		return d.code("bind a thread", "cuCtxSetCurrent", code)
	}
	defer C.cuda_unbind(d.c, &s)
	return f()
}
