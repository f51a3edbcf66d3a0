package nvls

import (
	"context"
	"fmt"
	"slices"

	collectives "github.com/mscclpp-go/mscclpp/collectives/image"
	"github.com/mscclpp-go/mscclpp/framework"
	"github.com/mscclpp-go/mscclpp/framework/kernel/actor"
	deviceimage "github.com/mscclpp-go/mscclpp/framework/kernel/image"
	"github.com/mscclpp-go/mscclpp/framework/kernel/kernellist"
)

// arch is the first chip with multicast. Newer GPUs compile its images for themselves.
const arch = "sm_90"

// Algorithms are those of kernels that need a window.
var Algorithms = []string{"switch", "switch_zerocopy", "switch_minmax", "switch_packets"}

// families are those of images whose kernels all do. Another has an older form of one of them.
var families = []string{"switch", "switchmove"}

// images are the kernels with multicast: families that have one of them, and the actor of tests.
type images struct {
	infos   []framework.ImageInfo
	kernels []framework.KernelInfo
	sets    map[string]*deviceimage.Set // by image id
}

func openImages() (*images, error) {
	i := &images{sets: map[string]*deviceimage.Set{}}
	for _, open := range []func() (*deviceimage.Set, error){collectives.Images, actor.Images} {
		set, err := open()
		if err != nil {
			return nil, err
		}
		for _, info := range set.Infos() {
			if info.Arch == arch {
				i.add(set, info)
			}
		}
	}
	return i, nil
}

// add offers an image, if it has kernels over a window.
func (i *images) add(set *deviceimage.Set, info framework.ImageInfo) {
	var list []framework.KernelInfo
	if info.Family == kernellist.Actor {
		list = append(list, kernellist.ActorOver(framework.KindSwitch))
	}
	for _, symbol := range set.Symbols(info.ID) {
		collective, algorithm, ok := kernellist.Names(symbol)
		if !ok || !slices.Contains(families, info.Family) || !slices.Contains(Algorithms, algorithm) {
			continue
		}
		k := kernellist.Collective(info.Family, collective, algorithm, framework.KindSwitch)
		k.Types, k.MaxThreads, k.MaxRanks = []string{info.Type}, set.MaxThreads(info.ID), maxRanks
		k.Ops = opsOf(collective, algorithm)
		if info.Type == "" {
			k.Types = kernellist.Types()
		}
		list = append(list, k)
	}
	if len(list) == 0 {
		return
	}
	i.infos = append(i.infos, info)
	i.sets[info.ID] = set
	for _, k := range list {
		at := slices.IndexFunc(i.kernels, func(o framework.KernelInfo) bool { return o.Symbol == k.Symbol && o.Family == k.Family })
		if at < 0 {
			i.kernels = append(i.kernels, k)
			continue
		}
		old := &i.kernels[at] // the same kernel for another type
		old.Types = append(old.Types, k.Types...)
		if k.MaxThreads > 0 && (old.MaxThreads == 0 || k.MaxThreads < old.MaxThreads) {
			old.MaxThreads = k.MaxThreads
		}
	}
}

// opsOf lists the operations of a kernel. Ranks sum packets, and know every operation; the switch has fewer. It has no minimum
// and maximum of f32 and f64: their images lack that kernel.
func opsOf(collective, algorithm string) []string {
	switch {
	case collective != "allreduce" && collective != "reducescatter":
		return nil
	case algorithm == "switch_packets":
		return kernellist.Ops()
	case algorithm == "switch_minmax":
		return []string{"min", "max"}
	}
	return []string{"sum", "avg", "premulsum"}
}

// Image returns an image's bytes: PTX, which the driver compiles.
func (t *Transport) Image(ctx context.Context, id string) ([]byte, error) {
	if err := ctx.Err(); err != nil {
		return nil, failure("image", err)
	}
	set := t.images.sets[id]
	if set == nil {
		return nil, failure("image", fmt.Errorf("%w: no kernel image %q", framework.ErrInvalid, id))
	}
	data, err := set.Read(id)
	if err != nil {
		return nil, failure("image", err)
	}
	return data, nil
}
