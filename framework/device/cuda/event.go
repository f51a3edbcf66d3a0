package cuda

// #include "shim.h"
import "C"

import (
	"errors"
	"fmt"
	"sync/atomic"
	"time"

	"github.com/mscclpp-go/mscclpp/framework"
	"github.com/mscclpp-go/mscclpp/framework/device"
)

// Event marks a point in a stream.
type Event struct {
	*primary
	handle C.uintptr_t
	closed atomic.Bool
}

// NewEvent makes an event. Only those with timing can be subtracted; those without
// are cheaper to wait for.
func (d *engine) NewEvent(timing bool) (*Event, error) {
	if err := d.begin("event"); err != nil {
		return nil, err
	}
	e := &Event{primary: d.primary}
	t := C.int(0)
	if timing {
		t = 1
	}
	if err := d.check("event", C.cuda_event_create(d.c, t, &e.handle)); err != nil {
		return nil, errorsFirst(err, d.drop())
	}
	return e, nil
}

// NewMark makes an event as package collectives uses it.
func (d *engine) NewMark() (device.Mark, error) {
	e, err := d.NewEvent(false)
	if err != nil {
		return nil, err
	}
	return e, nil
}

// Record marks the work enqueued on the stream so far.
func (e *Event) Record(s device.Stream) error {
	return e.code("record", "cuEventRecord", C.cuda_event_record(e.hot, e.handle, C.uintptr_t(s)))
}

// RecordAll marks the work that all streams of the device have been given so far, those that were destroyed
// included. ErrUnsupported: the driver is older than CUDA 12.5, or a stream is recording into a graph.
func (e *Event) RecordAll() error {
	code := C.cuda_event_record_all(e.hot, e.handle)
	if code == C.CUDA_ERROR_STREAM_CAPTURE_UNSUPPORTED || code == C.CUDA_ERROR_NOT_SUPPORTED {
		return fmt.Errorf("%w: an event behind all streams: expected a driver for CUDA 12.5 or later, and no stream that is captured", framework.ErrUnsupported)
	}
	return e.code("record", "cuCtxRecordEvent", code)
}

// Wait makes work that is enqueued on the stream later wait for the marked work.
func (e *Event) Wait(s device.Stream) error {
	return e.code("wait for event", "cuStreamWaitEvent", C.cuda_event_wait(e.hot, e.handle, C.uintptr_t(s)))
}

// Query reports whether the marked work is done.
func (e *Event) Query() (done bool, err error) {
	code := C.cuda_event_query(e.hot, e.handle)
	if code == C.CUDA_ERROR_NOT_READY {
		return false, nil
	}
	return code == C.CUDA_SUCCESS, e.code("query event", "cuEventQuery", code)
}

// Sync waits until the marked work is done. It ends when the kernels do.
func (e *Event) Sync() error {
	return e.check("sync event", C.cuda_event_sync(e.c, e.handle))
}

// Since returns the time between two marks that are both reached, to about half a
// microsecond.
func (e *Event) Since(start *Event) (time.Duration, error) {
	var ms C.float
	if err := e.check("event time", C.cuda_event_elapsed(e.c, start.handle, e.handle, &ms)); err != nil {
		return 0, err
	}
	return time.Duration(float64(ms) * float64(time.Millisecond)), nil
}

// Close frees the event. Work that waits for it is not disturbed.
func (e *Event) Close() error {
	if e.closed.Swap(true) {
		return nil
	}
	return errors.Join(e.check("close event", C.cuda_event_destroy(e.c, e.handle)), e.drop())
}
