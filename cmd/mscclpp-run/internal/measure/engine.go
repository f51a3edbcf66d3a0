package measure

import (
	"time"

	"github.com/mscclpp-go/mscclpp/framework/device"
	"github.com/mscclpp-go/mscclpp/framework/device/cuda"
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

// measured is a device on whose streams a measurement runs, and what differs between packages of devices.
type measured struct {
	engine
	timer func() (timer, error)
	host  func(bytes uint64) (hostWord, error)
	begin func(device.Stream) error
	end   func(device.Stream) (recording, error)
}

// measuredOn returns nil for a device without streams, or without events.
func measuredOn(d device.Device) *measured {
	switch d := d.(type) {
	case *cuda.Device:
		return &measured{
			engine: d,
			timer: func() (timer, error) {
				start, end, err := pair(d.NewEvent)
				return timer{start, end, func() (time.Duration, error) { return end.Since(start) }}, err
			},
			host:  func(bytes uint64) (hostWord, error) { return wordOf(d.AllocHost(bytes)) },
			begin: func(s device.Stream) error { return d.BeginCapture(s, cuda.CaptureThreadLocal) },
			end:   func(s device.Stream) (recording, error) { return graphOf(d.EndCapture(s)) },
		}
	case *native.Marking:
		return &measured{
			engine: d,
			timer: func() (timer, error) {
				start, end, err := pair(d.NewEvent)
				return timer{start, end, func() (time.Duration, error) { return end.Since(start) }}, err
			},
			host:  func(bytes uint64) (hostWord, error) { return wordOf(d.AllocHost(bytes)) },
			begin: func(s device.Stream) error { return d.BeginCapture(s, native.CaptureThreadLocal) },
			end:   func(s device.Stream) (recording, error) { return graphOf(d.EndCapture(s)) },
		}
	}
	return nil
}

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
