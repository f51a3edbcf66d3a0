package exec

import (
	"sync"

	"github.com/mscclpp-go/mscclpp/framework/kernel"
	"github.com/mscclpp-go/mscclpp/plan/kernels"
)

// The types below mirror those of plan/kernels/plan_args.h. A test compares sizes and offsets.

// layout is the layout of the argument that this package describes. Images that were built for another one are refused.
var layout = sync.OnceValue(func() string { return kernel.Layout(kernels.Arguments) })

// The kinds of operations.
const (
	opNop uint16 = iota
	opBarrier
	opSignal
	opWait
	opFlush
	opAcquire
	opRelease
	opPipeline
	opMove
	opReduce
	opPack
	opUnpack
	opForward
	opReducePackets
	opAwait
	opPut
)

// Flags of operations.
const (
	overPort uint16 = 1 << iota
	relaxed
	thenSignal
	ofPackets
	inPipeline
	met
	total
	loadsWindow
	storesWindow
	aliased
)

// Of the tables of a block GPUs keep so many entries in shared memory.
const (
	roomOps      = 64
	roomOperands = 128
	roomIDs      = 64
	roomRanks    = 32
)

type op struct {
	Kind, Flags           uint16
	Sources, Destinations uint16
	Operands              uint32
	IDs                   uint32
	IDCount               uint16
	Slice, Slices         uint16
	Reduction             uint16
	Blocks                uint32
	Inner                 uint32
	Chunks                uint32
	Number                uint32
	Unit                  uint64
	From, Bytes           uint64 // the kernel's own
}

type operand struct {
	Base                      uint64
	Slot, Index, Size, Packet uint32
}

type slot struct{ Address, Offset uint64 }

type window struct {
	Input, Output uint64
	Mate          uint32
	_             uint32
}

type block struct{ First, Count, Operands, OperandCount, IDs, IDCount, Met uint32 }

// Sizes of what is in memory of the device alone.
const (
	stateBytes   = 64
	cursorBytes  = 64
	meetingBytes = 8
	countsBytes  = 16 // of a memory channel
	noticeBytes  = 192
)

// state is the beginning of that memory.
type state struct {
	Launches uint64
	Unused   uint32
	Left     uint32
	Apart    uint32
	_        [11]uint32
}

// args is the argument of the kernel: tables, and a call.
type args struct {
	tableArgs
	callArgs
	shapeArgs
}

type tableArgs struct {
	Control    uintptr
	State      uintptr
	Cursors    uintptr
	Meetings   uintptr
	Semaphores uintptr
	Blocks     uintptr
	Ops        uintptr
	Operands   uintptr
	IDs        uintptr
	Slots      uintptr
	Memory     uintptr
	Ports      uintptr
	Notice     uintptr
	Peers      uintptr
}

type callArgs struct {
	Windows      uintptr
	Resolved     uintptr
	Input        uintptr
	Output       uintptr
	InputOffset  uint64
	OutputOffset uint64
	Chunk        uint64
	ScratchChunk uint64
	Half         uint64
	Signature    uint64
}

type shapeArgs struct {
	BlockCount uint32
	Alignment  uint32
	Rank       uint32
	Ranks      uint32
	Packet     uint32
	Op         uint32
	Kernel     uint32
	_          uint32
}
