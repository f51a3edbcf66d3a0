package moe

import (
	"fmt"
	"sync"

	"github.com/mscclpp-go/mscclpp/framework/kernel"
	"github.com/mscclpp-go/mscclpp/inference/moe/kernels"
)

// The types below mirror those of inference/moe/kernels/moe_args.h. A test compares sizes and offsets.

// layout is the layout of the argument that this package describes. Images that were built for another one are refused.
var layout = sync.OnceValue(func() string { return kernel.Layout(kernels.Arguments) })

const (
	sendPhase uint32 = 1 << iota
	receivePhase
	index64
	castRows
	roundScale
	bytesSent
	exponents
	weighted
)

// troubles of a launch.
const noExpert, overflow = 1, 2

// The channels of reports, and the kinds of launches.
const (
	channelRows, channelNotices, channelCounts, channelAcks, channelWeights = 0, 1, 2, 3, 4
	channelApart, channelExpert, channelFull                                = 0xfffffffe, 0xfffffffd, 0xfe000000

	dispatching, combining = 0, 1
)

// Sizes of what ranks write to each other, and of records, which are for combine.
const (
	mostTopK                                     = 16
	expertsOfBlock                               = 8 // of which a block counts the rows
	noticeBytes, ackBytes, countBytes            = 8, 8, 8
	headerBytes, weightBytes, recordBytes uint64 = 16 * (mostTopK + 1), 8 * mostTopK, 16 * (mostTopK + 1)
)

type moeState struct {
	Sent    [2]uint64
	_       [2][2]uint64 // received
	Left    uint32
	Apart   uint32
	Trouble uint32
	Place   uint32
	Seen    uint32
	_       [15]uint32
	_       [2][copies]moeKnown
}

// moeKnown has been written by earlier launches: the blocks of a launch read copies of it.
type moeKnown struct {
	_ [3]uint64 // sent, acked
	_ uint64    // left
	_ uint32    // started
	_ [23]uint32
}

const copies = 16

type moeArgs struct {
	moeMemory
	moeCall
}

// moeMemory is the same in all launches.
type moeMemory struct {
	Control uintptr
	State   uintptr
	Peers   uintptr
	Room    uintptr
	places
	Stride uint64
}

// places are where the parts of the memory begin that the ranks open to each other.
type places struct {
	Notices  uint64
	Acks     uint64
	Counts   uint64
	Headers  uint64
	Weights  uint64
	Rows     uint64
	Partials uint64
}

// moeCall is that of one launch.
type moeCall struct {
	moeBuffers
	moeSizes
}

type moeBuffers struct {
	Input        uintptr
	Scales       uintptr
	Indices      uintptr
	Factors      uintptr
	Output       uintptr
	OutputScales uintptr
	Sources      uintptr
	Ranges       uintptr
	Received     uintptr
	Statistics   uintptr
	RowsOfTokens uintptr
	Behind       uint64
}

type moeSizes struct {
	Inverse    uint32
	Signature  uint32
	Tokens     uint32
	MostTokens uint32
	Hidden     uint32
	TopK       uint32
	Experts    uint32
	Local      uint32
	MostLocal  uint32
	Slots      uint32
	RowScales  uint32
	Rank       uint32
	Ranks      uint32
	Kernel     uint32
	Flags      uint32
	HeadersBy  uint32
	Counters   uint32
	Senders    uint32
	Collectors uint32
	_          uint32
}

// sizes are what the phases of a call have in common.
type sizes struct{ Tokens, Hidden, TopK, RowScales, Flags uint32 }

func (x sizes) String() string {
	return fmt.Sprintf("%d tokens of %d elements, %d experts for a token, %d scales for a row, format and indices %#x", x.Tokens, x.Hidden, x.TopK, x.RowScales, x.Flags)
}

func (a *moeArgs) sizes() sizes {
	return sizes{a.Tokens, a.Hidden, a.TopK, a.RowScales, a.Flags &^ (sendPhase | receivePhase)}
}
