package transporttest

import (
	"context"
	"regexp"
	"time"

	"github.com/mscclpp-go/mscclpp/framework"
	"github.com/mscclpp-go/mscclpp/framework/device"
	"github.com/mscclpp-go/mscclpp/framework/device/host"
	"github.com/mscclpp-go/mscclpp/framework/transporttest/internal/harness"
)

// Side is one rank's end of the transport under test.
type Side struct {
	framework.Transport
	Process *Process     // the plugin's process; nil for a transport in this process
	Close   func() error // ends the side; nil when there is nothing to end
}

// Process is the process of a plugin, as the host sees it. The suite reads its
// descriptor table and, in the failure tier, kills it.
type Process struct {
	PID  int
	Gone <-chan struct{} // closed when the host knows of the death
	Err  func() error    // why it is gone
}

// Embedded is a side in this process.
func Embedded(t framework.Transport) *Side { return &Side{Transport: t} }

// Client is a transport in a process of its own, as plugins.Open returns it.
type Client interface {
	framework.Transport
	PID() int
	Gone() <-chan struct{}
	Err() error
	Shutdown() error
}

// External is a side in another process.
func External(c Client) *Side {
	return &Side{
		Transport: c,
		Process:   &Process{PID: c.PID(), Gone: c.Gone(), Err: c.Err},
		Close:     c.Shutdown,
	}
}

// Options say what is tested and how. Open is required.
type Options struct {
	// Open starts a fresh side. The suite calls it once for each rank of a test,
	// and ends the side with Side.Close.
	Open func(ctx context.Context) (*Side, error)

	// Device opens the device of a rank; the host's memory by default.
	Device func(rank int) (device.Device, error)

	Facts framework.Facts   // about the machine, for EndpointConfig
	Known map[string]string // strict expected failures: test name to reason
	Match *regexp.Regexp    // tests to run; nil for all

	// More are tests that run behind those of the suite: of the process boundary for
	// one, which the suite does not know.
	More []Test

	// CallLimit is the deadline of each control call, 5 s by default. A call
	// that does not return within it, and a grace, is reported as hung.
	CallLimit time.Duration
	// TestLimit bounds each test, 30 s by default.
	TestLimit time.Duration

	// Progress is called for every test when it ends.
	Progress func(Result)
}

// harness is what the tests need of the options, with the defaults.
func (o Options) harness() harness.Options {
	h := harness.Options{Device: o.Device, Facts: o.Facts, CallLimit: o.CallLimit, TestLimit: o.TestLimit}
	h.Open = func(ctx context.Context) (*harness.Side, error) {
		s, err := o.Open(ctx)
		if err != nil {
			return nil, err
		}
		return &harness.Side{Transport: s.Transport, Process: (*harness.Process)(s.Process), Close: s.Close}, nil
	}
	if h.Device == nil {
		h.Device = func(int) (device.Device, error) { return host.Open() }
	}
	if h.CallLimit == 0 {
		h.CallLimit = 5 * time.Second
	}
	if h.TestLimit == 0 {
		h.TestLimit = 30 * time.Second
	}
	if h.Facts.Host == "" {
		h.Facts.Host = "conformance"
		h.Facts.NUMA = -1
	}
	return h
}
