package native

// #include "table.h"
import "C"

import (
	"errors"
	"fmt"
	"runtime"
	"sync/atomic"
	"time"

	"github.com/mscclpp-go/mscclpp/framework"
	"github.com/mscclpp-go/mscclpp/framework/device"
)

// Event marks a point in a stream. It implements device.Mark.
type Event struct {
	*opened
	handle C.uintptr_t
	closed atomic.Bool
}

// NewEvent makes an event. Only those with timing can be subtracted.
func (d *Marking) NewEvent(timing bool) (*Event, error) {
	if timing && d.b.has&hasTimes == 0 {
		return nil, d.unsupported("event", "events of the device measure no time")
	}
	if err := d.begin("event"); err != nil {
		return nil, err
	}
	e := &Event{opened: d.opened}
	t := C.int32_t(0)
	if timing {
		t = 1
	}
	if err := d.check("event", C.native_event_create(d.t, d.d, t, &e.handle)); err != nil {
		return nil, firstOf(err, d.drop())
	}
	return e, nil
}

// NewMark makes an event as package collectives uses it.
func (d *Marking) NewMark() (device.Mark, error) {
	e, err := d.NewEvent(false)
	if err != nil {
		return nil, err
	}
	return e, nil
}

// Record marks the work enqueued on the stream so far.
func (e *Event) Record(s device.Stream) error {
	return e.check("record", C.native_event_record(e.t, e.d, e.handle, C.uintptr_t(s)))
}

// RecordAll marks the work that all streams of the device have been given so far. ErrUnsupported: the device has no such mark,
// or a stream is recording into a graph.
func (e *Event) RecordAll() error {
	if e.b.has&hasAllEvent == 0 {
		return fmt.Errorf("%s record: %w: an event behind all streams", e.info.Device, framework.ErrUnsupported)
	}
	return e.check("record", C.native_event_record_all(e.t, e.d, e.handle))
}

// Wait makes work that is enqueued on the stream later wait for the marked work.
func (e *Event) Wait(s device.Stream) error {
	return e.check("wait for event", C.native_event_wait(e.t, e.d, e.handle, C.uintptr_t(s)))
}

// Query reports whether the marked work is done.
func (e *Event) Query() (done bool, err error) {
	st := C.native_event_query(e.t, e.d, e.handle)
	if st.code == C.MSCCLPP_DEVICE_NOT_READY {
		return false, nil
	}
	return st.code == 0, e.check("query event", st)
}

// Sync waits until the marked work is done. It ends when the kernels do.
func (e *Event) Sync() error { return e.check("sync event", C.native_event_sync(e.t, e.d, e.handle)) }

// Since returns the time between two marks that are both reached.
func (e *Event) Since(start *Event) (time.Duration, error) {
	if e.b.has&hasTimes == 0 {
		return 0, fmt.Errorf("%s event time: %w: events of the device measure no time", e.info.Device, framework.ErrUnsupported)
	}
	var ns C.uint64_t
	err := e.check("event time", C.native_event_elapsed(e.t, e.d, start.handle, e.handle, &ns))
	return time.Duration(ns), err
}

// stamp is an event with a time. It implements device.Stamp.
type stamp struct{ *Event }

// NewStamp implements [device.Timer].
func (d *Marking) NewStamp() (device.Stamp, error) {
	e, err := d.NewEvent(true)
	if err != nil {
		return nil, err
	}
	return stamp{e}, nil
}

func (s stamp) RecordEach(on device.Stream) error {
	if s.b.has&hasGraphTimes == 0 {
		return fmt.Errorf("%s record: %w: graphs of the device take no times", s.info.Device, framework.ErrUnsupported)
	}
	return s.check("record", C.native_event_record_each(s.t, s.d, s.handle, C.uintptr_t(on)))
}

func (s stamp) After(base device.Stamp) (ns int64, err error) {
	from, ok := base.(stamp)
	if !ok {
		return 0, fmt.Errorf("%s event time: %w: a stamp of another device", s.info.Device, framework.ErrInvalid)
	}
	took, err := s.Since(from.Event)
	return int64(took), err
}

// Close frees the event. Work that waits for it is not disturbed.
func (e *Event) Close() error {
	if e.closed.Swap(true) {
		return nil
	}
	return errors.Join(e.check("close event", C.native_event_destroy(e.t, e.d, e.handle)), e.drop())
}

// CaptureMode says what other calls a capture forbids.
type CaptureMode int

// Modes of capture.
const (
	CaptureGlobal      CaptureMode = C.MSCCLPP_DEVICE_CAPTURE_GLOBAL
	CaptureThreadLocal CaptureMode = C.MSCCLPP_DEVICE_CAPTURE_THREAD
	CaptureRelaxed     CaptureMode = C.MSCCLPP_DEVICE_CAPTURE_RELAXED
)

// String returns the name of the mode.
func (m CaptureMode) String() string {
	switch m {
	case CaptureGlobal:
		return "global"
	case CaptureThreadLocal:
		return "thread-local"
	case CaptureRelaxed:
		return "relaxed"
	}
	return fmt.Sprintf("mode %d", int(m))
}

// Graph is the recording of a capture, ready to be launched.
type Graph struct {
	*opened
	handle C.uintptr_t
	nodes  int
	closed atomic.Bool
}

// BeginCapture starts to record the work enqueued on the stream, instead of doing it. The goroutine that calls it stays on its
// thread until it calls EndCapture, which it must.
func (d *Streaming) BeginCapture(s device.Stream, mode CaptureMode) error {
	const op = "begin capture"
	if err := d.live(op); err != nil {
		return err
	}
	if d.b.has&hasGraphs == 0 {
		return d.unsupported(op, "the device records no graphs")
	}
	if s == 0 || mode < CaptureGlobal || mode > CaptureRelaxed {
		return fmt.Errorf("%s %s: %w: stream %#x, %v: expected a stream other than the default, and a known mode", d.info.Device, op, framework.ErrInvalid, uintptr(s), mode)
	}
	runtime.LockOSThread()
	if err := d.check(op, C.native_capture_begin(d.t, d.d, C.uintptr_t(s), C.int32_t(mode))); err != nil {
		runtime.UnlockOSThread()
		return err
	}
	d.captures.Store(s, nil)
	return nil
}

// EndCapture ends the recording and prepares its launch. An error means that there is no recording any more.
func (d *Streaming) EndCapture(s device.Stream) (*Graph, error) {
	if _, ours := d.captures.LoadAndDelete(s); ours {
		defer runtime.UnlockOSThread() // also where the device was closed meanwhile
	}
	if d.b.has&hasGraphs == 0 {
		return nil, d.unsupported("end capture", "the device records no graphs")
	}
	if err := d.begin("end capture"); err != nil {
		return nil, err
	}
	g := &Graph{opened: d.opened}
	var nodes C.uint64_t
	if err := d.check("end capture", C.native_capture_end(d.t, d.d, C.uintptr_t(s), &g.handle, &nodes)); err != nil {
		return nil, firstOf(err, d.drop())
	}
	g.nodes = int(nodes)
	return g, nil
}

// Nodes returns how many operations were recorded.
func (g *Graph) Nodes() int { return g.nodes }

// Launch enqueues the whole recording on the stream.
func (g *Graph) Launch(s device.Stream) error {
	if g.closed.Load() {
		return fmt.Errorf("%s launch graph: %w", g.info.Device, framework.ErrClosed)
	}
	return g.check("launch graph", C.native_graph_launch(g.t, g.d, g.handle, C.uintptr_t(s)))
}

// Close frees the graph. Launches of it that still run are finished.
func (g *Graph) Close() error {
	if g.closed.Swap(true) {
		return nil
	}
	return errors.Join(g.check("close graph", C.native_graph_destroy(g.t, g.d, g.handle)), g.drop())
}

var (
	_ device.Mark  = (*Event)(nil)
	_ device.Timer = (*Marking)(nil)
)
