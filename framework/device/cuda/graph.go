package cuda

// #include "shim.h"
import "C"

import (
	"errors"
	"fmt"
	"runtime"
	"sync/atomic"

	"github.com/mscclpp-go/mscclpp/framework"
	"github.com/mscclpp-go/mscclpp/framework/device"
)

// CaptureMode says what other calls a capture forbids, as the driver defines it.
// Calls of this package are allowed under all of them.
type CaptureMode int

// Modes of capture.
const (
	CaptureGlobal      CaptureMode = C.CU_STREAM_CAPTURE_MODE_GLOBAL       // unsafe calls of any thread
	CaptureThreadLocal CaptureMode = C.CU_STREAM_CAPTURE_MODE_THREAD_LOCAL // unsafe calls of the capturing thread
	CaptureRelaxed     CaptureMode = C.CU_STREAM_CAPTURE_MODE_RELAXED      // none
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
	*primary
	exec   C.uintptr_t
	nodes  int
	closed atomic.Bool
}

// BeginCapture starts to record the work enqueued on the stream, instead of doing it.
// The goroutine that calls it stays on its thread until it calls EndCapture, which
// it must: the driver asks for that, except in relaxed mode.
func (d *engine) BeginCapture(s device.Stream, mode CaptureMode) error {
	if err := d.live("begin capture"); err != nil {
		return err
	}
	if s == 0 || mode < CaptureGlobal || mode > CaptureRelaxed {
		return fmt.Errorf("%s begin capture: %w: stream %#x, %v: expected a stream other than the default, and a known mode",
			d.info.Device, framework.ErrInvalid, uintptr(s), mode)
	}
	runtime.LockOSThread()
	if err := d.check("begin capture", C.cuda_capture_begin(d.c, C.uintptr_t(s), C.int(mode))); err != nil {
		runtime.UnlockOSThread()
		return err
	}
	d.captures.Store(s, nil)
	return nil
}

// EndCapture ends the recording and prepares its launch. An error means that there
// is no recording any more.
func (d *engine) EndCapture(s device.Stream) (*Graph, error) {
	if _, ours := d.captures.LoadAndDelete(s); ours {
		defer runtime.UnlockOSThread() // also where the device was closed meanwhile
	}
	if err := d.begin("end capture"); err != nil {
		return nil, err
	}
	g := &Graph{primary: d.primary}
	var nodes C.uint64_t
	err := d.check("end capture", C.cuda_capture_end(d.c, C.uintptr_t(s), &g.exec, &nodes))
	if err != nil {
		return nil, errorsFirst(err, d.drop())
	}
	g.nodes = int(nodes)
	return g, nil
}

// Nodes returns how many operations were recorded.
func (g *Graph) Nodes() int { return g.nodes }

// Launch enqueues the whole recording on the stream.
func (g *Graph) Launch(s device.Stream) error {
	if g.closed.Load() {
		return fmt.Errorf("cuda:%d launch graph: %w", g.index, framework.ErrClosed)
	}
	return g.code("launch graph", "cuGraphLaunch", C.cuda_graph_launch(g.hot, g.exec, C.uintptr_t(s)))
}

// Close frees the graph. Launches of it that still run are finished.
func (g *Graph) Close() error {
	if g.closed.Swap(true) {
		return nil
	}
	return errors.Join(g.check("close graph", C.cuda_graph_destroy(g.c, g.exec)), g.drop())
}
