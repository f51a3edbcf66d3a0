package shm

import (
	"slices"
	"strings"
	"sync"

	"github.com/mscclpp-go/mscclpp/framework"
	"github.com/mscclpp-go/mscclpp/framework/kernel/kernellist"
)

// archs are the processors that images are built for, best first.
var archs = []string{"x86-64-v4", "x86-64-v3", "x86-64-v2"}

// families are those of kernels/kernels.json; a test compares the two.
var families = []struct {
	name  string
	types []string
}{
	{kernellist.Reduce, kernellist.Types()},
	{"move", []string{""}},
	{kernellist.Plan, kernellist.Types()},
	{kernellist.Inference, kernellist.InferenceTypes()},
	{kernellist.MoE, kernellist.MoETypes()},
	{kernellist.Actor, []string{""}},
}

// kernels are the entry points of the families, as the selector of collectives
// knows them: mscclpp_COLLECTIVE_ALGORITHM.
var kernels = sync.OnceValue(func() []framework.KernelInfo {
	return slices.Concat(
		list(kernellist.Reduce, "allreduce", "allpair_ll8 allpair_ll16 twophase_ll8 twophase_ll16 allpair_chunk twophase_chunk ring zerocopy pull", framework.KindMemory),
		list(kernellist.Reduce, "allreduce", "switch switch_packets", framework.KindSwitch),
		list(kernellist.Reduce, "reducescatter", "switch", framework.KindSwitch),
		list("move", "allgather", "switch", framework.KindSwitch),
		list("move", "broadcast", "switch", framework.KindSwitch),
		list("move", "barrier", "switch", framework.KindSwitch),
		list(kernellist.Reduce, "reducescatter", "ll8 ll16 chunk zerocopy pull", framework.KindMemory),
		list(kernellist.Reduce, "reduce", "chunk zerocopy", framework.KindMemory),
		list("move", "allgather", "ll8 ll16 chunk ring zerocopy pull", framework.KindMemory),
		list("move", "alltoall", "ll8 ll16 chunk zerocopy pull", framework.KindMemory),
		list("move", "broadcast", "chunk zerocopy pull", framework.KindMemory),
		list("move", "transfers", "chunk", framework.KindMemory),
		list("move", "barrier", "signal", framework.KindMemory),
		list(kernellist.Plan, kernellist.Plan, "execute execute_chunks", framework.KindMemory),
		list(kernellist.Inference, kernellist.Inference, "allreduce_norm", framework.KindMemory),
		list(kernellist.MoE, kernellist.MoE, "dispatch combine", framework.KindMemory),
		[]framework.KernelInfo{kernellist.ActorOver(framework.KindMemory, framework.KindPort, framework.KindSwitch)},
	)
})

func list(family, collective, algorithms string, channel framework.Kind) []framework.KernelInfo {
	var out []framework.KernelInfo
	for _, a := range strings.Fields(algorithms) {
		out = append(out, kernellist.Collective(family, collective, a, channel))
	}
	return out
}
