package simulate

import "fmt"

// Program describes this project's collectives over hosts, as far as it affects which
// algorithm they choose by themselves. A test of package collectives compares the two.
type Program struct {
	Scratch int64 // bytes of a rank that data passes through; 0: the default of ranks on GPUs
	Direct  bool  // kernels drive adapters that reach memory of the GPUs, on hosts with as many ranks each
}

const (
	programScratch = 256 << 20
	programSmall   = 32 << 10 // of the larger buffer: where every rank sends all that its host has
	programShare   = 16 << 10 // of a rank: where an exchange of kernels begins to go in two steps
	programSlots   = 8        // for each other rank
	leastSlot      = 4 << 10
	mostSlot       = 1 << 20
)

// Slot returns the largest size of a message between two of that many ranks.
func (p Program) Slot(ranks int) int64 {
	scratch := p.Scratch
	if scratch == 0 {
		scratch = programScratch
	}
	const line = 64
	return min(mostSlot, max(leastSlot, scratch/int64(programSlots*ranks)/line*line))
}

// Chooses returns the model of the algorithm that the program uses for a call whose
// larger buffer has that many bytes, of a type whose sums can be added up. Within one
// host, where measured tables choose kernels, it is an error.
func (p Program) Chooses(c Collective, on Cluster, bytes int64) (Algorithm, error) {
	if on.hosts < 2 {
		return 0, fmt.Errorf("algorithm of the program over %d hosts: expected 2 or more, on one it goes by measured tables: %w", on.hosts, ErrInvalid)
	}
	most := 0
	for _, k := range on.kinds() {
		most = max(most, k.ranks)
	}
	small := min(programSmall, p.Slot(on.Ranks()))
	switch {
	case p.Direct && on.Even() && (c == AllReduce || c == AllGather || c == ReduceScatter):
		if bytes < programShare*int64(most) {
			return Small, nil
		}
		return LargeDirect, nil
	case most == 1 && c == Broadcast: // ranks pass on what the root gives them, as hosts do
		return LargeDirect, nil
	case most == 1: // there is one level
		return FlatDirect, nil
	case c == AllToAll:
		if bytes <= small*int64(on.Ranks())/int64(most) {
			return Small, nil
		}
		return FlatDirect, nil
	case bytes <= small:
		return SmallWhole, nil
	}
	return LargeDirect, nil
}

// InProgram reports whether the program would choose the algorithm, or performs it when
// it is named.
func InProgram(c Collective, on Cluster, bytes int64, a Algorithm) bool {
	switch {
	case a == FlatDirect && c != Broadcast, a == LargeDirect && c != AllToAll:
		return true
	}
	for _, p := range []Program{{}, {Direct: true}} {
		if chosen, err := p.Chooses(c, on, bytes); err == nil && chosen == a {
			return true
		}
	}
	return false
}
