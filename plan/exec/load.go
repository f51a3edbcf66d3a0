package exec

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"strconv"
	"strings"

	"github.com/mscclpp-go/mscclpp/framework"
	"github.com/mscclpp-go/mscclpp/framework/comm"
	"github.com/mscclpp-go/mscclpp/framework/device"
	"github.com/mscclpp-go/mscclpp/framework/kernel"
	"github.com/mscclpp-go/mscclpp/plan/image"
)

// mostThreads of a block are those that the images for GPUs are compiled for.
const mostThreads = 512

// code is the kernel of the executor, and what of it is loaded.
type code struct {
	carried *comm.Kernel // by a transport; nil: it is one of the images of this module
	modules []device.Module
	loaded  [kernel.DataTypes]device.Kernel
	most    uint32 // blocks of launches that may overlap; 0: none
}

// find looks for the kernel: transports come first, as they know of devices that this module does not.
func (x *code) find(c *comm.Communicator) error {
	list := c.Kernels()
	i := slices.IndexFunc(list, func(k comm.Kernel) bool { return k.Collective == "plan" && k.Algorithm == "execute" })
	if i >= 0 {
		x.carried = &list[i]
		x.carried.Layout = layout()
		return nil
	}
	for t := range kernel.DataType(kernel.DataTypes) {
		if _, err := embedded(c.Device().Info(), t); err == nil {
			return nil
		}
	}
	return c.NoKernel("execution plans", layout(), func(k framework.KernelInfo) bool { return k.Collective == "plan" })
}

// threads is how many of a block's threads the kernel takes.
func (x *code) threads(wanted int) uint32 {
	most := mostThreads
	if x.carried != nil {
		most = x.carried.MaxThreads
	}
	if most > 0 {
		wanted = min(wanted, most)
	}
	return uint32(wanted)
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
	return framework.ImageInfo{}, fmt.Errorf("%w: no kernel runs plans of %v on %s: expected an image for %v", framework.ErrUnsupported, t, info.Name, info.Archs)
}

// open loads an image of this module: as machine code, where the device has some of it.
func (x *code) open(d device.Device, t kernel.DataType) (device.Kernel, error) {
	i, err := embedded(d.Info(), t)
	if err != nil {
		return nil, err
	}
	var m device.Module
	if a, ok := d.(device.Assembled); ok {
		if m, err = a.LoadAssembled(i.SHA256); err != nil {
			return nil, fmt.Errorf("image %s: %w", i.ID, err)
		}
	}
	if m == nil {
		set, err := image.Images()
		if err != nil {
			return nil, err
		}
		text, err := set.Read(i.ID)
		if err != nil {
			return nil, err
		}
		if m, err = d.Load(text); err != nil {
			return nil, fmt.Errorf("image %s: %w", i.ID, err)
		}
	}
	x.most = overlapping(d.Info(), i.Arch)
	k, err := m.Kernel("mscclpp_plan_execute")
	if err != nil {
		return nil, errors.Join(fmt.Errorf("image %s: %w", i.ID, err), m.Close())
	}
	x.modules = append(x.modules, m)
	return k, nil
}

// overlapping is how many blocks a launch of an image may have that begins while the one before it runs. It waits for that one, and
// leaves some multiprocessors to other kernels: one for which a peer waits could not begin otherwise. Images for
// older chips have no instruction that waits.
func overlapping(info device.Info, arch string) uint32 {
	if n, err := strconv.Atoi(strings.TrimPrefix(arch, "sm_")); err != nil || n < 90 {
		return 0
	}
	const spare = 4
	return uint32(max(0, info.SMs/2-spare))
}

func (x *code) close() error {
	var errs []error
	for _, m := range x.modules {
		errs = append(errs, m.Close())
	}
	x.modules = nil
	return errors.Join(errs...)
}
