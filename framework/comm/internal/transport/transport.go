// Package transport is a transport as this process uses it, and the kernels that it carries.
package transport

import (
	"context"
	"crypto/sha256"
	"encoding/hex"
	"fmt"
	"maps"
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

	formsMu sync.Mutex // beside mu, which is held while a driver compiles
	forms   map[string]int
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
	m, err := t.load(ctx, dev, image, unfit)
	if err != nil {
		return nil, err
	}
	t.remember(key, m)
	return m, nil
}

// load loads an image: as machine code, where the device has some of it, else as it is. An image that is unfit is asked
// for all the same: the transport knows better why one was never built.
func (t *Transport) load(ctx context.Context, dev device.Device, image framework.ImageInfo, unfit error) (device.Module, error) {
	if unfit == nil {
		if m, err := assembled(dev, image); m != nil || err != nil {
			return m, err
		}
	}
	imager, ok := t.Transport.(framework.Imager)
	if !ok {
		return nil, fmt.Errorf("%w: lists images but cannot deliver them", framework.ErrPlugin)
	}
	code, err := imager.Image(ctx, image.ID)
	if err != nil {
		return nil, err
	}
	if unfit != nil {
		return nil, unfit
	}
	if err := verify(image, code); err != nil {
		return nil, err
	}
	m, err := dev.Load(code)
	if err != nil {
		return nil, fmt.Errorf("image %s: %w", image.ID, err)
	}
	return m, nil
}

// assembled loads the machine code of an image, nil if there is none.
func assembled(dev device.Device, image framework.ImageInfo) (device.Module, error) {
	d, ok := dev.(device.Assembled)
	if !ok || image.SHA256 == "" {
		return nil, nil
	}
	m, err := d.LoadAssembled(image.SHA256)
	if err != nil {
		return nil, fmt.Errorf("image %s: %w", image.ID, err)
	}
	return m, nil
}

// remember keeps a module. The lock is held.
func (t *Transport) remember(key moduleKey, m device.Module) {
	if t.modules == nil {
		t.modules = make(map[moduleKey]device.Module)
	}
	t.modules[key] = m
	if f, ok := m.(interface{ Form() string }); ok {
		t.formsMu.Lock()
		defer t.formsMu.Unlock()
		if t.forms == nil {
			t.forms = make(map[string]int)
		}
		t.forms[f.Form()]++
	}
}

// Preload loads all images that a device would choose and has machine code of, for kernels with arguments of these
// layouts, so that none of them has to be loaded later: while a stream is captured, or beside kernels that wait. Images
// without it are left to the first call that needs it.
func (t *Transport) Preload(dev device.Device, layouts []string) error {
	if _, ok := dev.(device.Assembled); !ok {
		return nil
	}
	t.mu.Lock()
	defer t.mu.Unlock()
	done := map[string]bool{}
	for _, k := range t.Description.Kernels {
		for _, layout := range layouts {
			for _, typ := range k.Types {
				want := images.Want{Archs: dev.Info().Archs, Family: k.Family, Type: typ, ABI: kernel.ABI, Layout: layout}
				image, unfit := images.Choose(t.Description.Images, want)
				if id := image.ID + "\x00" + k.Symbol; unfit == nil && !done[id] {
					done[id] = true
					if err := t.preload(dev, image, layout, k.Symbol); err != nil {
						return err
					}
				}
			}
		}
	}
	return nil
}

// preload loads one kernel, if there is machine code of its image: a driver may put off the loading of each kernel until
// it is asked for. The lock is held.
func (t *Transport) preload(dev device.Device, image framework.ImageInfo, layout, symbol string) error {
	key := moduleKey{dev.Info().Device, image.ID, layout}
	m := t.modules[key]
	if m == nil {
		var err error
		if m, err = assembled(dev, image); m == nil {
			return err
		}
		t.remember(key, m)
	}
	if _, err := m.Kernel(symbol); err != nil {
		return fmt.Errorf("kernel %s of image %s: %w", symbol, image.ID, err)
	}
	return nil
}

// Forms counts the loaded images by their form, in words: "machine code for sm_90". It does not wait.
func (t *Transport) Forms() map[string]int {
	t.formsMu.Lock()
	defer t.formsMu.Unlock()
	return maps.Clone(t.forms)
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
	t.formsMu.Lock()
	defer t.formsMu.Unlock()
	t.forms = nil
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
