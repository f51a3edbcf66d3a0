package harness

import (
	"context"
	"time"

	"github.com/mscclpp-go/mscclpp/framework"
	"github.com/mscclpp-go/mscclpp/framework/device"
)

// Side is one rank's end of the transport under test.
type Side struct {
	framework.Transport
	Process *Process     // the plugin's process; nil for a transport in this process
	Close   func() error // ends the side; nil when there is nothing to end
}

// Process is the process of a plugin, as the host sees it.
type Process struct {
	PID  int
	Gone <-chan struct{} // closed when the host knows of the death
	Err  func() error    // why it is gone
}

// Options say where sides and devices come from, and how long things may take.
type Options struct {
	Open      func(ctx context.Context) (*Side, error)
	Device    func(rank int) (device.Device, error)
	Facts     framework.Facts
	CallLimit time.Duration // of each control call
	TestLimit time.Duration // of each test
}

// Grace is what a call may take beyond its deadline: scheduling on a busy machine,
// and for a plugin the way back.
const Grace = time.Second
