package image

import (
	"context"
	"errors"
	"fmt"
	"maps"
	"os"
	"path/filepath"
	"runtime"
	"slices"
	"sync"

	"github.com/mscclpp-go/mscclpp/framework/kernel"
	"github.com/mscclpp-go/mscclpp/internal/atomicfile"
)

// Options of Build and Check.
type Options struct {
	Targets   []Target
	Headers   string // folder of mscclpp/device.h; "": FindHeaders
	Compilers Compilers
	Jobs      int                            // compilers at once; 0: one a CPU
	Proven    string                         // Check: folder that notes which images equalled a build, which is then not made again; "": none
	Store     string                         // Build: folder in which images are kept by all that decides their bytes, for other folders to share; "": none
	Progress  func(done, all int, id string) // called for each image as it is finished; may be nil
}

// Build compiles what is not up to date into dir, and leaves a manifest there. It
// replaces the images of opt.Targets and keeps those of other targets, unless the
// spec has dropped their family.
func Build(ctx context.Context, s *Spec, dir string, opt Options) (*Manifest, error) {
	if err := opt.complete(); err != nil {
		return nil, err
	}
	if err := os.MkdirAll(dir, 0o755); err != nil {
		return nil, err
	}
	old, err := readManifest(dir)
	if err != nil {
		old = &Manifest{} // missing, or of another time: everything is built
	}
	units := s.units(opt.Targets)
	made := make([]Image, len(units))
	err = each(ctx, opt, units, func(ctx context.Context, i int, u unit) error {
		img, err := buildOne(ctx, s, u, dir, old.find(u.id()), opt)
		made[i] = img
		return err
	})
	if err != nil {
		return nil, err
	}
	m := &Manifest{Name: s.Name, ABI: kernel.ABI, Images: made}
	for _, img := range old.Images {
		if s.keeps(img, opt.Targets) {
			m.Images = append(m.Images, img)
		} else if m.find(img.ID) == nil {
			if err := os.Remove(filepath.Join(dir, img.File)); err != nil && !errors.Is(err, os.ErrNotExist) {
				return nil, err
			}
		}
	}
	return m, m.write(dir)
}

// keeps reports whether an image of the old manifest stays: of a target that was not
// asked for, and still in the spec.
func (s *Spec) keeps(img Image, targets []Target) bool {
	for _, t := range targets {
		if t.Arch == img.Arch {
			return false
		}
	}
	t, err := s.FindTarget(img.Arch)
	if err != nil {
		return false
	}
	return slices.ContainsFunc(s.units([]Target{t}), func(u unit) bool { return u.id() == img.ID })
}

func buildOne(ctx context.Context, s *Spec, u unit, dir string, old *Image, opt Options) (Image, error) {
	c, err := opt.Compilers.find(ctx, u.target)
	if err != nil {
		return Image{}, err
	}
	from, err := s.origin(u.family, opt.Headers)
	if err != nil {
		return Image{}, err
	}
	img := Image{ID: u.id(), Family: u.family.Name, Type: u.typ, Arch: u.target.Arch, File: u.file(),
		Source: from.source, Layout: from.layout, Compiler: c.version, Flags: append(u.flags(), u.defines()...)}
	if old != nil && old.Source == img.Source && old.Compiler == img.Compiler && slices.Equal(old.Flags, img.Flags) {
		if data, err := load(dir, *old); err == nil && hash(data) == old.SHA256 {
			same := *old
			same.Layout = from.layout // an older manifest does not have it
			err = same.rename(dir, img.File, data)
			return same, err
		}
	}
	data, err := opt.obtain(ctx, c, s, u, &img)
	if err != nil {
		return Image{}, err
	}
	if img.Symbols, err = inspect(u.target.Kind, data); err != nil {
		return Image{}, fmt.Errorf("kernel image %s: %w", img.ID, err)
	}
	img.Bytes, img.SHA256 = uint64(len(data)), hash(data)
	if data, err = pack(img.File, data); err != nil {
		return Image{}, err
	}
	return img, atomicfile.Bytes(filepath.Join(dir, img.File), data)
}

// rename gives an image the file that it has now, where it was compressed in another way before.
func (i *Image) rename(dir, file string, data []byte) error {
	if i.File == file {
		return nil
	}
	data, err := pack(file, data)
	if err != nil {
		return err
	}
	if err := atomicfile.Bytes(filepath.Join(dir, file), data); err != nil {
		return err
	}
	before := filepath.Join(dir, i.File)
	i.File = file
	return os.Remove(before)
}

// load reads an image's bytes, expanded.
func load(dir string, img Image) ([]byte, error) {
	data, err := os.ReadFile(filepath.Join(dir, img.File))
	if err != nil {
		return nil, err
	}
	return unpack(img.File, data)
}

func (o *Options) complete() error {
	if o.Jobs <= 0 {
		o.Jobs = runtime.NumCPU()
	}
	if o.Headers != "" {
		return nil
	}
	var err error
	o.Headers, err = FindHeaders()
	return err
}

// each runs work for all units, opt.Jobs at once, and stops at the first error.
func each(ctx context.Context, opt Options, units []unit, work func(ctx context.Context, i int, u unit) error) error {
	ctx, cancel := context.WithCancel(ctx)
	defer cancel()
	var (
		wg    sync.WaitGroup
		mu    sync.Mutex
		first error
		done  int
	)
	next := make(chan int)
	for range min(opt.Jobs, len(units)) {
		wg.Go(func() {
			for i := range next {
				err := work(ctx, i, units[i])
				mu.Lock()
				if err != nil && first == nil {
					first = err
					cancel()
				}
				done++
				if opt.Progress != nil {
					opt.Progress(done, len(units), units[i].id())
				}
				mu.Unlock()
			}
		})
	}
	for i := range units {
		select {
		case next <- i:
		case <-ctx.Done():
		}
	}
	close(next)
	wg.Wait()
	if first == nil {
		first = ctx.Err()
	}
	return first
}

func sortedKeys(m map[string]string) []string { return slices.Sorted(maps.Keys(m)) }
