package exec

import (
	"crypto/sha256"
	"sync"
	"time"
	"unsafe"

	"github.com/mscclpp-go/mscclpp/framework/device"
	"github.com/mscclpp-go/mscclpp/framework/kernel"
	"github.com/mscclpp-go/mscclpp/internal/ownkernel"
	"github.com/mscclpp-go/mscclpp/internal/streamorder"
	"github.com/mscclpp-go/mscclpp/plan/schema"
)

// Packet is the format of packets, in bytes of one.
type Packet uint32

// The formats. LL16 is the default, as MSCCL++'s executor has it.
const (
	LL8  Packet = 8
	LL16 Packet = 16
)

// patience bounds what a call may take to set up memory and channels for its size.
const patience = 30 * time.Second

// Executor runs one plan on one communicator. Calls are carried out one at a time.
type Executor struct {
	setting
	sum     [sha256.Size]byte
	code    code
	host    bool
	largest share  // of this rank's blocks
	unlist  func() // takes the executor out of lists of the communicator

	totals  func() (map[*schema.Op]bool, error) // which reductions give results; computed when it is asked for
	divides bool                                // the tables know of them

	running ownkernel.Launching

	mu       sync.Mutex
	arenas   []*arena
	calls    uint64
	last     of            // the last call…
	signed   uint64        // …and its signature
	stream   device.Stream // of the last call
	spare    device.Memory // for buffers that have to be apart here
	place    placed        // of the last call
	prepared prepared      // the last call
	windows  []windows     // of buffers that are reached where they are
	closed   bool

	enqueued bool              // something was, on a stream
	captured bool              // calls are in graphs
	order    streamorder.Order // of calls on several streams
	kept     []func() error    // frees memory of calls in graphs
}

// Call is one execution. All ranks pass the same sizes, type, reduction and format.
type Call struct {
	Input, Output           unsafe.Pointer
	InputBytes, OutputBytes uint64
	Type                    kernel.DataType
	Op                      kernel.Op // of the plan's sums; its minima and maxima are what they say
	Packet                  Packet    // 0: LL16
	Stream                  device.Stream
	KeepInput               bool // the plan may not write the caller's input
}
