package measure

import (
	"time"

	"github.com/mscclpp-go/mscclpp/framework/device"
	"github.com/mscclpp-go/mscclpp/framework/device/native"
)

// engine is a device with streams, as measurements use it.
type engine interface {
	device.Engine
	WaitValue(s device.Stream, addr uintptr, value uint64) error
	WriteAt(b []byte, addr uintptr) error
	ReadAt(b []byte, addr uintptr) error
	Bound(f func() error) error
}

// timer is two events of a device.
type timer struct {
	start, end interface {
		device.Mark
		Sync() error
	}
	since func() (time.Duration, error)
}

// hostWord is memory of the host that streams of a device see.
type hostWord interface {
	device.Memory
	HostBytes() []byte
}

// recording is the graph of a capture.
type recording interface {
	Launch(device.Stream) error
	Close() error
}

// measurable is a device that measurements can use: one of package native with streams and events, which those of package cuda are.
type measurable interface {
	engine
	NewEvent(timing bool) (*native.Event, error)
	AllocHost(bytes uint64) (*native.Memory, error)
	BeginCapture(s device.Stream, mode native.CaptureMode) error
	EndCapture(s device.Stream) (*native.Graph, error)
}

// measured is a device on whose streams a measurement runs.
type measured struct{ measurable }

// measuredOn returns nil for a device without streams, or without events.
func measuredOn(d device.Device) *measured {
	if d, ok := d.(measurable); ok {
		return &measured{d}
	}
	return nil
}

func (m *measured) timer() (timer, error) {
	start, end, err := pair(m.NewEvent)
	return timer{start, end, func() (time.Duration, error) { return end.Since(start) }}, err
}

func (m *measured) host(bytes uint64) (hostWord, error) { return wordOf(m.AllocHost(bytes)) }

func (m *measured) begin(s device.Stream) error { return m.BeginCapture(s, native.CaptureThreadLocal) }

func (m *measured) end(s device.Stream) (recording, error) { return graphOf(m.EndCapture(s)) }

// pair makes two events with time.
func pair[E interface{ Close() error }](make func(timing bool) (E, error)) (start, end E, err error) {
	if start, err = make(true); err != nil {
		return start, end, err
	}
	if end, err = make(true); err != nil {
		_ = start.Close()
	}
	return start, end, err
}

// wordOf and graphOf return no nil pointer in an interface.
func wordOf[M hostWord](m M, err error) (hostWord, error) {
	if err != nil {
		return nil, err
	}
	return m, nil
}

func graphOf[G recording](g G, err error) (recording, error) {
	if err != nil {
		return nil, err
	}
	return g, nil
}
