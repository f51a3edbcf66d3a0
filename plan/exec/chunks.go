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

// leastThreads of a block execute a plan in chunks.
const leastThreads = 128

// share is how much of a chunk a block does of an operand: size chunks in slices parts.
type share struct{ size, slices uint64 }

// largest is the share of a rank that has most bytes.
func (t *tables) largest() share {
	most := share{0, 1}
	for i := range t.ops {
		o := &t.ops[i]
		for k := range o.Sources + o.Destinations {
			x := share{uint64(t.operands[o.Operands+uint32(k)].Size), uint64(max(o.Slices, 1))}
			if x.size*most.slices > most.size*x.slices {
				most = x
			}
		}
	}
	return most
}

// threads is how many of most threads of a block have something to do in a call with chunks of so many bytes, each a word of 16 bytes. The others would decode
// operations and join, which takes the time of those that have.
func (x share) threads(most uint32, chunk uint64) uint32 {
	const step = 64 // no chip runs more threads as one
	words := (x.size*chunk/x.slices + 15) / 16
	return uint32(min(uint64(most), max(leastThreads, (words+step-1)/step*step)))
}
