package main

import (
	"errors"
	"fmt"
	"time"

	"github.com/mscclpp-go/mscclpp/framework"
	"github.com/mscclpp-go/mscclpp/framework/comm"
	"github.com/mscclpp-go/mscclpp/framework/device"
	"github.com/mscclpp-go/mscclpp/framework/device/native"
)

// executor is the device, for what its kind decides: how the host reaches its memory,
// and how time is measured.
type executor interface {
	stream() device.Stream
	write(m *comm.Memory, at int, b []byte) error
	read(b []byte, m *comm.Memory, at int) error
	finish() error
	watch(marks int) (watch, error)
	close() error
}

// watch takes times between what is enqueued.
type watch interface {
	mark() error
	between(one, other int) (time.Duration, error)
	close()
}

// accelerator is a device with streams and events: cuda, and those that makers bring.
type accelerator interface {
	device.Engine
	WriteAt(b []byte, addr uintptr) error
	ReadAt(b []byte, addr uintptr) error
	NewEvent(timing bool) (*native.Event, error)
}

func newExecutor(dev device.Device) (executor, error) {
	if d, ok := dev.(accelerator); ok {
		s, err := d.NewStream()
		if err != nil {
			return nil, err
		}
		return &onGPU{d, s}, nil
	}
	if t := dev.Info().Device.Type; t != "host" {
		return nil, fmt.Errorf("%w: device %s: expected host, or a device with streams and events", framework.ErrUnsupported, t)
	}
	return onHost{}, nil
}

type onGPU struct {
	dev   accelerator
	queue device.Stream
}

func (g *onGPU) stream() device.Stream { return g.queue }
func (g *onGPU) write(m *comm.Memory, at int, b []byte) error {
	return g.dev.WriteAt(b, m.Addr()+uintptr(at))
}
func (g *onGPU) read(b []byte, m *comm.Memory, at int) error {
	return g.dev.ReadAt(b, m.Addr()+uintptr(at))
}
func (g *onGPU) finish() error { return g.dev.Sync(g.queue) }
func (g *onGPU) close() error  { return g.dev.CloseStream(g.queue) }

// watch makes all events before anything is enqueued.
func (g *onGPU) watch(marks int) (watch, error) {
	w := &events{queue: g.queue}
	for range marks {
		e, err := g.dev.NewEvent(true)
		if err != nil {
			w.close()
			return nil, err
		}
		w.events = append(w.events, e)
	}
	return w, nil
}

type events struct {
	queue  device.Stream
	events []*native.Event
	used   int
}

func (w *events) mark() error {
	w.used++
	return w.events[w.used-1].Record(w.queue)
}
func (w *events) between(one, other int) (time.Duration, error) {
	return w.events[other].Since(w.events[one])
}
func (w *events) close() {
	var all []error
	for _, e := range w.events {
		all = append(all, e.Close())
	}
	_ = errors.Join(all...) // events of a device that is lost cannot be closed, and that was said before
}

// onHost is the CPU, where a launch is a call.
type onHost struct{}

func (onHost) stream() device.Stream { return 0 }
func (onHost) write(m *comm.Memory, at int, b []byte) error {
	copy(device.Bytes(m)[at:], b)
	return nil
}
func (onHost) read(b []byte, m *comm.Memory, at int) error {
	copy(b, device.Bytes(m)[at:])
	return nil
}
func (onHost) finish() error { return nil }
func (onHost) close() error  { return nil }
func (onHost) watch(marks int) (watch, error) {
	return &times{make([]time.Time, 0, marks)}, nil
}

type times struct{ marks []time.Time }

func (w *times) mark() error {
	w.marks = append(w.marks, time.Now())
	return nil
}
func (w *times) between(one, other int) (time.Duration, error) {
	return w.marks[other].Sub(w.marks[one]), nil
}
func (w *times) close() {}
