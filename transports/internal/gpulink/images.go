package gpulink

import (
	"context"
	"fmt"
	"slices"

	"github.com/mscclpp-go/mscclpp/framework"
	deviceimage "github.com/mscclpp-go/mscclpp/framework/kernel/image"
)

// images are the kernels for the GPUs of a maker. They are part of the program: nothing
// has to be built where they run.
type images struct {
	infos   []framework.ImageInfo
	kernels []framework.KernelInfo
	sets    map[string]*deviceimage.Set // by image id
}

func openImages(m *Maker) (*images, error) {
	i := &images{sets: map[string]*deviceimage.Set{}}
	var all []image
	for _, open := range m.Images {
		set, err := open()
		if err != nil {
			return nil, err
		}
		for _, info := range set.Infos() {
			if !slices.Contains(m.Archs, info.Arch) || info.Family == "actor_reduce" {
				continue // of other vendors; or a test of its own
			}
			i.infos = append(i.infos, info)
			i.sets[info.ID] = set
			all = append(all, image{info, set.Symbols(info.ID), set.MaxThreads(info.ID)})
		}
	}
	i.kernels = list(m, all)
	return i, nil
}

// Image returns an image's bytes.
func (t *Transport) Image(ctx context.Context, id string) ([]byte, error) {
	data, err := t.images.read(ctx, id)
	if err != nil {
		return nil, t.failure("image", err)
	}
	return data, nil
}

func (i *images) read(ctx context.Context, id string) ([]byte, error) {
	if err := ctx.Err(); err != nil {
		return nil, err
	}
	set := i.sets[id]
	if set == nil {
		return nil, fmt.Errorf("%w: no kernel image %q", framework.ErrInvalid, id)
	}
	return set.Read(id)
}
