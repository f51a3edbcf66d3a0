package schema

var opKeys = keys{"!name", "src_buff", "dst_buff", "channel_ids", "channel_type", "reduce_op", "tbg_info", "barrier_id",
	"num_threadblocks", "semaphore_ids", "iter_context", "ops", "buffer_type", "buffer_offset", "size", "dst_chunk"}

// Bits of opKeys.
const (
	hasSrc = 1 << (iota + 1)
	hasDst
	hasChannels
	hasType
	hasReduce
	hasGroup
	hasBarrier
	hasBlocks
	hasSemaphores
	hasIter
	hasOps
	hasBuffer
	hasOffset
	hasSize
	hasChunk
)

// fields returns the fields that an operation needs, and those that it may have.
func (o *Op) fields() (need, may uint64) {
	switch {
	case o.Name == Barrier:
		need = hasBarrier | hasBlocks
	case o.Name.signals():
		need = hasChannels | hasType
	case o.Name == SemAcquire || o.Name == SemRelease:
		need = hasSemaphores
	case o.Name == Pipeline:
		need = hasIter | hasOps
	case o.Name == GroupReduce:
		need = hasBuffer | hasOffset | hasSize | hasChunk | hasChannels | hasType
		may = hasReduce | hasGroup
	case o.Name.Data():
		need = hasSrc | hasDst
		may = hasChannels | hasType | hasGroup
		if o.Name.Reduces() {
			may |= hasReduce
		}
	}
	return need, may
}

// set returns the fields that are set. A channel of no type is none.
func (o *Op) set() uint64 {
	var bits uint64
	for _, x := range [...]struct {
		bit uint64
		is  bool
	}{
		{hasSrc, len(o.Src) > 0}, {hasDst, len(o.Dst) > 0}, {hasChannels, len(o.ChannelIDs) > 0}, {hasType, o.Channel() != NoChannel},
		{hasReduce, o.Reduce != ""}, {hasGroup, o.Group != nil}, {hasBarrier, o.Barrier != 0}, {hasBlocks, o.Blocks != 0},
		{hasSemaphores, len(o.Semaphores) > 0}, {hasIter, o.Iter != nil}, {hasOps, len(o.Ops) > 0}, {hasBuffer, o.Load != nil},
	} {
		if x.is {
			bits |= x.bit
		}
	}
	return bits
}
