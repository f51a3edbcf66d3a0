// Package ownkernel loads a kernel of which this module has images, unless a transport brings one, and says how launches ended: transports come first,
// as they know of devices that this module does not.
package ownkernel

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"time"

	"github.com/mscclpp-go/mscclpp/framework"
	"github.com/mscclpp-go/mscclpp/framework/comm"
	"github.com/mscclpp-go/mscclpp/framework/device"
	"github.com/mscclpp-go/mscclpp/framework/kernel"
	"github.com/mscclpp-go/mscclpp/framework/kernel/image"
)

// patience bounds the time that it takes to load a kernel.
const patience = 30 * time.Second

// Kernel is a kernel and what of it is loaded, for one element type after the other.
type Kernel struct {
	Family, Algorithm string // as transports claim it
	Symbol            string // as images have it
	Purpose           string // for errors: "execution plans"
	Layout            string
	Images            func() (*image.Set, error)

	// Opened hears of each image of this module that was loaded; nil: nothing does.
	Opened func(device.Info, framework.ImageInfo)

	// Carried is the transport's kernel, after Find; nil: it is one of the images of this module.
	Carried *comm.Kernel

	modules [kernel.DataTypes]device.Module
	loaded  [kernel.DataTypes]device.Kernel
}

// Find looks for the kernel.
func (k *Kernel) Find(c *comm.Communicator) error {
	list := c.Kernels()
	if i := slices.IndexFunc(list, func(l comm.Kernel) bool { return l.Collective == k.Family && l.Algorithm == k.Algorithm }); i >= 0 {
		k.Carried = &list[i]
		k.Carried.Layout = k.Layout
		return nil
	}
	for t := range kernel.DataType(kernel.DataTypes) {
		if _, err := k.image(c.Device().Info(), t); err == nil {
			return nil
		}
	}
	return c.NoKernel(k.Purpose, k.Layout, func(i framework.KernelInfo) bool { return i.Collective == k.Family })
}

// Load makes the kernel callable for elements of a type.
func (k *Kernel) Load(c *comm.Communicator, t kernel.DataType) (found device.Kernel, err error) {
	if k.loaded[t] != nil {
		return k.loaded[t], nil
	}
	if k.Carried != nil {
		ctx, cancel := context.WithTimeout(context.Background(), patience)
		defer cancel()
		found, err = c.Load(ctx, *k.Carried, t)
	} else {
		found, err = k.open(c.Device(), t)
	}
	if err == nil {
		k.loaded[t] = found
	}
	return found, err
}

// image is the image of this module that a device likes best.
func (k *Kernel) image(info device.Info, t kernel.DataType) (framework.ImageInfo, error) {
	set, err := k.Images()
	if err != nil {
		return framework.ImageInfo{}, err
	}
	for _, arch := range info.Archs {
		for _, i := range set.Infos() {
			if i.Arch == arch && i.Type == t.String() && i.ABI == kernel.ABI && i.Layout == k.Layout {
				return i, nil
			}
		}
	}
	return framework.ImageInfo{}, fmt.Errorf("%w: no kernel for %s of %v on %s: expected an image for %v", framework.ErrUnsupported, k.Purpose, t, info.Name, info.Archs)
}

// open loads an image of this module: as machine code, where the device has some of it.
func (k *Kernel) open(d device.Device, t kernel.DataType) (device.Kernel, error) {
	i, err := k.image(d.Info(), t)
	if err != nil {
		return nil, err
	}
	m, err := k.module(d, i)
	if err != nil {
		return nil, fmt.Errorf("image %s: %w", i.ID, err)
	}
	found, err := m.Kernel(k.Symbol)
	if err != nil {
		return nil, errors.Join(fmt.Errorf("image %s: %w", i.ID, err), m.Close())
	}
	if k.Opened != nil {
		k.Opened(d.Info(), i)
	}
	k.modules[t] = m
	return found, nil
}

// Beside is another kernel of the image that Load has opened for elements of a type; nil: a transport has brought the kernel, alone.
func (k *Kernel) Beside(symbol string, t kernel.DataType) (device.Kernel, error) {
	if k.modules[t] == nil {
		return nil, nil
	}
	return k.modules[t].Kernel(symbol)
}

func (k *Kernel) module(d device.Device, i framework.ImageInfo) (device.Module, error) {
	if a, ok := d.(device.Assembled); ok {
		if m, err := a.LoadAssembled(i.SHA256); m != nil || err != nil {
			return m, err
		}
	}
	set, err := k.Images()
	if err != nil {
		return nil, err
	}
	text, err := set.Read(i.ID)
	if err != nil {
		return nil, err
	}
	return d.Load(text)
}

// Close unloads what Load has loaded.
func (k *Kernel) Close() error {
	var errs []error
	for t, m := range k.modules {
		if m != nil {
			errs = append(errs, m.Close())
		}
		k.modules[t] = nil
	}
	return errors.Join(errs...)
}
