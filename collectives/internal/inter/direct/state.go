package direct

import (
	"sync/atomic"
	"time"
	"unsafe"

	"github.com/mscclpp-go/mscclpp/collectives/internal/engine"
	"github.com/mscclpp-go/mscclpp/collectives/internal/inter/enqueue"
	"github.com/mscclpp-go/mscclpp/collectives/internal/inter/offers"
	"github.com/mscclpp-go/mscclpp/collectives/internal/inter/streamgate"
	"github.com/mscclpp-go/mscclpp/collectives/internal/kernelargs"
	"github.com/mscclpp-go/mscclpp/framework/collective"
	"github.com/mscclpp-go/mscclpp/framework/comm"
	"github.com/mscclpp-go/mscclpp/framework/device"
	"github.com/mscclpp-go/mscclpp/framework/kernel"
)

// call is one call that is being enqueued.
type call struct {
	*enqueue.Enqueued
	d *Engine
}

// exchangeBlocks is the most that exchange with. The kernels inside a host, which may
// run at the same time and wait for each other, leave that many multiprocessors alone:
// else both kinds could wait for room that the other takes on another GPU.
const exchangeBlocks = 8

// exchangeBlockBytes is how much there has to be for each block to be worth it.
const exchangeBlockBytes = 32 << 10

// sumBlocks fill the memory's bandwidth beside what else runs, and threadsOfBlock is the size of a block, if a kernel
// takes as many.
const (
	sumBlocks      = 64
	threadsOfBlock = 512
)

// Engine performs collectives over hosts in which the host takes no part: kernels drive port
// channels, and adapters of the network reach memory of the GPU. All that it counts is
// in memory of the device, so its calls can be captured. It exists where all hosts have
// as many ranks, and the transports between counterparts take memory of the device of
// every rank. Rank i of each host is a counterpart of rank i of all others.
type Engine struct {
	offers.List
	queue    *enqueue.Queue
	exchange *engine.Kernel
	sum      *engine.Kernel
	carries  atomic.Bool // calls: it was made
	delivers atomic.Bool // messages as well

	slots     *comm.Memory  // that adapters reach: kernels/exchange_args.h
	private   device.Memory // state, handles, and what is for the hosts and what they gave, in two halves each
	mine      uintptr       // the first half of what is for the hosts
	theirs    uintptr       // and of what they gave
	stride    uint64        // from what is of one host to what is of the next
	words     streamgate.Mapped
	note      *kernelargs.ExchangeNote
	channels  []*comm.PortChannel // by host
	exchanges [2]exchanges        // calls, and those that are captured: a stream may be in a capture until that ends
	args      kernelargs.ExchangeArgs
	sums      kernelargs.StepArgs
	loaded    [collective.Kinds]bool // kernels inside
	blocks    uint32                 // of one launch that sums
	sendrecv  *sendrecv
	end       chan struct{} // ends the watch
	ended     chan struct{} // nil: it was not begun
}

// exchanges is for what goes on beside the kernels inside.
type exchanges struct {
	stream device.Stream
	marks  [3]device.Mark
}

// sendrecv is the path of messages between hosts on which the host has no part: as direct is for
// collectives, and only where that is. Each rank has channels to all ranks of other hosts.
// Messages between ranks of one host go inside, at the same time.
type sendrecv struct {
	direct   *Engine
	kernel   *engine.Kernel
	slots    *comm.Memory  // that adapters reach: kernels/exchange_args.h
	private  device.Memory // state, what was sent and received by rank, and handles
	words    streamgate.Mapped
	note     *kernelargs.SendRecvNote
	departed []uint32            // by rank: not 0: it is not there to get a signal
	channels []*comm.PortChannel // by rank, for pieces; then by rank, for credits
	lists    engine.Lists
	args     kernelargs.SendRecvArgs
	waits    [kernelargs.SendRecvBlocks]wait // as the watch saw them last
}

// wait is when a wait of a block was seen first. Ranks that are waited for are named in
// turn in its word.
type wait struct {
	word  uint64
	since time.Time
}

// handOver copies handles of channels to memory of the device, through words of the host.
func (d *Engine) handOver(channels []*comm.PortChannel, words streamgate.Mapped, behind uint64, to uintptr) error {
	staged := device.Bytes(words.Host)[behind:]
	size := int(unsafe.Sizeof(kernel.PortChannelHandle{}))
	for i, ch := range channels {
		if ch == nil { // to the own host
			continue
		}
		handle, err := ch.AppendBinary(nil)
		if err != nil {
			return err
		}
		copy(staged[i*size:], handle)
	}
	s := d.exchanges[0].stream
	if err := d.queue.Device.Copy(s, to, words.Device.Addr()+uintptr(behind), uint64(len(channels)*size)); err != nil {
		return err
	}
	return d.queue.Device.Sync(s)
}
