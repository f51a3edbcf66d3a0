// Package porting is port channels: the rings that triggers are pushed to, the proxies, copy
// engines and sockets that take them from there, and the return of signals to waiting ranks.
package porting

import (
	"context"
	"log/slog"
	"sync"
	"time"

	"github.com/mscclpp-go/mscclpp/framework"
	"github.com/mscclpp-go/mscclpp/framework/comm/internal/counters"
	"github.com/mscclpp-go/mscclpp/framework/comm/internal/life"
	"github.com/mscclpp-go/mscclpp/framework/comm/internal/memory"
	"github.com/mscclpp-go/mscclpp/framework/comm/internal/negotiate"
	"github.com/mscclpp-go/mscclpp/framework/comm/internal/transport"
	"github.com/mscclpp-go/mscclpp/framework/device"
	"github.com/mscclpp-go/mscclpp/framework/kernel"
	"github.com/mscclpp-go/mscclpp/framework/observe"
	"github.com/mscclpp-go/mscclpp/framework/proxy"
	"github.com/mscclpp-go/mscclpp/framework/ring"
	"github.com/mscclpp-go/mscclpp/framework/stream"
)

// OpChannel is the name of the call that builds a channel.
const OpChannel = "port channel"

// Ports is what all port channels of a communicator share.
type Ports struct {
	Log      *slog.Logger
	Boot     framework.Bootstrap
	Life     *life.Life
	Counters *counters.Counters
	Links    *negotiate.Negotiator
	Abort    func(cause error) // of the communicator, by a proxy that has ended
	Flows    *observe.Flows    // gets what the host sends and waits for; nil: it goes nowhere

	rings    sync.Mutex // held while numbers of triggers are given out
	mu       sync.Mutex // held while services change
	services map[*transport.Transport][]*service

	links      map[*negotiate.Link]*link // grows in calls of set-up
	departures departures
	goodbyes   goodbyes
	forwarding forwarding     // made in calls of set-up
	engine     *stream.Engine // of links whose sockets this rank drives; made in calls of set-up
}

// service is one ring and the proxy that drains it, for port channels of a
// communicator over one transport. The numbers that triggers cite are given out
// once: when they run out the next channel gets another ring, and a ring whose
// channels are all closed is closed too.
type service struct {
	ring    *ring.Ring
	from    producer
	proxy   framework.Proxy // of the transport, or
	copier  *proxy.Copier   // the rank's own, or
	queue   *stream.Queue   // that for sockets that the rank drives
	records *observe.Loop   // of the copier
	view    deviceView
	stop    context.CancelFunc
	ended   chan struct{} // closed when the proxy has ended, or the wait for its end is over
	left    error         // with ended: the proxy has ended with a peer that has left the job in order
	once    sync.Once

	memories   uint32 // numbers used so far; they change under Ports.rings
	semaphores uint32

	mu       sync.Mutex
	channels int  // open
	full     bool // no number is left
}

// producer says which side pushes to a ring. Kernels of a device count their pushes in memory of
// the device, and the host in the ring, so they cannot share one; where kernels run on the host
// they do.
type producer bool

const (
	fromHost    producer = false
	fromKernels producer = true
)

// Limits of the trigger format.
const (
	ringSlots      = 512
	memorySlots    = 1 << 9
	semaphoreSlots = min(1<<10, kernel.RingFlushWords)
)

// deviceView is a ring as a device sees it. It is empty where nobody there has to.
type deviceView struct {
	memory   device.Memory
	counters device.Memory
}

// binding is what the triggers of one channel cite: as the transport's proxy
// knows it, or, where lane is set, as the rank's own does.
type binding struct {
	src, dst  framework.MemoryBinding
	semaphore framework.SemaphoreBinding

	lane    *proxy.Lane
	own     *memory.Memory
	peer    negotiate.Remote
	counter *proxy.Counter

	stream *streamBinding
}

type slots struct{ src, dst, semaphore uint32 }

// end is where triggers of a channel are pushed.
type end struct {
	service *service
	slots   slots
}

// stage is memory in front of a transport that cannot reach what puts read.
type stage struct {
	memory *memory.Memory
	part   uint64 // bytes of each

	turn  chan struct{} // full while a put is copied and pushed: puts fill parts one behind the other
	now   int           // the part that is filled
	used  uint64        // bytes of it
	after [stageParts]uint64
}

// noMemory is a number that is never bound. A kernel does not stage, so in the handle of a
// channel with a stage it stands for the source: a put with it ends the proxy, with an
// error, where the number of the stage would send other bytes than were meant.
const noMemory = memorySlots - 1

// streamLink is a link whose sockets the rank drives.
type streamLink struct {
	*stream.Link
	attached framework.ID // with the transport
	counters uint32       // the peer's handle of its counters
}

// streamBinding is what a channel's triggers cite there.
type streamBinding struct {
	link   *streamLink
	target uint32 // the peer's handle of its memory
	bytes  uint64
	offset uint64 // of the peer's counter
	open   uint32 // own handle, which the peer knows
}

// link is a link for port channels, with what this rank uses to drive it.
type link struct {
	*negotiate.Link
	peerKey framework.Parcel       // of the peer's counters, where a proxy of the transport raises them
	posted  posted                 // where it leaves counts for the rank to forward
	lane    *proxy.Lane            // the stream, where the rank's copy engine does
	host    *counters.HostCounters // and the peer's, where they are mapped here
	hosted  bool                   // the peer raises host counters of this rank, not those of its device
	stream  *streamLink            // the sockets that the rank drives
	users   int                    // of the first link to the peer: how many channels have been given one
	goodbye goodbye                // of the peer, where the link is by adapters
}

// posted is the inbox of one link: the word at an offset stands for the word at that
// offset of the rank's counters.
type posted struct {
	words device.Memory // nil: the transport raises the counters itself
	close func(ctx context.Context) error
}

// forwarding is what a communicator needs for transports that write counts of signals
// into an inbox, because they cannot write the memory that semaphores are in.
type forwarding struct {
	forwarder *proxy.Forwarder // nil until a link has an inbox
	view      device.HostView  // of the rank's counters; nil where tokens or the lane do
	lane      *proxy.Lane      // nil where tokens or the view do
}

// goodbyes knows which peers of links by adapters have closed all their channels. Their
// adapters stay for goodbyePatience, and are gone then.
type goodbyes struct {
	noted func(peer int)  // called when a peer has said goodbye
	from  map[int]goodbye // by peer; grows in calls of set-up
	waits sync.WaitGroup
	life  context.Context
	end   context.CancelFunc
}

// goodbye is closed when the peer has closed its channels; nil: its link is none by adapters.
type goodbye chan struct{}

// departures knows of peers that have been waited for long which of them have left.
type departures struct {
	mu   sync.Mutex
	asks map[int]*departure
}

type departure struct {
	gone chan struct{} // closed when the peer has left
	at   time.Time     // when that was known
}

// A stage has parts that are used in turn. The last put of each carries a flush, behind
// which the part is free again: while one is filled the others are on their way.
const (
	stageParts = 4
	stagePart  = 256 << 10 // at most
	stageUnit  = 4 << 10
)
