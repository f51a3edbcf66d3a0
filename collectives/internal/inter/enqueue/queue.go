// Package enqueue puts the work of calls on streams of a GPU: copies, the kernels of the ranks of a host, and what the
// engines between hosts do in between. A call enqueues everything and returns.
package enqueue

import (
	"context"
	"errors"
	"fmt"
	"sync/atomic"

	"github.com/mscclpp-go/mscclpp/collectives/internal/engine"
	"github.com/mscclpp-go/mscclpp/collectives/internal/inter/crosshost"
	"github.com/mscclpp-go/mscclpp/collectives/internal/inter/inside"
	"github.com/mscclpp-go/mscclpp/collectives/internal/inter/lanes"
	"github.com/mscclpp-go/mscclpp/collectives/internal/inter/streamgate"
	"github.com/mscclpp-go/mscclpp/collectives/internal/kernelargs"
	"github.com/mscclpp-go/mscclpp/framework"
	"github.com/mscclpp-go/mscclpp/framework/comm"
	"github.com/mscclpp-go/mscclpp/framework/device"
	"github.com/mscclpp-go/mscclpp/framework/device/host"
)

// Queue is what the calls of one rank on streams have in common.
type Queue struct {
	crosshost.Sizes
	World      *comm.Communicator // on whose device the kernels run
	Device     streamgate.Device
	HostDevice device.Device // the device of the host, which maps the memory
	Inside     *inside.Host  // nil where there are no two levels
	Session    *lanes.Session

	scratch  device.Memory // of the device, where there are two levels
	mark     device.Mark   // behind the last call
	any      atomic.Bool   // there was one
	captured atomic.Bool   // calls are in graphs
}

// Start makes what all calls need.
func (q *Queue) Start() (err error) {
	if q.HostDevice, err = host.Open(); err != nil {
		return err
	}
	q.mark, err = q.Device.NewMark()
	return err
}

// Drain has what calls have enqueued leave the device.
func (q *Queue) Drain() error { return engine.Drain(q.World, q) }

// Pending implements engine.Enqueuer.
func (q *Queue) Pending() (busy, known bool, err error) {
	m, ok := q.mark.(interface{ Query() (bool, error) })
	switch {
	case !q.any.Load():
		return false, !q.captured.Load(), nil
	case !ok:
		return false, false, nil
	}
	done, err := m.Query()
	return !done, !done || !q.captured.Load(), err
}

// Close is for when the streams with calls on them have ended.
func (q *Queue) Close() error {
	var all []error
	if q.mark != nil {
		all = append(all, q.mark.Close())
	}
	if q.scratch != nil {
		all = append(all, q.scratch.Close())
	}
	return errors.Join(all...)
}

// CloseHost is for when nothing uses memory of the host any more.
func (q *Queue) CloseHost() error {
	if q.HostDevice == nil {
		return nil
	}
	return q.HostDevice.Close()
}

// Enqueued is one call that is being enqueued, until something fails.
type Enqueued struct {
	*Queue
	Call     *engine.Call
	Stream   device.Stream
	Sign     kernelargs.Signature
	Err      error
	Captured bool // the stream is, into a graph
}

// Begin describes a call of all ranks; within Session.Do. It keeps a copy: streams come to
// work when the caller's is long of another call.
func (q *Queue) Begin(c *engine.Call, algorithm string) *Enqueued {
	own := *c
	return &Enqueued{Queue: q, Call: &own, Stream: c.Stream, Sign: q.Session.Signature(c, algorithm)}
}

// Perform enqueues what f says; within Session.Do. Work that fails half-way cannot be taken back,
// and the other ranks would wait for it. The call that was to be captured has not begun.
func (t *Enqueued) Perform(f func()) error {
	if err := t.World.Check(); err != nil {
		return err
	}
	return t.Session.Run(func(context.Context) error {
		t.follow()
		f()
		if t.Err == nil && !t.Captured {
			t.Err = t.mark.Record(t.Stream)
		}
		if t.Err != nil && !t.Captured {
			t.World.Abort(t.Err)
		}
		return t.Err
	})
}

// Eager refuses streams that are captured: the host cannot know how often, and when, a
// graph is launched.
func (t *Enqueued) Eager() error {
	state, err := t.Device.Query(t.Stream)
	if err == nil && state == device.StreamCapturing {
		err = fmt.Errorf("%w: collectives over hosts in which the host takes part cannot be captured into a graph: expected a stream that is not, or algorithm %s, behind a first call outside of a capture", framework.ErrUnsupported, crosshost.NameDirect)
	}
	return err
}

// Capture notes whether the stream is captured.
func (t *Enqueued) Capture() error {
	state, err := t.Device.Query(t.Stream)
	if t.Captured = state == device.StreamCapturing; t.Captured {
		t.captured.Store(true)
	}
	return err
}

// follow puts the call behind the one before it, whatever stream that was on: they use
// the same memory, and the host performs them in order.
func (t *Enqueued) follow() {
	q := t.Queue
	if t.Captured { // when a graph is launched, and where, is the program's affair
		return
	}
	if q.any.Swap(true) { // also on the same stream, by its number: that may be one made since
		t.Err = q.mark.Wait(t.Stream)
	}
}

// Copy copies between memory that the device reaches.
func (t *Enqueued) Copy(to, from uintptr, bytes uint64) {
	if t.Err == nil && bytes > 0 && to != from {
		t.Err = t.Device.Copy(t.Stream, to, from, bytes)
	}
}
