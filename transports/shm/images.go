package shm

import (
	"context"
	"errors"
	"fmt"
	"io/fs"
	"os"
	"path/filepath"
	"slices"

	"github.com/mscclpp-go/mscclpp/framework"
	"github.com/mscclpp-go/mscclpp/framework/kernel"
	"github.com/mscclpp-go/mscclpp/framework/kernel/image"
	"github.com/mscclpp-go/mscclpp/internal/programdir"
)

// Folder is the name of the folder of kernel images, beside the program.
const Folder = "mscclpp-transport-shm.kernels"

// images are the kernel images of this machine. They are compiled where they run,
// for the processor at hand, so they may be missing; everything but kernels works
// without them.
type images struct {
	dir string
	set *image.Set // nil if there is none
	err error      // why
}

// openImages looks for the folder: the one that the options name, else beside the
// program, or beside the plugins of a program that embeds the transport.
func openImages(dir string) (*images, error) {
	dirs := []string{dir}
	if dir == "" {
		here, err := programdir.Get()
		if err != nil {
			return nil, fmt.Errorf("%w: %w", framework.ErrUnavailable, err)
		}
		dirs = []string{filepath.Join(here, Folder), filepath.Join(here, "plugins", Folder)}
	}
	first := &images{dir: dirs[0]}
	for i, d := range dirs {
		set, err := image.Open(os.DirFS(d))
		if err == nil {
			return &images{dir: d, set: set}, nil
		}
		if i == 0 || !errors.Is(err, fs.ErrNotExist) {
			first.dir, first.err = d, err
		}
	}
	return first, nil
}

// list names the images: those of the manifest, or without one those that
// `make kernels` would build.
func (i *images) list() []framework.ImageInfo {
	if i.set != nil {
		return i.set.Infos()
	}
	var all []framework.ImageInfo
	for _, arch := range archs {
		for _, f := range families {
			for _, typ := range f.types {
				id := f.name
				if typ != "" {
					id += "-" + typ
				}
				all = append(all, framework.ImageInfo{ID: id + "-" + arch, Arch: arch, Family: f.name, Type: typ, ABI: kernel.ABI})
			}
		}
	}
	return all
}

// kernels lists what the images contain. A build may have left out some: then what
// no image has is not claimed.
func (i *images) kernels() []framework.KernelInfo {
	if i.set == nil {
		return kernels()
	}
	symbols := map[string]bool{}
	for _, info := range i.set.Infos() {
		for _, s := range i.set.Symbols(info.ID) {
			symbols[s] = true
		}
	}
	return slices.DeleteFunc(slices.Clone(kernels()), func(k framework.KernelInfo) bool { return !symbols[k.Symbol] })
}

// Image returns an image's bytes.
func (t *Transport) Image(ctx context.Context, id string) ([]byte, error) {
	data, err := t.images.read(ctx, id)
	if err != nil {
		return nil, failure("image", err)
	}
	return data, nil
}

func (i *images) read(ctx context.Context, id string) ([]byte, error) {
	if err := ctx.Err(); err != nil {
		return nil, err
	}
	if i.set != nil {
		return i.set.Read(id)
	}
	if !slices.ContainsFunc(i.list(), func(info framework.ImageInfo) bool { return info.ID == id }) {
		return nil, fmt.Errorf("%w: no kernel image %q", framework.ErrInvalid, id)
	}
	return nil, fmt.Errorf("%w: kernel image %s is not built on this machine: run make kernels, which fills %s: %w", framework.ErrUnavailable, id, programdir.Name(i.dir), i.err)
}
