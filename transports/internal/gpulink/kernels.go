package gpulink

import (
	"slices"

	"github.com/mscclpp-go/mscclpp/framework"
	"github.com/mscclpp-go/mscclpp/framework/kernel/kernellist"
)

// image is one that is offered, with its entry points.
type image struct {
	framework.ImageInfo
	symbols    []string
	maxThreads int // of a block
}

// list derives the kernels from the images: mscclpp_COLLECTIVE_ALGORITHM. One is
// offered for the types for which every architecture has it. Everything in the images is
// offered but what runs over channels that the transport has not: an algorithm that is
// added there is offered here.
func list(m *Maker, images []image) []framework.KernelInfo {
	var out []framework.KernelInfo
	for _, family := range familiesOf(images) {
		if family == kernellist.Actor {
			out = append(out, kernellist.ActorOver(framework.KindMemory, framework.KindPort))
			continue
		}
		for _, symbol := range symbolsOf(images, family) {
			collective, algorithm, ok := kernellist.Names(symbol)
			if !ok || slices.Contains(m.Elsewhere, algorithm) {
				continue
			}
			k := kernellist.Collective(family, collective, algorithm, framework.KindMemory)
			k.Types, k.MaxThreads = typesOf(images, family, symbol), threadsOf(images, family)
			if len(k.Types) > 0 {
				out = append(out, k)
			}
		}
	}
	return out
}

func familiesOf(images []image) []string {
	var names []string
	for _, i := range images {
		if !slices.Contains(names, i.Family) {
			names = append(names, i.Family)
		}
	}
	return names
}

func symbolsOf(images []image, family string) []string {
	var names []string
	for _, i := range images {
		if i.Family == family {
			names = append(names, i.symbols...)
		}
	}
	slices.Sort(names)
	return slices.Compact(names)
}

// typesOf lists the types for which a family has a symbol on all architectures. An
// image without type serves all.
func typesOf(images []image, family, symbol string) []string {
	with, in := map[string]int{}, map[string]int{}
	for _, i := range images {
		if i.Family != family {
			continue
		}
		in[i.Type]++
		if slices.Contains(i.symbols, symbol) {
			with[i.Type]++
		}
	}
	if in[""] > 0 {
		if with[""] < in[""] {
			return nil
		}
		return kernellist.Types()
	}
	return slices.DeleteFunc(kernellist.Types(), func(t string) bool { return in[t] == 0 || with[t] < in[t] })
}

// threadsOf is the largest block that all images of a family allow.
func threadsOf(images []image, family string) int {
	least := 0
	for _, i := range images {
		if i.Family == family && i.maxThreads > 0 && (least == 0 || i.maxThreads < least) {
			least = i.maxThreads
		}
	}
	return least
}
