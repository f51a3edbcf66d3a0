package moe

import (
	"fmt"
	"sync"

	"github.com/mscclpp-go/mscclpp/framework"
	"github.com/mscclpp-go/mscclpp/framework/comm"
	"github.com/mscclpp-go/mscclpp/framework/device"
	"github.com/mscclpp-go/mscclpp/framework/device/host"
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

	running ownkernel.Launching

	mu     sync.Mutex
	code   [2]ownkernel.Kernel
	memory *ownmemory.Memory
	net    *network // nil: the ranks reach each other\'s memory
	twin   *twin    // nil: calls are launches on the rank's device
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
	if b.net != nil || b.twin != nil {
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

// network joins ranks that do not reach each other's memory. The kernels run on the host, and write into a mirror of the memory of each rank.
// Puts of a port channel copy the part that is for the rank to the same place of its memory, with a signal behind the last one. A receive
// waits for the signals of all ranks, and acknowledges them by signals of a second channel. All ranks send, and
// receive, in the same order: so signals need no names.
type network struct {
	peers    []link // by rank
	sends    uint64 // of both kinds
	receives uint64
}

type link struct {
	mirror      []byte // of which the pages are in memory that are written to
	memory      *comm.Memory
	data, acks  *comm.PortChannel
	came, acked uint64 // signals that were waited for
}

// twin carries out the calls of a rank on a GPU on the host, where ranks on GPUs do not reach each other's memory: it waits for the stream, copies
// what a call reads, and copies what it has written back.
type twin struct {
	device copier
	host   *host.Device
	comm   *comm.Communicator
	buffer *Buffer
	stages [2][2]stage // by kind, and by ticket % 2: a receive has the memory of its send
}

// copier is a device whose memory the host reads and writes by copies.
type copier interface {
	device.Engine
	ReadAt(data []byte, addr uintptr) error
	WriteAt(data []byte, addr uintptr) error
}

// stage is memory of the host that has a part for each buffer of a call. Pages that are not touched take no memory.
type stage struct {
	room []byte
	used int
}

// interrupt ends a call in progress.
func (b *Buffer) interrupt() error {
	err := fmt.Errorf("%w: rank %d closed a buffer while a call of it ran", framework.ErrClosed, b.comm.Rank())
	if b.twin != nil {
		b.twin.comm.Abort(err)
	}
	b.comm.Abort(err)
	return err
}
