package measure

import (
	"errors"
	"sync/atomic"
	"time"
	"unsafe"

	"github.com/mscclpp-go/mscclpp/bench"
	"github.com/mscclpp-go/mscclpp/framework/comm"
	"github.com/mscclpp-go/mscclpp/framework/device"
)

// queue is the stream of a device on which a measurement runs.
type queue struct {
	dev     *measured
	failed  func() error // why the job has ended, or nil
	stream  device.Stream
	timer   timer
	permits hostWord // how many measurements may run
	turn    uint64
}

func newQueue(dev *measured, failed func() error) (q *queue, err error) {
	q = &queue{dev: dev, failed: failed}
	if q.stream, err = dev.NewStream(); err != nil {
		return nil, err
	}
	made, err := dev.timer()
	if err != nil {
		return nil, errors.Join(err, q.close())
	}
	q.timer = made
	if q.permits, err = dev.host(8); err != nil {
		return nil, errors.Join(err, q.close())
	}
	return q, nil
}

func (q *queue) close() error {
	if q == nil {
		return nil
	}
	// After an error a measurement may still be under way, waiting for its permit or behind it.
	all := []error{q.dev.Sync(q.stream)}
	if q.timer.since != nil {
		all = append(all, q.timer.start.Close(), q.timer.end.Close())
	}
	all = append(all, q.dev.CloseStream(q.stream))
	if q.permits != nil {
		all = append(all, q.permits.Close())
	}
	return errors.Join(all...)
}

// Finish waits for the stream. Kernels end when a rank dies, so it does as well; the communicator
// then names that rank.
func (q *queue) Finish() error { return q.outcome(q.dev.Sync(q.stream)) }

func (q *queue) outcome(err error) error {
	if cause := q.failed(); cause != nil {
		return cause
	}
	return err
}

func (q *queue) Time(held bool, align, f func() error) (time.Duration, error) {
	if held {
		q.turn++
		if err := q.dev.WaitValue(q.stream, q.permits.Addr(), q.turn); err != nil {
			return 0, q.outcome(err)
		}
	}
	err := q.enqueue(align, f)
	if held { // also after an error: nothing else ends that wait
		atomic.StoreUint64((*uint64)(unsafe.Pointer(unsafe.SliceData(q.permits.HostBytes()))), q.turn)
	}
	if err != nil {
		return 0, err
	}
	if err := q.timer.end.Sync(); err != nil {
		return 0, q.outcome(err)
	}
	took, err := q.timer.since()
	return took, q.outcome(err)
}

// enqueue puts f between the two events.
func (q *queue) enqueue(align, f func() error) error {
	if err := align(); err != nil {
		return err
	}
	if err := q.timer.start.Record(q.stream); err != nil {
		return q.outcome(err)
	}
	if err := f(); err != nil {
		return err
	}
	return q.outcome(q.timer.end.Record(q.stream))
}

func (q *queue) Capture(f func() error) (bench.Graph, error) {
	if err := q.dev.begin(q.stream); err != nil {
		return nil, err
	}
	err := f()
	g, ended := q.dev.end(q.stream)
	if err = errors.Join(err, ended); err != nil {
		if g != nil {
			err = errors.Join(err, g.Close())
		}
		return nil, err
	}
	return &graph{q, g}, nil
}

type graph struct {
	q *queue
	g recording
}

func (g *graph) Launch() error { return g.g.Launch(g.q.stream) }
func (g *graph) Close() error  { return g.g.Close() }

// memory is device memory with a view of its size on the host.
func (q *queue) memory(m *comm.Memory, bytes int64) bench.Memory {
	view := make([]byte, bytes)
	addr := m.Addr()
	return bench.Memory{
		Addr: *(*unsafe.Pointer)(unsafe.Pointer(&addr)), // device memory does not move
		View: view,
		Push: func(low, high int) error { return q.outcome(q.dev.WriteAt(view[low:high], addr+uintptr(low))) },
		Pull: func(low, high int) error { return q.outcome(q.dev.ReadAt(view[low:high], addr+uintptr(low))) },
	}
}
