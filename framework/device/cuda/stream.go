package cuda

// #include "shim.h"
import "C"

import (
	"errors"
	"fmt"
	"sync"

	"github.com/mscclpp-go/mscclpp/framework"
	"github.com/mscclpp-go/mscclpp/framework/device"
)

// engine enqueues work of a device on streams.
type engine struct {
	*gpu
	// captures are the streams whose goroutine BeginCapture tied to its thread.
	captures sync.Map
}

// NewStream makes a stream that does not wait for the default stream, nor that for
// it.
func (d *engine) NewStream() (device.Stream, error) { return d.NewPriorityStream(0) }

// NewPriorityStream makes a stream whose kernels are preferred to those of streams
// with a higher number. Numbers out of range count as the nearest.
func (d *engine) NewPriorityStream(priority int) (device.Stream, error) {
	if err := d.begin("stream"); err != nil {
		return 0, err
	}
	var s C.uintptr_t
	if err := d.check("stream", C.cuda_stream_create(d.c, C.int(priority), &s)); err != nil {
		return 0, errorsFirst(err, d.drop())
	}
	streams.Store(device.Stream(s), true)
	return device.Stream(s), nil
}

// streams are those that NewStream has made, and whether they are open. The number of one that
// is closed means nothing to the driver, unless a later stream, made elsewhere, has got it.
var streams sync.Map

// StreamClosed reports whether CloseStream was called for a stream, and NewStream has not
// given its number to another one since. A driver must not be asked about such a stream.
func (d *engine) StreamClosed(s device.Stream) bool {
	open, made := streams.Load(s)
	return made && open != true
}

// StreamOpen reports whether the stream is the default one, or one of NewStream that was not
// closed. Only then the driver may be asked about a stream that a program has used before, and
// may have destroyed by other means.
func (d *engine) StreamOpen(s device.Stream) bool {
	open, _ := streams.Load(s)
	return s == 0 || open == true
}

// Priorities returns the range of stream priorities. Numerically, greatest is the
// smaller one.
func (d *engine) Priorities() (least, greatest int) {
	return int(d.facts.least_priority), int(d.facts.greatest_priority)
}

// CloseStream ends a stream made by NewStream. Enqueued work is still done.
func (d *engine) CloseStream(s device.Stream) error {
	if s == 0 {
		return fmt.Errorf("%s close stream: %w: the default stream is not closed", d.info.Device, framework.ErrInvalid)
	}
	streams.Store(s, false)
	return errors.Join(d.check("close stream", C.cuda_stream_destroy(d.c, C.uintptr_t(s))), d.drop())
}

// Copy enqueues a copy between any two of: memory of this device, memory of peers
// that it maps, pinned or registered host memory.
func (d *engine) Copy(s device.Stream, dst, src uintptr, bytes uint64) error {
	if d.closed.Load() {
		return d.live("copy")
	}
	if bytes == 0 {
		return nil
	}
	if code := C.cuda_copy(d.hot, C.uintptr_t(s), C.uint64_t(dst), C.uint64_t(src), C.uint64_t(bytes)); code != 0 {
		return d.code(fmt.Sprintf("copy %d bytes from %#x to %#x", bytes, src, dst), "cuMemcpyAsync", code)
	}
	return nil
}

// Memset enqueues setting bytes of device memory to a value.
func (d *engine) Memset(s device.Stream, addr uintptr, value byte, bytes uint64) error {
	if d.closed.Load() {
		return d.live("memset")
	}
	if bytes == 0 {
		return nil
	}
	return d.code("memset", "cuMemsetD8Async", C.cuda_memset(d.hot, C.uintptr_t(s), C.uint64_t(addr), C.int(value), C.uint64_t(bytes)))
}

// Write enqueues the store of a word, visible to all observers after all work that was
// enqueued before it. addr is a multiple of 8.
func (d *engine) Write(s device.Stream, addr uintptr, value uint64) error {
	if d.closed.Load() {
		return d.live("write")
	}
	if code := C.cuda_write_value(d.hot, C.uintptr_t(s), C.uint64_t(addr), C.uint64_t(value)); code != 0 {
		return d.code(fmt.Sprintf("write to %#x", addr), "cuStreamWriteValue64", code)
	}
	return nil
}

// WaitValue makes what is enqueued later wait until the word at addr is at least
// value, in the cyclic order of 64-bit numbers. Nothing ends this wait but the
// word: an abort does not.
func (d *engine) WaitValue(s device.Stream, addr uintptr, value uint64) error {
	if d.closed.Load() {
		return d.live("wait value")
	}
	if code := C.cuda_wait_value(d.hot, C.uintptr_t(s), C.uint64_t(addr), C.uint64_t(value)); code != 0 {
		return d.code(fmt.Sprintf("wait for %#x", addr), "cuStreamWaitValue64", code)
	}
	return nil
}

// Query reports how far a stream is.
func (d *engine) Query(s device.Stream) (device.StreamState, error) {
	if d.closed.Load() {
		return device.StreamBusy, d.live("query")
	}
	switch code := C.cuda_stream_query(d.hot, C.uintptr_t(s)); code {
	case C.CUDA_SUCCESS:
		return device.StreamIdle, nil
	case C.CUDA_ERROR_NOT_READY:
		return device.StreamBusy, nil
	case C.CUDA_CAPTURING:
		return device.StreamCapturing, nil
	default:
		return device.StreamBusy, d.code("query", "cuStreamQuery", code)
	}
}

// Capturing reports whether the stream records into a graph. How far it is, is not asked.
func (d *engine) Capturing(s device.Stream) (bool, error) {
	if d.closed.Load() {
		return false, d.live("query")
	}
	code := C.cuda_stream_capturing(d.hot, C.uintptr_t(s))
	if code == C.CUDA_CAPTURING {
		return true, nil
	}
	return false, d.code("query", "cuStreamIsCapturing", code)
}

// StreamID tells a stream from others that had its handle before: drivers use handles again. 0: it is not known.
func (d *engine) StreamID(s device.Stream) uint64 {
	if d.closed.Load() {
		return 0
	}
	return uint64(C.cuda_stream_id(d.hot, C.uintptr_t(s)))
}

// StreamIDDirect is the function by which C asks for that, with the context of Direct and the stream.
func (d *engine) StreamIDDirect() uintptr { return uintptr(C.cuda_stream_id) }

// FlushWrites implements [device.Flusher].
func (d *engine) FlushWrites() error {
	const op = "flush of the writes of adapters"
	switch {
	case d.closed.Load():
		return d.live(op)
	case d.facts.rdma_order >= C.CU_GPU_DIRECT_RDMA_WRITES_ORDERING_OWNER:
		return nil // its kernels see them in order
	case d.facts.rdma_flush&C.CU_FLUSH_GPU_DIRECT_RDMA_WRITES_OPTION_HOST == 0:
		return fmt.Errorf("%s %s: %w: expected a GPU that keeps such writes in order, or a driver that flushes them", d.info.Device, op, framework.ErrUnsupported)
	}
	if code := C.cuda_flush_writes(d.hot); code != C.CUDA_SUCCESS {
		return d.code(op, "cuFlushGPUDirectRDMAWrites", code)
	}
	return nil
}

// Sync waits until the stream is idle. It ends when the kernels do. A stream that
// is captured has nothing to wait for: ErrInvalid.
func (d *engine) Sync(s device.Stream) error {
	if err := d.live("sync"); err != nil {
		return err
	}
	st := C.cuda_stream_sync(d.c, C.uintptr_t(s))
	if st.code == C.CUDA_CAPTURING {
		return fmt.Errorf("%s sync: %w: the stream is being captured: expected it after the graph was launched", d.info.Device, framework.ErrInvalid)
	}
	return d.check("sync", st)
}
