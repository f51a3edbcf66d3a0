package kernelargs

import "github.com/mscclpp-go/mscclpp/framework/kernel"

// The types below mirror those of kernels/args.h. A test compares sizes and offsets.

// Limits and sizes.
const (
	MaxRanks     = 72
	MaxLanes     = 128
	MaxTransfers = 96
	LLTransfers  = 16
	MaxBlocks    = 256
	LLRanks      = 8

	MailboxBytes = 512
	StateBytes   = 384 + MaxLanes*(16+5*8*MaxRanks+48)

	NotesBytes = 128 // of the state, that the host reads

	// Within a mailbox, and within the state.
	SignatureOffset   = 320
	SignatureBytes    = 32 // two packets
	SequenceOffset    = 8
	MismatchOffset    = 20
	ElsewhereOffset   = 32
	UnreachableOffset = 36
	ReasonOffset      = 40
	SentOffset        = 48
	ExpectedOffset    = 56

	PullBytes = 512 << 10 // private memory behind the state

	TransferBytes = 32 // of one message in memory
)

// Values of State.mismatch.
const (
	MismatchSignature = 1
	MismatchLength    = 0x10000
)

// Values of Common.Check.
const (
	CheckNever   = 0
	CheckPublish = 1
	CheckCompare = 2
)

// Signature is what a launch is, as peers compare it.
type Signature struct {
	Sequence   uint64
	Count      uint64
	Collective uint32
	Algorithm  uint32
	Type       uint32
	Op         uint32
	Root       uint32
	_          uint32
}

// Common is what all large arguments begin with.
type Common struct {
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
	Signature  Signature
	Scratch    [MaxRanks]uintptr
}

// Args is the argument of every kernel except that of messages.
type Args struct {
	Common
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
	Inputs       [MaxRanks]uintptr
	Outputs      [MaxRanks]uintptr
	Processes    [MaxRanks]uint64
}

// LLArgs is the argument of packet kernels for few ranks.
type LLArgs struct {
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
	Signature Signature
	Scratch   [LLRanks]uintptr
}

// StepArgs is the argument of the small kernels of copy algorithms.
type StepArgs struct {
	Control      uintptr
	State        uintptr
	Notes        uintptr
	Rank         uint32
	Ranks        uint32
	Signal       uint32
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
	Signature    Signature
	Scratch      [LLRanks]uintptr
}

// Steps of copy algorithms.
const (
	StepOpen   = 1 << 0 // outputs may be written
	StepPushed = 1 << 1 // a piece lies in the peer's scratch
	StepTaken  = 1 << 2 // it was summed
	StepDone   = 1 << 3 // results lie in the peer's output
)

// Transfer is one message of a group.
type Transfer struct {
	Buffer  uintptr
	Bytes   uint64
	Peer    uint32
	Receive uint32
}

// Total is the bytes of all messages.
func Total(list []Transfer) (n uint64) {
	for i := range list {
		n += list[i].Bytes
	}
	return n
}

// LinePipes says how pipes of lines are divided.
type LinePipes struct {
	Offset uint64
	Lanes  uint32
	Active uint32
	Slots  uint32
	Groups uint32
}

// TransferArgs is the argument of the kernels of messages.
type TransferArgs struct {
	Common
	Transfers   uint32
	Listed      uint32
	First       uint64
	Memory      uintptr
	Lines       LinePipes
	LongBytes   uint64
	Beside      uint32 // bytes
	BesideSlots uint32
	List        [MaxTransfers]Transfer
	Theirs      [MaxTransfers]uintptr
}

// LLTransferArgs is that of the kernel for few messages of few ranks.
type LLTransferArgs struct {
	Control   uintptr
	State     uintptr
	Notes     uintptr
	Rank      uint32
	Ranks     uint32
	Transfers uint32
	Release   uint32
	Signature Signature
	Lines     LinePipes
	Scratch   [LLRanks]uintptr
	List      [LLTransfers]Transfer
}
