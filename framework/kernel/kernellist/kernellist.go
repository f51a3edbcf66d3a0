// Package kernellist makes the list of kernels that a transport claims: what
// Description.Kernels says of each, as package collectives looks for them. A kernel is
// known by its collective and its algorithm, which are also the name of its entry point,
// so a list can be made from the symbols of an image as well:
//
//	for _, symbol := range symbols {
//		if collective, algorithm, ok := kernellist.Names(symbol); ok {
//			list = append(list, kernellist.Collective(family, collective, algorithm, framework.KindMemory))
//		}
//	}
package kernellist

import (
	"strings"

	"github.com/mscclpp-go/mscclpp/framework"
	"github.com/mscclpp-go/mscclpp/framework/collective"
	"github.com/mscclpp-go/mscclpp/framework/kernel"
	"github.com/mscclpp-go/mscclpp/framework/kernel/actor"
)

const (
	// Reduce is the family of all collectives that compute: an image for each type.
	Reduce = "reduce"
	// Actor is the family of the kernel that performs lists of steps, for tests.
	Actor = "actor"
	// MaxRanks is how many ranks the arguments of a collective have room for.
	MaxRanks = 72

	prefix = "mscclpp_"
)

// The values of KernelInfo.Collective beside the names of collectives.
const (
	// Steps are kernels of which a collective over several hosts is put together.
	Steps = "steps"
	// Transfers are kernels that send and receive messages of several peers at once.
	Transfers = "transfers"
	// Plan is the kernel that runs execution plans, and its family: an image for each type.
	Plan = "plan"
	// Inference are kernels that add up and do what follows in a model, and their family: an image for each type that models have.
	Inference = "inference"
	// MoE are kernels that bring rows to experts and back, and their family.
	MoE = "moe"
)

// Collectives lists everything that KernelInfo.Collective can be.
func Collectives() []string {
	return append(collective.Names(), Steps, Transfers, Plan, Inference, MoE)
}

// Collective describes the kernel of an algorithm, for all types.
func Collective(family, collective, algorithm string, channel framework.Kind) framework.KernelInfo {
	k := framework.KernelInfo{
		Collective: collective, Algorithm: algorithm, Symbol: prefix + collective + "_" + algorithm,
		Family: family, Types: Types(), Channels: []framework.Kind{channel}, MaxRanks: MaxRanks,
	}
	if computes(collective, algorithm) {
		k.Ops = Ops()
	}
	if collective == Inference {
		k.Types = InferenceTypes()
	}
	if collective == MoE {
		k.Types = MoETypes()
	}
	return k
}

// computes reports whether a kernel knows types and reductions; others move bytes.
func computes(collective, algorithm string) bool {
	switch collective {
	case "allreduce", "reducescatter", "reduce", Plan:
		return true
	}
	return collective == Steps && algorithm == "sum"
}

// Names takes the name of an entry point apart. It is not that of a collective's
// kernel if ok is false.
func Names(symbol string) (collective, algorithm string, ok bool) {
	rest, ours := strings.CutPrefix(symbol, prefix)
	collective, algorithm, cut := strings.Cut(rest, "_")
	return collective, algorithm, ours && cut && collective != "" && algorithm != ""
}

// ActorOver describes the actor, over the channels that a transport has.
func ActorOver(channels ...framework.Kind) framework.KernelInfo {
	return framework.KernelInfo{Symbol: actor.Symbol, Family: Actor, Types: []string{kernel.Float32.String()}, Channels: channels}
}

// Types names all element types, in the order of their numbers.
func Types() []string {
	names := make([]string, kernel.DataTypes)
	for i := range names {
		names[i] = kernel.DataType(i).String()
	}
	return names
}

// InferenceTypes names the element types of the kernels for inference.
func InferenceTypes() []string {
	return []string{kernel.Float32.String(), kernel.Float16.String(), kernel.BFloat16.String()}
}

// MoETypes are the names of the types of rows that experts take.
func MoETypes() []string { return []string{kernel.BFloat16.String()} }

// Ops names all reductions, in the order of their numbers.
func Ops() []string {
	names := make([]string, kernel.Ops)
	for i := range names {
		names[i] = kernel.Op(i).String()
	}
	return names
}
