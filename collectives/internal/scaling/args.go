package scaling

import (
	"embed"
	"errors"
	"fmt"
	"io/fs"
	"sync"
	"unsafe"

	"github.com/mscclpp-go/mscclpp/framework"
	"github.com/mscclpp-go/mscclpp/framework/device"
	"github.com/mscclpp-go/mscclpp/framework/kernel"
	"github.com/mscclpp-go/mscclpp/framework/kernel/image"
)

const (
	symbol  = "mscclpp_steps_scale"
	threads = 512 // of a block; images are compiled for no more
)

// args mirrors ScaleArgs of kernels/scale_args.h.
type args struct {
	input        uintptr
	output       uintptr
	at           uintptr
	factor       uint64
	count        uint64
	inputStride  uint64
	outputStride uint64
	slices       uint64
}

//go:embed image kernels/scale_args.h
var files embed.FS

// images are the kernels for GPUs. No transport of mscclpp-go carries them: the kernel uses no channel, and is needed as well
// where the transports of a job have no kernels.
var images = sync.OnceValues(func() (*image.Set, error) {
	dir, err := fs.Sub(files, "image")
	if err != nil {
		return nil, err
	}
	return image.Open(dir)
})

var layout = sync.OnceValue(func() string {
	header, err := files.ReadFile("kernels/scale_args.h")
	if err != nil {
		panic(err) // it is embedded
	}
	return kernel.Layout(string(header))
})

// load loads the kernel for a type from the image that the device likes best: as machine code, where the device has some
// of it. With onlyAssembled all results are nil where it has none.
func load(d device.Device, t kernel.DataType, onlyAssembled bool) (device.Module, device.Kernel, error) {
	set, err := images()
	if err != nil {
		return nil, nil, err
	}
	info := d.Info()
	for _, arch := range info.Archs {
		for _, i := range set.Infos() {
			if i.Arch != arch || i.Type != t.String() || i.ABI != kernel.ABI || i.Layout != layout() {
				continue
			}
			m, err := module(d, set, i, onlyAssembled)
			if m == nil || err != nil {
				return nil, nil, err
			}
			k, err := m.Kernel(symbol)
			if err != nil {
				return nil, nil, errors.Join(fmt.Errorf("image %s: %w", i.ID, err), m.Close())
			}
			return m, k, nil
		}
	}
	return nil, nil, fmt.Errorf("%w: no kernel multiplies %v on %s: expected an image for %v", framework.ErrUnsupported, t, info.Name, info.Archs)
}

func module(d device.Device, set *image.Set, i framework.ImageInfo, onlyAssembled bool) (m device.Module, err error) {
	if a, ok := d.(device.Assembled); ok {
		if m, err = a.LoadAssembled(i.SHA256); err != nil {
			return nil, fmt.Errorf("image %s: %w", i.ID, err)
		}
	}
	if m != nil || onlyAssembled {
		return m, nil
	}
	code, err := set.Read(i.ID)
	if err != nil {
		return nil, err
	}
	if m, err = d.Load(code); err != nil {
		return nil, fmt.Errorf("image %s: %w", i.ID, err)
	}
	return m, nil
}

// launch enqueues a pass.
func launch(k device.Kernel, s device.Stream, blocks uint32, a *args) error {
	return k.Launch(device.Launch{Grid: blocks, Block: threads, Stream: s}, unsafe.Pointer(a), unsafe.Sizeof(*a))
}
