package topo

import (
	"slices"
	"strconv"
	"strings"
)

// Visible lists the GPUs as a CUDA program with this environment numbers them:
// CUDA_VISIBLE_DEVICES leaves out and reorders. The numbers in its answer are those
// of the machine. Where GPUs of several models are mixed, CUDA may put the fastest
// first unless CUDA_DEVICE_ORDER is PCI_BUS_ID; who knows the address of a device
// better goes by that.
func Visible(gpus []GPU, lookup func(string) (string, bool)) []GPU {
	list, set := lookup("CUDA_VISIBLE_DEVICES")
	if !set {
		return gpus
	}
	var out []GPU
	for word := range strings.SplitSeq(list, ",") {
		g, ok := named(gpus, strings.TrimSpace(word))
		if !ok {
			break // as CUDA does: what follows a name that means nothing is not seen
		}
		if slices.ContainsFunc(out, func(o GPU) bool { return o.Device == g.Device }) {
			if g.MIG != nil {
				break // another part: CUDA shows a process one
			}
			return nil // as CUDA does: a list that names a GPU twice shows none
		}
		out = append(out, g)
	}
	return out
}

// named finds a GPU by number, or by the beginning of its UUID, which has to be
// unique. A part of a GPU counts as that GPU.
func named(gpus []GPU, name string) (GPU, bool) {
	if n, err := strconv.Atoi(name); err == nil {
		if n < 0 || n >= len(gpus) {
			return GPU{}, false
		}
		return gpus[n], true
	}
	if name == "" {
		return GPU{}, false
	}
	var found []GPU
	for _, g := range gpus {
		ids := []string{g.UUID}
		if g.MIG != nil {
			for _, p := range g.MIG.Parts {
				ids = append(ids, p.UUID)
			}
		}
		for _, id := range ids {
			if strings.HasPrefix(id, name) {
				found = append(found, g)
				break
			}
		}
	}
	if len(found) != 1 {
		return GPU{}, false
	}
	return found[0], true
}
