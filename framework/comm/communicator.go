package comm

import (
	"log/slog"
	"sync"
	"sync/atomic"
	"time"

	"github.com/mscclpp-go/mscclpp/framework"
	"github.com/mscclpp-go/mscclpp/framework/comm/internal/aside"
	"github.com/mscclpp-go/mscclpp/framework/comm/internal/counters"
	"github.com/mscclpp-go/mscclpp/framework/comm/internal/life"
	"github.com/mscclpp-go/mscclpp/framework/comm/internal/negotiate"
	"github.com/mscclpp-go/mscclpp/framework/comm/internal/porting"
	"github.com/mscclpp-go/mscclpp/framework/comm/internal/preamble"
	"github.com/mscclpp-go/mscclpp/framework/device"
)

// Communicator is a group of ranks. Set-up methods are collective as documented, and
// must not run concurrently on one communicator; all others may be called at any time
// from any goroutine. Several communicators of a process work independently.
type Communicator struct {
	opts Options
	boot framework.Bootstrap
	log  *slog.Logger
	dev  device.Device

	health
	kernels
	allocator
	aside.Talk
	dumps
	dependents
	members
	observed

	life     *life.Life
	counters *counters.Counters
	links    *negotiate.Negotiator
	ports    *porting.Ports
	rounds   preamble.Rounds

	setup    sync.Mutex // one set-up call at a time
	talk     sync.Mutex // one Barrier or AllGather at a time
	nodes    []string   // names of the hosts, by rank
	unlist   func()     // takes a communicator that was split off from its parent's dumps and dependents
	children int        // number of Splits so far: names and tags of the next

	closed sync.Once
	call   atomic.Pointer[pendingCall]
	buffers
}

// pendingCall is a call for which this rank waits for others.
type pendingCall struct {
	op    string
	since time.Time
}

// buffers is the set of exchanged memory, searched by address on the data path.
type buffers struct {
	mu     sync.Mutex
	list   []*Symmetric
	sorted atomic.Pointer[[]*Symmetric]

	exchanges atomic.Uint64
	next      uint64

	changed []func() // see OnExchange
}
