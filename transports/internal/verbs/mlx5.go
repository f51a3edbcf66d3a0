package verbs

// #include <stdlib.h>
// #include "mlx5.h"
import "C"

import (
	"log/slog"
	"sync"
	"syscall"
	"unsafe"
)

const defaultMLX5 = "libmlx5.so.1"

// directPath is how an adapter of NVIDIA's reaches GPUs beside the path by which it
// reaches all other memory: a PCIe function of its own, near the GPU, which spares the
// data the path through the processor.
type directPath struct {
	c       *C.mscclpp_mlx5
	sysfs   string // of the function
	refused sync.Once
}

// findDirect looks whether the adapter has such a path. Most have none, and most machines
// not even the library: no error of anything.
func (d *adapter) findDirect(library string) *directPath {
	if library == "" {
		library = defaultMLX5
	}
	name := C.CString(library)
	defer C.free(unsafe.Pointer(name))
	var why [256]C.char
	c := C.mscclpp_mlx5_load(name, &why[0], C.size_t(len(why)))
	if c == nil {
		slog.Debug("no direct verbs of mlx5", "library", library, "reason", C.GoString(&why[0]))
		return nil
	}
	var path [256]C.char
	if e := C.mscclpp_mlx5_data_direct(c, d.c.context, &path[0], C.size_t(len(path))); e != 0 {
		slog.Debug("no data-direct access", "device", d.name, "reason", syscall.Errno(e))
		return nil
	}
	return &directPath{c: c, sysfs: C.GoString(&path[0])}
}

// register registers a dma-buf over the direct path; nil where it is refused. The other
// path is as good then, only longer.
func (p *directPath) register(d *adapter, fd uintptr, offset, bytes uint64, access int) *region {
	if p == nil {
		return nil
	}
	var e C.int
	mr := C.mscclpp_mlx5_register(p.c, d.c.pd, C.uint64_t(offset), C.size_t(bytes), C.uint64_t(offset), C.int(fd), C.int(access), &e)
	if mr == nil {
		p.refused.Do(func() {
			slog.Warn("data-direct access is refused: memory of GPUs is registered without", "device", d.name, "error", syscall.Errno(e))
		})
		return nil
	}
	return &region{dev: d, mr: mr, addr: offset, bytes: bytes, lkey: uint32(mr.lkey), rkey: uint32(mr.rkey)}
}
