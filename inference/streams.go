package inference

import (
	"errors"
	"fmt"
	"time"

	"github.com/mscclpp-go/mscclpp/framework"
	"github.com/mscclpp-go/mscclpp/framework/device"
)

// drainPatience is how long launches on a GPU may take to end by themselves.
const drainPatience = 2 * time.Second

// behind is a mark behind all that a device has been given. A program may have destroyed the streams of its calls, and a driver
// must not be asked about those.
type behind interface {
	device.Mark
	RecordAll() error
	Query() (bool, error)
}

// everything sets a mark behind all that the device has been given; nil: it has no such marks.
func (w *Workspace) everything() (behind, error) {
	marker, ok := w.comm.Device().(device.Marker)
	if !ok {
		return nil, nil
	}
	if w.mark == nil {
		made, err := marker.NewMark()
		if err != nil {
			return nil, err
		}
		w.mark = made
	}
	m, ok := w.mark.(behind)
	if !ok {
		return nil, nil
	}
	if err := m.RecordAll(); err != nil {
		if errors.Is(err, framework.ErrUnsupported) {
			return nil, nil
		}
		return nil, err
	}
	return m, nil
}

// follow has a call on another stream than the one before begin when that one has ended: both count launches in the same
// memory. The program orders launches that it records into a graph.
func (w *Workspace) follow(s device.Stream) error {
	engine, ok := w.comm.Device().(device.Engine)
	if !ok || !w.enqueued || s == w.stream {
		return nil
	}
	state, err := engine.Query(s)
	if err != nil || state == device.StreamCapturing {
		return err
	}
	m, err := w.everything()
	if err != nil || m == nil {
		return err
	}
	return m.Wait(s)
}

// quiet waits until earlier launches, on a GPU, no longer use memory that is to be freed.
func (w *Workspace) quiet() error {
	if _, ok := w.comm.Device().(device.Engine); !ok || !w.enqueued {
		return nil
	}
	m, err := w.everything()
	if err != nil || m == nil {
		return err
	}
	ended, err := drained(m)
	if ended || err != nil {
		return err
	}
	w.comm.Abort(fmt.Errorf("%w: rank %d frees memory of a workspace while a call of it runs", framework.ErrClosed, w.comm.Rank()))
	_, err = drained(m) // an abort ends the kernels
	return err
}

// drained waits for a mark as long as launches may take.
func drained(m behind) (bool, error) {
	tick := time.NewTicker(time.Millisecond)
	defer tick.Stop()
	for began := time.Now(); time.Since(began) < drainPatience; <-tick.C {
		if done, err := m.Query(); done || err != nil {
			return done, err
		}
	}
	return false, nil
}
