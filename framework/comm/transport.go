package comm

import (
	"context"
	"fmt"
	"strings"

	"github.com/mscclpp-go/mscclpp/framework"
	"github.com/mscclpp-go/mscclpp/framework/comm/internal/life"
	"github.com/mscclpp-go/mscclpp/framework/comm/internal/transport"
	"github.com/mscclpp-go/mscclpp/framework/device"
	"github.com/mscclpp-go/mscclpp/framework/kernel"
)

// Transport is a transport that this process uses: an embedded one, or the client of a
// plugin. The communicators of the process share it.
type Transport = transport.Transport

// Kernel is a kernel that one of the communicator's transports carries.
type Kernel = transport.Kernel

// NewTransport reads the description of t and prepares t for Options.Transports.
func NewTransport(ctx context.Context, t framework.Transport, source string) (*Transport, error) {
	return transport.New(ctx, t, source)
}

// kernels is what loads kernels on a device.
type kernels struct {
	transports []*Transport
	dev        device.Device
	life       *life.Life
}

// Kernels lists the kernels of all transports in order of preference.
func (c *kernels) Kernels() []Kernel { return transport.Kernels(c.transports) }

// Load makes a kernel callable for elements of type t. It may ask a plugin for an image
// and must not be called during capture; later calls for the same image are quick.
// ErrUnavailable: no image was built for this device, its ABI (kernel.ABI) and k.Layout.
func (c *kernels) Load(ctx context.Context, k Kernel, t kernel.DataType) (device.Kernel, error) {
	if err := c.life.Err(); err != nil {
		return nil, err
	}
	ctx, cancel := c.life.Bound(ctx)
	defer cancel()
	loaded, err := transport.Load(ctx, k, c.dev, t)
	if err == nil {
		return loaded, nil
	}
	if cause := c.life.Err(); cause != nil && ctx.Err() != nil { // the transport knows only that its time is over
		err = fmt.Errorf("load kernel %s of %s: %w", k.Symbol, k.Transport, cause)
	}
	return nil, err
}

// LoadImage makes an image of the caller's own callable, for programs with kernels of their own.
// The caller closes it.
func (c *kernels) LoadImage(image []byte) (device.Module, error) {
	if err := c.life.Err(); err != nil {
		return nil, err
	}
	return c.dev.Load(image)
}

// NoKernel explains that no transport has a kernel for what is asked for: for each
// transport the reason, and what to do about it. The error is ErrUnavailable. match tells
// which kernels would do, and layout which arguments they would get ("": any).
func (c *kernels) NoKernel(what, layout string, match func(framework.KernelInfo) bool) error {
	info := c.dev.Info()
	var why []string
	for _, t := range c.transports {
		why = append(why, t.Name+" "+transport.Lacks(t, info, layout, match))
	}
	if len(why) == 0 {
		why = []string{"no transport is configured"}
	}
	return fmt.Errorf("%w: no transport has a kernel for %s: %s; expected in transports one with kernels for %v: `mscclpp-run plugins NAME` lists those of a transport",
		framework.ErrUnavailable, what, strings.Join(why, "; "), info.Device)
}
