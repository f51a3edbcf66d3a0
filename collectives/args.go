package collectives

import "github.com/mscclpp-go/mscclpp/framework/kernel"

// What follows is the twin of kernels/args.h. A test compares sizes and offsets.

const (
	maxRanks     = 72
	maxLanes     = 128
	maxTransfers = 96
	nearMessages = 16
	maxBlocks    = 256
	nearRanks    = 8

	mailboxBytes = 512
	stateBytes   = 384 + maxLanes*(16+5*8*maxRanks+48)

	notesBytes = 128 // of the state, that the host reads

	// Within a mailbox, and within the state.
	signatureOffset   = 320
	signatureBytes    = 32 // two packets
	mismatchOffset    = 20
	elsewhereOffset   = 32
	unreachableOffset = 36
	reasonOffset      = 40
	sentOffset        = 48
	expectedOffset    = 56

	pullBytes = 512 << 10 // private memory behind the state

	transferBytes = 32 // of one message in memory
)

// Values of State.mismatch.
const (
	mismatchSignature = 1
	mismatchLength    = 0x10000
)

// Values of common.Check.
const (
	checkNever   = 0
	checkPublish = 1
	checkCompare = 2
)

// signature is what a launch is, as peers compare it.
type signature struct {
	Sequence   uint64
	Count      uint64
	Collective uint32
	Algorithm  uint32
	Type       uint32
	Op         uint32
	Root       uint32
	_          uint32
}

type common struct {
	Control    uintptr
	State      uintptr
	Notes      uintptr
	Rank       uint32
	Ranks      uint32
	Lanes      uint32
	Check      uint32
	Packets    uint64
	PacketHalf uint64
	Stages     uint64
	StageSlot  uint64
	Pipes      uint64
	PipeSlot   uint64
	StageSlots uint32
	PipeSlots  uint32
	Signature  signature
	Scratch    [maxRanks]uintptr
}

// kernelArgs is the argument of every kernel except that of messages.
type kernelArgs struct {
	common
	Input        uintptr
	Output       uintptr
	Count        uint64
	Chunk        uint64
	Type         uint32
	Op           uint32
	Root         uint32
	Element      uint32
	Scale        float64
	InputOffset  uint64
	OutputOffset uint64
	Memory       uint64
	Window       kernel.SwitchChannelHandle
	Inputs       [maxRanks]uintptr
	Outputs      [maxRanks]uintptr
	Processes    [maxRanks]uint64
}

// nearArgs is the argument of packet kernels for few ranks.
type nearArgs struct {
	Control   uintptr
	State     uintptr
	Notes     uintptr
	Rank      uint32
	Ranks     uint32
	Check     uint32
	Release   uint32
	Area      uint64
	Half      uint64
	Slot      uint64
	Input     uintptr
	Output    uintptr
	Count     uint64
	Op        uint32
	Element   uint32
	Scale     float64
	Signature signature
	Scratch   [nearRanks]uintptr
}

// stepArgs is the argument of the small kernels of copy algorithms.
type stepArgs struct {
	Control      uintptr
	State        uintptr
	Notes        uintptr
	Rank         uint32
	Ranks        uint32
	Tell         uint32
	Wait         uint32
	Lag          uint32
	Check        uint32
	OutputOffset uint64
	Memory       uint64
	Input        uintptr
	Output       uintptr
	Inputs       uintptr
	Stride       uint64
	Count        uint64
	Op           uint32
	_            uint32
	Scale        float64
	Signature    signature
	Scratch      [nearRanks]uintptr
}

// Steps of copy algorithms.
const (
	stepOpen   = 1 << 0 // outputs may be written
	stepPushed = 1 << 1 // a piece lies in the peer's scratch
	stepTaken  = 1 << 2 // it was summed
	stepDone   = 1 << 3 // results lie in the peer's output
)

// transfer is one message of a group.
type transfer struct {
	Buffer  uintptr
	Bytes   uint64
	Peer    uint32
	Receive uint32
}

// linePipes says how pipes of lines are divided.
type linePipes struct {
	Offset uint64
	Lanes  uint32
	Active uint32
	Slots  uint32
	Groups uint32
}

// transferArgs is the argument of the kernels of messages.
type transferArgs struct {
	common
	Transfers   uint32
	Listed      uint32
	First       uint64
	Memory      uintptr
	Lines       linePipes
	LongBytes   uint64
	Beside      uint32 // bytes
	BesideSlots uint32
	List        [maxTransfers]transfer
	Theirs      [maxTransfers]uintptr
}

// nearTransferArgs is that of the kernel for few messages of few ranks.
type nearTransferArgs struct {
	Control   uintptr
	State     uintptr
	Notes     uintptr
	Rank      uint32
	Ranks     uint32
	Transfers uint32
	Release   uint32
	Signature signature
	Lines     linePipes
	Scratch   [nearRanks]uintptr
	List      [nearMessages]transfer
}
