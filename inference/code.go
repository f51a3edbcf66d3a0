package inference

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
	"github.com/mscclpp-go/mscclpp/inference/image"
)

// Names of the kernel, as transports claim it and as images have it.
const (
	family    = "inference"
	algorithm = "allreduce_norm"
	symbol    = "mscclpp_inference_allreduce_norm"
)

// patience bounds the time that it takes to load a kernel.
const patience = 30 * time.Second

// mostThreads of a block are those that the images for GPUs are compiled for.
const mostThreads = 1024

// code is the kernel, and what of it is loaded.
type code struct {
	carried *comm.Kernel // by a transport; nil: it is one of the images of this module
	modules []device.Module
	loaded  [kernel.DataTypes]device.Kernel
}

// find looks for the kernel: transports come first, as they know of devices that this module does not.
func (x *code) find(c *comm.Communicator) error {
	list := c.Kernels()
	if i := slices.IndexFunc(list, func(k comm.Kernel) bool { return k.Collective == family && k.Algorithm == algorithm }); i >= 0 {
		x.carried = &list[i]
		x.carried.Layout = layout()
		return nil
	}
	if _, err := embedded(c.Device().Info(), kernel.BFloat16); err == nil {
		return nil
	}
	return c.NoKernel("inference", layout(), func(k framework.KernelInfo) bool { return k.Collective == family })
}

// threads is how many of a block's threads the kernel takes.
func (x *code) threads(wanted int) uint32 {
	most := mostThreads
	if x.carried != nil && x.carried.MaxThreads > 0 {
		most = x.carried.MaxThreads
	}
	return uint32(min(wanted, most))
}

// load makes the kernel callable for elements of a type.
func (x *code) load(c *comm.Communicator, t kernel.DataType) (k device.Kernel, err error) {
	if x.loaded[t] != nil {
		return x.loaded[t], nil
	}
	if x.carried != nil {
		ctx, cancel := context.WithTimeout(context.Background(), patience)
		defer cancel()
		k, err = c.Load(ctx, *x.carried, t)
	} else {
		k, err = x.open(c.Device(), t)
	}
	if err == nil {
		x.loaded[t] = k
	}
	return k, err
}

// embedded is the image of this module that a device likes best.
func embedded(info device.Info, t kernel.DataType) (framework.ImageInfo, error) {
	set, err := image.Images()
	if err != nil {
		return framework.ImageInfo{}, err
	}
	for _, arch := range info.Archs {
		for _, i := range set.Infos() {
			if i.Arch == arch && i.Type == t.String() && i.ABI == kernel.ABI && i.Layout == layout() {
				return i, nil
			}
		}
	}
	return framework.ImageInfo{}, fmt.Errorf("%w: no kernel for inference with %v on %s: expected an image for %v", framework.ErrUnsupported, t, info.Name, info.Archs)
}

// open loads an image of this module: as machine code, where the device has some of it.
func (x *code) open(d device.Device, t kernel.DataType) (device.Kernel, error) {
	i, err := embedded(d.Info(), t)
	if err != nil {
		return nil, err
	}
	m, err := module(d, i)
	if err != nil {
		return nil, fmt.Errorf("image %s: %w", i.ID, err)
	}
	k, err := m.Kernel(symbol)
	if err != nil {
		return nil, errors.Join(fmt.Errorf("image %s: %w", i.ID, err), m.Close())
	}
	x.modules = append(x.modules, m)
	return k, nil
}

func module(d device.Device, i framework.ImageInfo) (device.Module, error) {
	if a, ok := d.(device.Assembled); ok {
		if m, err := a.LoadAssembled(i.SHA256); m != nil || err != nil {
			return m, err
		}
	}
	set, err := image.Images()
	if err != nil {
		return nil, err
	}
	text, err := set.Read(i.ID)
	if err != nil {
		return nil, err
	}
	return d.Load(text)
}

func (x *code) close() error {
	var errs []error
	for _, m := range x.modules {
		errs = append(errs, m.Close())
	}
	x.modules = nil
	return errors.Join(errs...)
}
