// Package negotiate decides by which transport two ranks are linked, and links them: it asks
// the transports, trades offers and keys with the peer, and maps what the peer opens.
package negotiate

import (
	"context"
	"log/slog"
	"sync"

	"github.com/mscclpp-go/mscclpp/framework"
	"github.com/mscclpp-go/mscclpp/framework/comm/internal/counters"
	"github.com/mscclpp-go/mscclpp/framework/comm/internal/life"
	"github.com/mscclpp-go/mscclpp/framework/comm/internal/preamble"
	"github.com/mscclpp-go/mscclpp/framework/comm/internal/recipe"
	"github.com/mscclpp-go/mscclpp/framework/comm/internal/transport"
)

// Key names a link of a rank.
type Key struct {
	Kind   framework.Kind
	Peer   int
	Number int // of several to one peer, which port channels use in turn
}

// Link is a connection to one peer.
type Link struct {
	Transport *transport.Transport
	Conn      framework.ID
	Inbox     Remote // the peer's semaphore counters, where they are mapped here
	Streamed  bool   // port link: the rank drives its sockets
	Several   int    // port link, the first to the peer: how many there are to it once all are used

	endpoint framework.ID
}

// Remote is memory of a peer that is mapped here.
type Remote struct {
	Addr      uintptr
	Own       uintptr // this rank's part, as that rank addresses it
	Bytes     uint64
	Transport *transport.Transport
	Close     func(ctx context.Context) error
}

// PassedOver knows for which transports a warning was logged, that they are there and cannot be
// used: of a communicator and all that are made of it.
type PassedOver struct {
	mu    sync.Mutex
	named map[string]bool
}

// first reports whether no warning was logged for a transport so far, and notes that one is now.
func (p *PassedOver) first(name string) bool {
	p.mu.Lock()
	defer p.mu.Unlock()
	was := p.named[name]
	if p.named == nil {
		p.named = make(map[string]bool)
	}
	p.named[name] = true
	return !was
}

// Negotiator makes the links of one rank: both ends ask their transports, and choose alike.
type Negotiator struct {
	Name       string // of the communicator
	Transports []*transport.Transport
	Facts      framework.Facts
	Log        *slog.Logger
	Boot       framework.Bootstrap
	Life       *life.Life
	Counters   *counters.Counters
	Recipes    *recipe.Performer
	Rounds     preamble.Rounds
	HostOf     func(rank int) string
	Passed     *PassedOver
	Linked     func(k framework.Kind, peer int, l *Link) // called with each new link

	mu     sync.Mutex // held while links change, which they do in calls of set-up alone
	links  map[Key]*Link
	probed map[*transport.Transport]string // why one cannot be used, or ""
}
