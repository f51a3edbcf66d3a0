// Package transport is a transport as this process uses it, and the kernels that it carries.
package transport

import (
	"context"
	"crypto/sha256"
	"encoding/hex"
	"fmt"
	"slices"
	"strings"
	"sync"

	"github.com/mscclpp-go/mscclpp/framework"
	"github.com/mscclpp-go/mscclpp/framework/comm/internal/images"
	"github.com/mscclpp-go/mscclpp/framework/device"
	"github.com/mscclpp-go/mscclpp/framework/kernel"
)

// Transport is a transport that this process uses: an embedded one, or the client of a
// plugin. The communicators of the process share it.
type Transport struct {
	framework.Transport
	Name        string
	Description framework.Description
	Source      string          // for people: "embedded", "plugin /path (pid 123)"
	Gone        <-chan struct{} // closed when the plugin has died; nil if embedded
	Cause       func() error    // why it is gone

	mu      sync.Mutex
	modules map[moduleKey]device.Module
}

// New reads the description of t and prepares t for Options.Transports.
func New(ctx context.Context, t framework.Transport, source string) (*Transport, error) {
	d, err := t.Describe(ctx)
	if err != nil {
		return nil, fmt.Errorf("describe %s: %w", source, err)
	}
	return &Transport{Transport: t, Name: d.Name, Description: d, Source: source}, nil
}

// Kernel is a kernel that one of the communicator's transports carries.
type Kernel struct {
	framework.KernelInfo
	Transport string

	// Layout is set by the code that is going to launch the kernel, before Load: the layout of the
	// arguments that it will pass (kernel.Layout). "": it is not compared.
	Layout string

	carrier *Transport
}

type moduleKey struct {
	device framework.Device
	image  string
	layout string // that was asked for
}

// Kernels lists the kernels of all transports in order of preference.
func Kernels(list []*Transport) []Kernel {
	var all []Kernel
	for _, t := range list {
		for _, k := range t.Description.Kernels {
			all = append(all, Kernel{KernelInfo: k, Transport: t.Name, carrier: t})
		}
	}
	return all
}

// Load makes a kernel callable on a device for elements of type dt.
func Load(ctx context.Context, k Kernel, dev device.Device, dt kernel.DataType) (device.Kernel, error) {
	if k.carrier == nil {
		return nil, fmt.Errorf("%w: kernel %q does not come from Kernels", framework.ErrInvalid, k.Symbol)
	}
	m, err := k.carrier.module(ctx, dev, k, dt)
	if err != nil {
		return nil, fmt.Errorf("kernel %s of %s for %v: %w", k.Symbol, k.Transport, dt, err)
	}
	return m.Kernel(k.Symbol)
}

// module loads the image for the best architecture that the device knows.
func (t *Transport) module(ctx context.Context, dev device.Device, k Kernel, dt kernel.DataType) (device.Module, error) {
	info := dev.Info()
	image, unfit := images.Choose(t.Description.Images, images.Want{Archs: info.Archs, Family: k.Family, Type: dt.String(), ABI: kernel.ABI, Layout: k.Layout})
	if unfit != nil && image.ID == "" {
		return nil, unfit
	}
	key := moduleKey{info.Device, image.ID, k.Layout}
	t.mu.Lock()
	defer t.mu.Unlock()
	if m := t.modules[key]; m != nil {
		return m, nil
	}
	imager, ok := t.Transport.(framework.Imager)
	if !ok {
		return nil, fmt.Errorf("%w: lists images but cannot deliver them", framework.ErrPlugin)
	}
	code, err := imager.Image(ctx, image.ID)
	if err != nil {
		return nil, err
	}
	if unfit != nil { // after Image, which knows better why one was never built
		return nil, unfit
	}
	if err := verify(image, code); err != nil {
		return nil, err
	}
	m, err := dev.Load(code)
	if err != nil {
		return nil, fmt.Errorf("image %s: %w", image.ID, err)
	}
	if t.modules == nil {
		t.modules = make(map[moduleKey]device.Module)
	}
	t.modules[key] = m
	return m, nil
}

// Lacks says why a transport has no kernel that could be loaded.
func Lacks(t *Transport, info device.Info, layout string, match func(framework.KernelInfo) bool) string {
	if len(t.Description.Kernels) == 0 {
		return "describes no kernels"
	}
	i := slices.IndexFunc(t.Description.Kernels, match)
	if i < 0 {
		return "describes kernels for other work alone"
	}
	k := t.Description.Kernels[i]
	if _, err := images.Choose(t.Description.Images, images.Want{Archs: info.Archs, Family: k.Family, ABI: kernel.ABI, Layout: layout}); err != nil {
		return "cannot load " + k.Symbol + ": " + Plainly(err.Error())
	}
	if k.MaxRanks > 0 {
		return fmt.Sprintf("has %s, for up to %d ranks", k.Symbol, k.MaxRanks)
	}
	return "has " + k.Symbol + ", which does not take this call"
}

func verify(i framework.ImageInfo, code []byte) error {
	if i.SHA256 == "" {
		return nil
	}
	sum := sha256.Sum256(code)
	if got := hex.EncodeToString(sum[:]); got != i.SHA256 {
		return fmt.Errorf("%w: image %s has sha256 %s, expected %s", framework.ErrInvalid, i.ID, got, i.SHA256)
	}
	return nil
}

// CloseModules unloads the images. Call it after the last communicator has stopped
// using t.
func (t *Transport) CloseModules() error {
	t.mu.Lock()
	defer t.mu.Unlock()
	var first error
	for key, m := range t.modules {
		if err := m.Close(); err != nil && first == nil {
			first = err
		}
		delete(t.modules, key)
	}
	return first
}

// Plainly is a reason without the class of its error, for readers that know already that the
// transport cannot be used.
func Plainly(why string) string {
	for _, class := range framework.Classes {
		why = strings.TrimPrefix(why, class.Error()+": ")
	}
	return why
}
