package native

// #include "table.h"
import "C"

import (
	"errors"
	"fmt"

	"github.com/mscclpp-go/mscclpp/framework"
	"github.com/mscclpp-go/mscclpp/framework/device"
)

// NewStream makes a stream that does not wait for the default stream, nor that for it.
func (d *Streaming) NewStream() (device.Stream, error) { return d.NewPriorityStream(0) }

// NewPriorityStream makes a stream whose kernels are preferred to those of streams with a higher number.
func (d *Streaming) NewPriorityStream(priority int) (device.Stream, error) {
	if err := d.begin("stream"); err != nil {
		return 0, err
	}
	var s C.uintptr_t
	if err := d.check("stream", C.native_stream_create(d.t, d.d, C.int32_t(priority), &s)); err != nil {
		return 0, firstOf(err, d.drop())
	}
	d.made.Store(device.Stream(s), nil)
	d.b.streams.Store(device.Stream(s), d.b.serial.Add(1))
	return device.Stream(s), nil
}

// StreamClosed reports whether CloseStream was called for a stream, and NewStream has not given its number to another one since.
// A driver must not be asked about such a stream.
func (d *Streaming) StreamClosed(s device.Stream) bool {
	serial, made := d.b.streams.Load(s)
	return made && serial == uint64(0)
}

// StreamSerial returns the number of an open stream of NewStream: a later stream with the same handle has another one. 0: NewStream has not made it.
func (d *Streaming) StreamSerial(s device.Stream) uint64 {
	v, _ := d.b.streams.Load(s)
	serial, _ := v.(uint64)
	return serial
}

// StreamOpen reports whether the stream is the default one, or one of NewStream that was not closed. Only then the driver may be
// asked about a stream that a program has used before, and may have destroyed by other means.
func (d *Streaming) StreamOpen(s device.Stream) bool {
	return s == 0 || d.StreamSerial(s) != 0
}

// StreamID tells a stream from others that had its handle before: drivers use handles again. 0: it is not known.
func (d *Streaming) StreamID(s device.Stream) uint64 {
	if d.closed.Load() || d.b.has&hasStreamIDs == 0 {
		return 0
	}
	return uint64(C.native_stream_id(d.t, d.d, C.uintptr_t(s)))
}

// StreamProcessors is how many processors kernels on a stream have; 0: those of the device, or it is not known.
func (d *Streaming) StreamProcessors(s device.Stream) int {
	if d.closed.Load() || d.b.has&hasParts == 0 {
		return 0
	}
	return int(C.native_stream_processors(d.t, d.d, C.uintptr_t(s)))
}

// StreamIDDirect is the function by which C asks for that, with the context of Direct and the stream; 0: there is none.
func (d *Streaming) StreamIDDirect() uintptr {
	if d.b.has&hasStreamIDs == 0 {
		return 0
	}
	return uintptr(C.native_direct_stream_id)
}

// Priorities returns the range of stream priorities. Numerically, greatest is the smaller one.
func (d *Streaming) Priorities() (least, greatest int) {
	return int(d.facts.least_priority), int(d.facts.greatest_priority)
}

// CloseStream ends a stream made by NewStream. Enqueued work is still done.
func (d *Streaming) CloseStream(s device.Stream) error {
	if _, ours := d.made.LoadAndDelete(s); !ours {
		return fmt.Errorf("%s close stream: %w: stream %#x: expected one of NewStream", d.info.Device, framework.ErrInvalid, uintptr(s))
	}
	d.b.streams.Store(s, uint64(0))
	return errors.Join(d.check("close stream", C.native_stream_destroy(d.t, d.d, C.uintptr_t(s))), d.drop())
}

// Copy enqueues a copy between any two of: memory of this device, memory of peers that it maps, host memory that it knows.
func (d *Streaming) Copy(s device.Stream, dst, src uintptr, bytes uint64) error {
	if d.closed.Load() {
		return d.live("copy")
	}
	if bytes == 0 {
		return nil
	}
	if st := C.native_copy(d.t, d.d, C.uintptr_t(s), C.uint64_t(dst), C.uint64_t(src), C.uint64_t(bytes)); st.code != 0 {
		return d.check(fmt.Sprintf("copy %d bytes from %#x to %#x", bytes, src, dst), st)
	}
	return nil
}

// Memset enqueues setting bytes of device memory to a value.
func (d *Streaming) Memset(s device.Stream, addr uintptr, value byte, bytes uint64) error {
	if d.closed.Load() {
		return d.live("memset")
	}
	if bytes == 0 {
		return nil
	}
	return d.check("memset", C.native_set(d.t, d.d, C.uintptr_t(s), C.uint64_t(addr), C.uint8_t(value), C.uint64_t(bytes)))
}

// Write enqueues the store of a word, visible to all observers after all work that was enqueued before it.
func (d *Streaming) Write(s device.Stream, addr uintptr, value uint64) error {
	if d.closed.Load() {
		return d.live("write")
	}
	if st := C.native_write_word(d.t, d.d, C.uintptr_t(s), C.uint64_t(addr), C.uint64_t(value)); st.code != 0 {
		return d.check(fmt.Sprintf("write to %#x", addr), st)
	}
	return nil
}

// Waits reports whether the device has WaitValue.
func (d *Streaming) Waits() bool { return d.b.has&hasWaits != 0 }

// WaitValue makes what is enqueued later wait until the word at addr is at least value, in the cyclic order of 64-bit
// numbers. Nothing ends this wait but the word. ErrUnsupported: the device has no such wait.
func (d *Streaming) WaitValue(s device.Stream, addr uintptr, value uint64) error {
	if d.closed.Load() {
		return d.live("wait value")
	}
	if d.b.has&hasWaits == 0 {
		return d.unsupported("wait value", "streams of the device wait for no words")
	}
	return d.check(fmt.Sprintf("wait for %#x", addr), C.native_wait_word(d.t, d.d, C.uintptr_t(s), C.uint64_t(addr), C.uint64_t(value)))
}

// Query reports how far a stream is.
func (d *Streaming) Query(s device.Stream) (device.StreamState, error) {
	if d.closed.Load() {
		return device.StreamBusy, d.live("query")
	}
	switch st := C.native_stream_query(d.t, d.d, C.uintptr_t(s)); st.code {
	case C.MSCCLPP_DEVICE_OK:
		return device.StreamIdle, nil
	case C.MSCCLPP_DEVICE_NOT_READY:
		return device.StreamBusy, nil
	case C.MSCCLPP_DEVICE_CAPTURING:
		return device.StreamCapturing, nil
	default:
		return device.StreamBusy, d.check("query", st)
	}
}

// Capturing reports whether the stream records into a graph. How far it is, is not asked.
func (d *Streaming) Capturing(s device.Stream) (bool, error) {
	if d.closed.Load() {
		return false, d.live("query")
	}
	st := C.native_stream_capturing(d.t, d.d, C.uintptr_t(s))
	if st.code == C.MSCCLPP_DEVICE_CAPTURING {
		return true, nil
	}
	return false, d.check("query", st)
}

// FlushWrites implements [device.Flusher].
func (d *Streaming) FlushWrites() error {
	const op = "flush of the writes of adapters"
	switch {
	case d.closed.Load():
		return d.live(op)
	case d.facts.ordered != 0:
		return nil
	case d.b.has&hasFlush == 0:
		return d.unsupported(op, "expected a device that keeps such writes in order, or flushes them")
	}
	return d.check(op, C.native_flush_writes(d.t, d.d))
}

// Sync waits until the stream is idle. It ends when the kernels do. A stream that is captured has nothing to wait for:
// ErrInvalid.
func (d *Streaming) Sync(s device.Stream) error {
	if err := d.live("sync"); err != nil {
		return err
	}
	return d.check("sync", C.native_stream_sync(d.t, d.d, C.uintptr_t(s)))
}
