package shm

import (
	"strings"
	"sync"

	"github.com/mscclpp-go/mscclpp/framework"
	"github.com/mscclpp-go/mscclpp/framework/device"
	"github.com/mscclpp-go/mscclpp/framework/device/actor"
)

// archs are the processors that images are built for, best first.
var archs = []string{"x86-64-v4", "x86-64-v3", "x86-64-v2"}

// families are those of kernels/kernels.json; a test compares the two.
var families = []struct {
	name  string
	types []string
}{
	{"reduce", allTypes()},
	{"move", []string{""}},
	{actorFamily, []string{""}},
}

// kernels are the entry points of the families, as the selector of collectives
// knows them: mscclpp_COLLECTIVE_ALGORITHM.
var kernels = sync.OnceValue(func() []framework.KernelInfo {
	return concat(
		list("reduce", "allreduce", "allpair_ll8 allpair_ll16 twophase_ll8 twophase_ll16 allpair_chunk twophase_chunk ring zerocopy pull", framework.KindMemory),
		list("reduce", "allreduce", "switch", framework.KindSwitch),
		list("reduce", "reducescatter", "ll8 ll16 chunk zerocopy pull", framework.KindMemory),
		list("reduce", "reduce", "chunk zerocopy", framework.KindMemory),
		list("move", "allgather", "ll8 ll16 chunk ring zerocopy pull", framework.KindMemory),
		list("move", "alltoall", "ll8 ll16 chunk zerocopy pull", framework.KindMemory),
		list("move", "broadcast", "chunk zerocopy pull", framework.KindMemory),
		list("move", "transfers", "chunk", framework.KindMemory),
		list("move", "barrier", "signal", framework.KindMemory),
		[]framework.KernelInfo{{
			Symbol: actor.Symbol, Family: actorFamily, Types: []string{device.Float32.String()},
			Channels: []framework.Kind{framework.KindMemory, framework.KindPort, framework.KindSwitch},
		}},
	)
})

// actorFamily is the kernel that performs lists of steps, for tests.
const actorFamily = "actor"

// maxKernelRanks is how many ranks the arguments of a collective have room for.
const maxKernelRanks = 72

func list(family, collective, algorithms string, channel framework.Kind) []framework.KernelInfo {
	var out []framework.KernelInfo
	for _, a := range strings.Fields(algorithms) {
		k := framework.KernelInfo{
			Collective: collective, Algorithm: a, Symbol: "mscclpp_" + collective + "_" + a,
			Family: family, Types: allTypes(), Channels: []framework.Kind{channel}, MaxRanks: maxKernelRanks,
		}
		if family == "reduce" {
			k.Ops = allOps()
		}
		out = append(out, k)
	}
	return out
}

func concat(lists ...[]framework.KernelInfo) []framework.KernelInfo {
	var all []framework.KernelInfo
	for _, l := range lists {
		all = append(all, l...)
	}
	return all
}

func allTypes() []string {
	var names []string
	for t := range device.DataType(device.DataTypes) {
		names = append(names, t.String())
	}
	return names
}

func allOps() []string {
	var names []string
	for o := range device.Op(device.Ops) {
		names = append(names, o.String())
	}
	return names
}
