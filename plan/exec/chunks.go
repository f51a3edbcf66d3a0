package exec

// The kernels of an image: one for all plans, and one for those in chunks alone, which has all that it needs in registers.
const (
	forAll    = "mscclpp_plan_execute"
	forChunks = "mscclpp_plan_execute_chunks"
)

// kernel is the one that executes the plan, the same on all ranks.
func (u *use) kernel() string {
	if u.chunks {
		return forChunks
	}
	return forAll
}

// chunksOnly reports whether the blocks of all ranks only move, reduce and signal, over memory and outside of pipelines, and their tables fit
// into the memory of a block.
func chunksOnly(all []*tables) bool {
	for _, t := range all {
		for i := range t.ops {
			switch o := &t.ops[i]; {
			case o.Flags&(overPort|inPipeline|loadsWindow|storesWindow) != 0:
				return false
			case o.Kind != opNop && o.Kind != opSignal && o.Kind != opWait && o.Kind != opMove && o.Kind != opReduce:
				return false
			}
		}
		for i := range t.blocks {
			if b := &t.blocks[i]; b.Count > roomOps || b.OperandCount > roomOperands || b.IDCount > roomIDs {
				return false
			}
		}
	}
	return len(all) <= roomRanks
}
