package moe

import (
	"sync"
	"sync/atomic"

	"github.com/mscclpp-go/mscclpp/framework/comm"
	"github.com/mscclpp-go/mscclpp/internal/ownkernel"
	"github.com/mscclpp-go/mscclpp/internal/ownmemory"
	"github.com/mscclpp-go/mscclpp/internal/streamorder"
)

// Buffer is memory that the ranks have opened to each other, and the kernels. Calls are carried out one at a time, in the same
// order on all ranks. It ends with the communicator.
type Buffer struct {
	comm    *comm.Communicator
	options Options
	local   int // experts of a rank
	host    bool
	number  uint32 // in reports of waits
	unlist  func()

	running atomic.Bool

	mu     sync.Mutex
	code   [2]ownkernel.Kernel
	memory *ownmemory.Memory
	net    *network // nil: the ranks reach each other\'s memory
	args   moeArgs
	order  streamorder.Order
	used   bool
	issued [2]uint64
	recent [2][2]between // of each kind the last two calls, by ticket % 2
	closed bool
}

// between is a call of which the send was made, and the receive perhaps not yet. The kernels count calls, and would wait for what never
// comes where the two do not fit.
type between struct {
	ticket   uint64
	sizes    sizes
	open     bool // the receive is still to come
	captured bool // into a graph, which may be thrown away

	order, received uint64 // over a network: its number among sends, and among receives
}

// Bytes is how much memory the buffer takes on this rank at most.
func (b *Buffer) Bytes() uint64 {
	if b.net != nil {
		return b.options.NetworkBytes(b.comm.Size())
	}
	return b.options.Bytes(b.comm.Size())
}

// HandleBytes is how much memory the records of a dispatch take, which combine needs.
func (b *Buffer) HandleBytes() uint64 { return b.options.HandleBytes(b.comm.Size()) }

// slots are the rows that an expert has room for.
func (b *Buffer) slots(wanted int) int {
	if wanted == 0 {
		return b.comm.Size() * b.options.Tokens
	}
	return wanted
}
