package kfd

import (
	"github.com/mscclpp-go/mscclpp/framework/topo"
)

// Variables that hide GPUs and change their order. ROCR_VISIBLE_DEVICES filters first. Then one of the others counts,
// with numbers of what was left: the first that is not empty.
var (
	first = "ROCR_VISIBLE_DEVICES"
	then  = []string{"HIP_VISIBLE_DEVICES", "CUDA_VISIBLE_DEVICES", "GPU_DEVICE_ORDINAL"}
)

// Visible lists the GPUs as a HIP program with this environment numbers them. Their numbers remain those of the machine.
// The reasons say which variables hide something, for people.
func Visible(gpus []topo.GPU, lookup func(string) (string, bool)) (visible []topo.GPU, reasons []string) {
	filter := func(name, list string) {
		before := len(gpus)
		gpus = listed(gpus, list)
		if len(gpus) < before {
			reasons = append(reasons, name+"="+list)
		}
	}
	if list, set := lookup(first); set {
		filter(first, list)
	}
	for _, name := range then {
		if list, _ := lookup(name); list != "" {
			filter(name, list)
			break
		}
	}
	return gpus, reasons
}

// listed picks GPUs by number, or by UUID as far as that is unique: up to the first word that names none. One that is
// named again does not come again.
func listed(gpus []topo.GPU, list string) (picked []topo.GPU) {
	ids := make([][]string, len(gpus))
	for i, g := range gpus {
		ids[i] = []string{g.UUID}
	}
	places, _ := topo.Listed(list, ids)
	taken := map[int]bool{}
	for _, at := range places {
		if !taken[at] {
			picked = append(picked, gpus[at])
		}
		taken[at] = true
	}
	return picked
}
