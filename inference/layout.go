package inference

import (
	"sync"

	"github.com/mscclpp-go/mscclpp/framework/kernel"
	"github.com/mscclpp-go/mscclpp/inference/kernels"
)

// The types below mirror those of inference/kernels/norm_args.h. A test compares sizes and offsets.

// layout is the layout of the argument that this package describes. Images that were built for another one are refused.
var layout = sync.OnceValue(func() string { return kernel.Layout(kernels.Arguments) })

const (
	twoShot uint32 = 1 << iota
	layerNorm
	noNorm
	ownResidual
	ownOutput
	ownInput
	pairs
	quads
	early // of tests: a launch that lets the next one begin before those before it have ended takes longer, as the next one's blocks are in its way
)

// mostBlocks are those with rows, of a launch on a GPU.
const mostBlocks = 1023

// noticeBytes are those of a notice.
const noticeBytes = 8

// apart is the channel of a report that says: the peer has begun another call.
const apart = 0xfffffffe

type normState struct {
	Launches uint64
	Left     uint32
	Apart    uint32
	Begun    uint64
	_        [10]uint32
}

type normArgs struct {
	normMemory
	normCall
}

// normMemory is the same in all launches.
type normMemory struct {
	Control uintptr
	State   uintptr
	Peers   uintptr
	Room    uintptr
}

type normCall struct {
	Input       uintptr
	Residual    uintptr
	Weight      uintptr
	Bias        uintptr
	Output      uintptr
	ResidualOut uintptr
	Scales      uintptr
	Scale       uintptr
	Notices     uint64
	Half        uint64
	Signature   uint32
	Tokens      uint32
	Hidden      uint32
	Rank        uint32
	Ranks       uint32
	Kernel      uint32
	Flags       uint32
	Quantized   uint32
	Epsilon     float32
	Share       uint32
	First       uint32
	Count       uint32
}
