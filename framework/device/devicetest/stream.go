package devicetest

import (
	"fmt"
	"sync"
	"sync/atomic"
	"unsafe"

	"github.com/mscclpp-go/mscclpp/framework"
	"github.com/mscclpp-go/mscclpp/framework/device"
)

// stream performs operations in order, on a goroutine of its own.
type stream struct {
	device *Device
	queue  chan operation
	todo   atomic.Int64
	ended  sync.WaitGroup
}

type operation struct {
	dst, src uintptr
	bytes    uint64 // 0: store value
	value    uint64
	reach    chan struct{} // not nil: instead, close it…
	await    chan struct{} // …or wait until another stream has
}

// Depth is how many operations a stream holds. A caller that adds one more waits,
// as a driver makes it wait.
const Depth = 1024

// NewStream implements device.Engine.
func (d *Device) NewStream() (device.Stream, error) {
	d.mu.Lock()
	defer d.mu.Unlock()
	if d.err != nil {
		return 0, d.err
	}
	d.last++
	s := &stream{device: d, queue: make(chan operation, Depth)}
	d.streams[d.last] = s
	s.ended.Go(func() {
		for o := range s.queue {
			s.perform(o)
			s.todo.Add(-1)
		}
	})
	return d.last, nil
}

// CloseStream implements device.Engine. Enqueued work is performed.
func (d *Device) CloseStream(h device.Stream) error {
	d.mu.Lock()
	s := d.streams[h]
	delete(d.streams, h)
	d.mu.Unlock()
	if s == nil {
		return fmt.Errorf("%w: stream %d", framework.ErrInvalid, h)
	}
	close(s.queue)
	return nil
}

// Streams counts those that are open.
func (d *Device) Streams() int {
	d.mu.Lock()
	defer d.mu.Unlock()
	return len(d.streams)
}

// Mappings counts memory that is allocated or mapped.
func (d *Device) Mappings() int {
	d.mu.Lock()
	defer d.mu.Unlock()
	return len(d.ranges)
}

// Copy implements device.Engine.
func (d *Device) Copy(h device.Stream, dst, src uintptr, bytes uint64) error {
	atomic.AddUint64(&d.copies, 1)
	if bytes == 0 {
		return nil
	}
	return d.enqueue(h, operation{dst: dst, src: src, bytes: bytes})
}

// Write implements device.Engine.
func (d *Device) Write(h device.Stream, addr uintptr, value uint64) error {
	atomic.AddUint64(&d.writes, 1)
	return d.enqueue(h, operation{dst: addr, value: value})
}

// mark is a device.Mark.
type mark struct {
	device *Device
	mu     sync.Mutex
	last   chan struct{} // of the last record
}

// NewMark implements device.Marker.
func (d *Device) NewMark() (device.Mark, error) { return &mark{device: d}, nil }

// Record implements device.Mark.
func (m *mark) Record(h device.Stream) error {
	m.mu.Lock()
	defer m.mu.Unlock()
	m.last = make(chan struct{})
	return m.device.enqueue(h, operation{reach: m.last})
}

// Wait implements device.Mark.
func (m *mark) Wait(h device.Stream) error {
	m.mu.Lock()
	defer m.mu.Unlock()
	if m.last == nil {
		return nil
	}
	return m.device.enqueue(h, operation{await: m.last})
}

// Close implements device.Mark.
func (m *mark) Close() error { return nil }

// Calls returns how often the engine was called so far.
func (d *Device) Calls() (copies, writes, queries uint64) {
	return atomic.LoadUint64(&d.copies), atomic.LoadUint64(&d.writes), atomic.LoadUint64(&d.queries)
}

func (d *Device) enqueue(h device.Stream, o operation) error {
	d.mu.Lock()
	s, err := d.streams[h], d.err
	d.mu.Unlock()
	switch {
	case err != nil:
		return err
	case s == nil:
		return fmt.Errorf("%w: stream %d", framework.ErrInvalid, h)
	}
	s.todo.Add(1)
	s.queue <- o
	return nil
}

// Query implements device.Engine.
func (d *Device) Query(h device.Stream) (device.StreamState, error) {
	atomic.AddUint64(&d.queries, 1)
	d.mu.Lock()
	defer d.mu.Unlock()
	s := d.streams[h]
	switch {
	case d.err != nil:
		return device.StreamIdle, d.err
	case s == nil:
		return device.StreamIdle, fmt.Errorf("%w: stream %d", framework.ErrInvalid, h)
	case s.todo.Load() > 0:
		return device.StreamBusy, nil
	}
	return device.StreamIdle, nil
}

// Sync implements device.Engine. A communicator must not call it, since it may
// never return, so it is an error here.
func (d *Device) Sync(device.Stream) error {
	return fmt.Errorf("%w: the fake device does not wait", framework.ErrUnsupported)
}

// Fail breaks the device: everything that is asked of it fails from here on.
func (d *Device) Fail(err error) {
	d.mu.Lock()
	defer d.mu.Unlock()
	if d.err == nil {
		d.err = err
	}
}

// Hold stops all streams before their next operation, until what it returns is
// called.
func (d *Device) Hold() (release func()) {
	d.mu.Lock()
	defer d.mu.Unlock()
	if d.hold == nil {
		d.hold = make(chan struct{})
	}
	return func() {
		d.mu.Lock()
		defer d.mu.Unlock()
		if d.hold != nil {
			close(d.hold)
			d.hold = nil
		}
	}
}

func (s *stream) perform(o operation) {
	d := s.device
	if o.await != nil {
		<-o.await
		return
	}
	d.mu.Lock()
	for d.hold != nil {
		hold := d.hold
		d.mu.Unlock()
		<-hold
		d.mu.Lock()
	}
	defer d.mu.Unlock() // memory does not go away meanwhile
	n := o.bytes
	if n == 0 {
		n = 8
	}
	switch {
	case o.reach != nil:
		close(o.reach)
	case d.err != nil:
	case !d.mapped(o.dst, n) || o.bytes > 0 && !d.mapped(o.src, n):
		d.err = fmt.Errorf("%w: an illegal address: %d bytes from %#x to %#x", framework.ErrUnavailable, n, o.src, o.dst)
	case o.bytes == 0:
		atomic.StoreUint64((*uint64)(closeTo(o.dst)), o.value)
	case o.bytes == 8 && (o.dst|o.src)%8 == 0:
		atomic.StoreUint64((*uint64)(closeTo(o.dst)), atomic.LoadUint64((*uint64)(closeTo(o.src))))
	default:
		copy(unsafe.Slice((*byte)(closeTo(o.dst)), n), unsafe.Slice((*byte)(closeTo(o.src)), n))
	}
}
