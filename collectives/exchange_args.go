package collectives

import (
	_ "embed"
	"sync"

	"github.com/mscclpp-go/mscclpp/framework/kernel"
)

//go:embed kernels/exchange_args.h
var exchangeHeader string

// exchangeLayout is argumentsLayout of the kernels between hosts.
var exchangeLayout = sync.OnceValue(func() string { return kernel.Layout(argumentsHeader, exchangeHeader) })

// What follows is the twin of kernels/exchange_args.h. A test compares sizes and offsets.

const (
	exchangeHead       = 64  // bytes in front of the data in a slot
	exchangeStateBytes = 64  // of the device
	exchangeNoteBytes  = 128 // of the host

	mailSlots      = 8
	mailPeers      = 64 // on other hosts, at most
	mailBlocks     = 8
	mailHead       = 64 // bytes in front of the data in a slot
	mailStateBytes = 128
	mailWayBytes   = 32 // for each rank
	mailNoteBytes  = 128
)

// exchangeNote is what a kernel lets the host know.
type exchangeNote struct {
	Begun  uint64
	Ended  uint64
	Found  uint32
	Host   uint32
	Theirs [4]uint64
	Ours   [4]uint64
	_      [40]byte
}

type exchangeArgs struct {
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
	Signature signature
}

// mailNote is what the kernel for messages lets the host know.
type mailNote struct {
	Waits    [mailBlocks]uint64 // of each block: 0, or which wait it is in and, in the low 16 bits, 1 + a rank that it waits for
	Found    uint32
	Peer     uint32
	Sent     uint64
	Expected uint64
	_        [40]byte
}

type mailArgs struct {
	Control   uintptr
	Inside    uintptr // 0: one rank on each host
	State     uintptr
	Ways      uintptr
	Note      uintptr
	Parted    uintptr
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
	Signature signature
	List      [maxTransfers]transfer
}
