package topo

import (
	"slices"
	"strconv"
	"strings"
)

// Visible lists the GPUs as a CUDA program with this environment numbers them: CUDA_VISIBLE_DEVICES
// leaves out and reorders. The numbers in its answer are those of the machine. Where GPUs of
// several models are mixed, CUDA may put the fastest first unless CUDA_DEVICE_ORDER is PCI_BUS_ID;
// a caller that knows the address of a device better goes by that.
func Visible(gpus []GPU, lookup func(string) (string, bool)) []GPU {
	list, set := lookup("CUDA_VISIBLE_DEVICES")
	if !set {
		return gpus
	}
	ids := make([][]string, len(gpus))
	for i, g := range gpus {
		ids[i] = []string{g.UUID}
		if g.MIG != nil {
			for _, p := range g.MIG.Parts {
				ids[i] = append(ids[i], p.UUID)
			}
		}
	}
	var out []GPU
	taken := make([]bool, len(gpus))
	places, _ := Listed(list, ids)
	for _, at := range places {
		if taken[at] {
			if gpus[at].MIG != nil {
				break // another part: CUDA shows a process one
			}
			return nil // as CUDA does: a list that names a GPU twice shows none
		}
		taken[at] = true
		out = append(out, gpus[at])
	}
	return out
}

// Listed reads the value of CUDA_VISIBLE_DEVICES as CUDA does: numbers, and UUIDs or their
// beginnings, up to the first word that names no GPU or several. Ids are the UUIDs of each
// GPU and of its parts. It returns the places of the GPUs named, of which one may come
// again, and the word that ended the list, "" if none did.
func Listed(list string, ids [][]string) (places []int, end string) {
	for word := range strings.SplitSeq(list, ",") {
		word = strings.TrimSpace(word)
		at := named(ids, word)
		if at < 0 {
			return places, word
		}
		places = append(places, at)
	}
	return places, ""
}

// named returns the place of the GPU that a word names, or -1. UUIDs begin with GPU- or
// MIG-, and so does what is short for one.
func named(ids [][]string, word string) int {
	if n, err := strconv.Atoi(word); err == nil {
		if n < 0 || n >= len(ids) {
			return -1
		}
		return n
	}
	if !strings.HasPrefix(word, "GPU-") && !strings.HasPrefix(word, "MIG-") {
		return -1
	}
	found := -1
	for i, of := range ids {
		if slices.ContainsFunc(of, func(id string) bool { return strings.HasPrefix(id, word) }) {
			if found >= 0 {
				return -1
			}
			found = i
		}
	}
	return found
}
