package tcp

// #include <stdlib.h>
// #include "stream.h"
import "C"

import (
	"io"
	"os"
	"runtime"
	"syscall"
	"unsafe"
)

// The C side writes these numbers out; each line fails to compile if one is wrong.
const (
	_ = -uint(C.mscclpp_tcp_head ^ frameBytes)
	_ = -uint(C.mscclpp_tcp_handles ^ handles)
	_ = -uint(C.mscclpp_tcp_put ^ framePut)
	_ = -uint(C.mscclpp_tcp_signal ^ frameSignal)
	_ = -uint(C.mscclpp_tcp_small ^ smallPut)
	_ = -(C.sizeof_mscclpp_tcp_span ^ unsafe.Sizeof(span{}))
	_ = -(unsafe.Offsetof(C.mscclpp_tcp_span{}.base) ^ unsafe.Offsetof(span{}.base))
	_ = -(unsafe.Offsetof(C.mscclpp_tcp_span{}.bytes) ^ unsafe.Offsetof(span{}.bytes))
	_ = -(C.sizeof_mscclpp_tcp_part ^ unsafe.Sizeof(part{}))
	_ = -(unsafe.Offsetof(C.mscclpp_tcp_part{}.data) ^ unsafe.Offsetof(part{}.data))
	_ = -(unsafe.Offsetof(C.mscclpp_tcp_part{}.bytes) ^ unsafe.Offsetof(part{}.bytes))
)

// reader reads a stream into memory that the caller names, or that frames name. It
// waits in C, on a thread of its own: the Go scheduler would be woken first, and then
// a thread, for each put. Bytes that one system call finds behind the wanted range
// are kept for the next.
type reader struct {
	wire *wire
	c    *C.mscclpp_tcp_reader
	pins runtime.Pinner // the objects in C's table

	into []byte // of the call that is under way; nil: frames are performed
	why  C.int
	call func(fd int)
}

// newReader makes a reader. Its owner frees it.
func newReader(w *wire) (*reader, error) {
	r := &reader{wire: w, c: C.mscclpp_tcp_new()}
	if r.c == nil {
		return nil, syscall.ENOMEM
	}
	r.call = r.enter // made once: it would be an allocation in every call
	return r, nil
}

func (r *reader) free() {
	r.pins.Unpin()
	C.free(unsafe.Pointer(r.c))
	r.c = nil
}

func (r *reader) enter(fd int) {
	if len(r.into) == 0 {
		r.why = C.mscclpp_tcp_serve(r.c, C.int(fd))
		return
	}
	r.why = C.mscclpp_tcp_full(r.c, C.int(fd), unsafe.Pointer(unsafe.SliceData(r.into)), C.uint64_t(len(r.into)))
}

func (r *reader) run(into []byte) error {
	r.into = into
	err := r.wire.use(r.call)
	r.into = nil
	switch {
	case err != nil:
		return err
	case r.why == C.mscclpp_tcp_over:
		return io.EOF
	case r.why == C.mscclpp_tcp_failed:
		return os.NewSyscallError("readv", syscall.Errno(r.c.error))
	}
	return nil
}

// full fills b.
func (r *reader) full(b []byte) error {
	if len(b) == 0 {
		return nil
	}
	return r.run(b)
}

// know lets a handle stand for memory.
func (r *reader) know(handle uint32, s *span) {
	r.pins.Pin(s)
	r.c.table[handle] = (*C.mscclpp_tcp_span)(unsafe.Pointer(s))
}

// next performs puts and signals until there is a frame of another kind, or one that
// cannot be performed; its head is returned. With last, the memory of a handle was in
// use when it was closed, and is not any more: the caller gives it back.
func (r *reader) next(head []byte) (last bool, err error) {
	if err := r.run(nil); err != nil {
		return false, err
	}
	copy(head, unsafe.Slice((*byte)(unsafe.Pointer(&r.c.head)), frameBytes))
	return r.why == C.mscclpp_tcp_last, nil
}

// part is the data of a put, which is sent from where it is.
type part struct {
	held  uint64 // the frames that come before it end here
	data  uintptr
	bytes uint64
}

func partOf(held int, data []byte) part {
	return part{uint64(held), uintptr(unsafe.Pointer(unsafe.SliceData(data))), uint64(len(data))}
}

// mostParts is how many are sent by one call of the system.
const mostParts = C.mscclpp_tcp_parts

// sendAll writes frames with data in between to a stream, and waits until the system
// has taken all.
func sendAll(fd int, frames []byte, parts []part) error {
	why := C.mscclpp_tcp_send(C.int(fd), (*C.char)(unsafe.Pointer(unsafe.SliceData(frames))), C.uint64_t(len(frames)),
		(*C.mscclpp_tcp_part)(unsafe.Pointer(unsafe.SliceData(parts))), C.int(len(parts)))
	if why != 0 {
		return os.NewSyscallError("sendmsg", syscall.Errno(why))
	}
	return nil
}

// kept reports whether the start of the next range was read already.
func (r *reader) kept() bool { return r.c.begin < r.c.end }

// awaitAny waits until one of some sockets can be read, or has ended, and returns
// which.
func awaitAny(fds []int32) int {
	return int(C.mscclpp_tcp_any((*C.int)(unsafe.SliceData(fds)), C.int(len(fds))))
}
