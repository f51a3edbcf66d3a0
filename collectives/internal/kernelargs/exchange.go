package kernelargs

// The types below mirror those of kernels/exchange_args.h. A test compares sizes and offsets.

// Sizes.
const (
	ExchangeHead       = 64  // bytes in front of the data in a slot
	ExchangeStateBytes = 64  // of the device
	ExchangeNoteBytes  = 128 // of the host

	SendRecvSlots      = 8
	SendRecvPeers      = 64 // on other hosts, at most
	SendRecvBlocks     = 8
	SendRecvHead       = 64 // bytes in front of the data in a slot
	SendRecvStateBytes = 128
	SendRecvPeerBytes  = 32 // for each rank
	SendRecvNoteBytes  = 128
)

// ExchangeNote is what a kernel lets the host know.
type ExchangeNote struct {
	Begun  uint64
	Ended  uint64
	Found  uint32
	Host   uint32
	Theirs [4]uint64
	Ours   [4]uint64
	_      [40]byte
}

// ExchangeArgs is the argument of the kernel that exchanges between hosts.
type ExchangeArgs struct {
	Control   uintptr
	Inside    uintptr // 0: one rank on each host
	State     uintptr
	Note      uintptr
	Ports     uintptr
	Slots     uintptr
	Slot      uint64
	Input     uintptr
	Apart     uint64
	Output    uintptr
	Stride    uint64
	Bytes     uint64
	Host      uint32
	Hosts     uint32
	Giver     uint32 // 1 + the host that alone gives; 0: all do
	Taker     uint32 // and gets
	Signature Signature
}

// SendRecvNote is what the kernel for messages lets the host know.
type SendRecvNote struct {
	Waits    [SendRecvBlocks]uint64 // of each block: 0, or which wait it is in and, in the low 16 bits, 1 + a rank that it waits for
	Found    uint32
	Peer     uint32
	Sent     uint64
	Expected uint64
	_        [40]byte
}

// SendRecvArgs is that of the kernel for messages between hosts.
type SendRecvArgs struct {
	Control   uintptr
	Inside    uintptr // 0: one rank on each host
	State     uintptr
	Peers     uintptr
	Note      uintptr
	Departed  uintptr
	Data      uintptr
	Credit    uintptr
	Slots     uintptr
	Slot      uint64
	Memory    uintptr // 0: List is the group
	First     uint64
	Listed    uint32
	Transfers uint32
	Rank      uint32
	Ranks     uint32
	Signature Signature
	List      [MaxTransfers]Transfer
}
