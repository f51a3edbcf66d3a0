package tcp

import (
	"context"
	"crypto/rand"
	"fmt"
	"net"
	"net/netip"
	"os"
	"sync"
	"time"

	"golang.org/x/sys/unix"

	"github.com/mscclpp-go/mscclpp/framework"
	"github.com/mscclpp-go/mscclpp/transports/internal/fault"
)

// handed are streams that the ranks at both ends drive themselves. This process keeps
// duplicates, to see whether the peer's host is alive: a host that loses its power
// closes nothing. When it gives the host up it hangs up, which the rank sees. When the
// rank dies this process does, and then the last duplicates are closed.
type handed struct {
	group [16]byte
	wires []*wire
	left  int // streams that have not arrived

	once sync.Once
	over chan struct{}
}

func newHanded(group [16]byte, streams int) *handed {
	return &handed{group: group, wires: make([]*wire, streams), left: streams, over: make(chan struct{})}
}

// close hangs up.
func (g *handed) close(*Transport) {
	if g == nil {
		return
	}
	g.once.Do(func() {
		close(g.over)
		for _, w := range g.wires {
			if w != nil {
				w.close()
			}
		}
	})
}

// watch hangs up when the host of the peer is silent for too long. The rank itself
// handles a connection of which the peer's rank has closed its end.
func (g *handed) watch(bound time.Duration) {
	tick := time.NewTicker(bound / 10)
	defer tick.Stop()
	for {
		select {
		case <-tick.C:
		case <-g.over:
			return
		}
		for _, w := range g.wires {
			if q := silence(w); q.dead(bound) {
				g.close(nil)
				return
			}
		}
	}
}

// hand makes the streams of a connection and gives them to the rank. The lower rank
// calls the other one.
func (t *Transport) hand(ctx context.Context, conn framework.ID) (framework.Attachment, error) {
	var none framework.Attachment
	if err := ctx.Err(); err != nil {
		return none, err
	}
	c, err := find[*connection](t, conn, "connection")
	if err != nil {
		return none, err
	}
	if !onHost(c.config.Device) {
		return none, fmt.Errorf("%w: streams for kernels on %s: expected the host", framework.ErrUnsupported, c.config.Device)
	}
	meet := c.callHanded
	if c.config.Rank > c.peer {
		meet = c.awaitHanded
	}
	g, err := meet(ctx, t)
	if err != nil {
		return none, err
	}
	if c.config.Rank > c.peer && !c.sameHost {
		g.travel(t)
	}
	a := framework.Attachment{Mappings: []framework.Mapping{{Role: framework.RoleStream, Peer: c.peer, Bytes: t.config.handedStripe(c.sameHost)}}}
	for _, w := range g.wires {
		f, err := w.file()
		if err != nil {
			a.Close()
			g.close(t)
			return none, err
		}
		a.Mappings[0].Shares = append(a.Mappings[0].Shares, framework.Share{Kind: framework.ShareSocket, FD: f})
	}
	if a.ID, err = t.made.KeepOn(c.on, g); err != nil {
		a.Close()
		g.close(t)
		return none, err
	}
	go g.watch(t.config.PeerTimeout)
	return a, nil
}

// callHanded makes the streams.
func (c *connection) callHanded(ctx context.Context, t *Transport) (*handed, error) {
	h := hello{
		streams: uint8(t.config.Streams), handed: true,
		from: uint32(c.config.Rank), to: uint32(c.peer), endpoint: c.address.endpoint,
	}
	_, _ = rand.Read(h.group[:]) // never fails
	g := newHanded(h.group, t.config.Streams)
	places := candidates(c.address, t.stack, subnets())
	for n := range g.wires {
		h.stream = uint8(n)
		conn, place, err := c.dial(ctx, t.config, places, h)
		if err == nil {
			places = []netip.AddrPort{place} // the others go where the first went
			g.wires[n], err = newWire(conn)
			conn.Close() // the wire has a descriptor of its own
		}
		if err != nil {
			g.close(t)
			return nil, err
		}
	}
	return g, nil
}

// awaitHanded waits until the peer has made them. The peer may be stopped for a while
// meanwhile, which its host does not say; that it has died is found out by the bootstrap,
// which ends ctx.
func (c *connection) awaitHanded(ctx context.Context, t *Transport) (*handed, error) {
	// Longer than the caller tries to reach others: if a third rank holds it up, its error
	// comes first and names that one.
	wait := t.config.ConnectTimeout + t.config.AnswerTimeout*4/3
	bound := time.NewTimer(wait)
	defer bound.Stop()
	e := c.local
	select {
	case <-e.ready:
	case <-bound.C:
		return nil, fault.Of(c.peer, fmt.Errorf("%w: no connection from it within %v: it, or its plugin, does not run", framework.ErrPeer, wait))
	case <-ctx.Done():
		return nil, fault.Of(c.peer, fmt.Errorf("%w: no connection from it: %w", framework.ErrPeer, ctx.Err()))
	}
	e.mu.Lock()
	defer e.mu.Unlock()
	g := e.handed
	e.handed = nil
	if g == nil {
		return nil, fault.Of(c.peer, fmt.Errorf("%w: the streams of this link were handed out before, or the endpoint was closed", framework.ErrInvalid))
	}
	return g, nil
}

// joinHanded takes a stream for the rank. A link has one group of them.
func (e *endpoint) joinHanded(h hello, conn *net.TCPConn) refusal {
	e.mu.Lock()
	defer e.mu.Unlock()
	switch {
	case e.closed:
		return refusedEndpoint
	case e.config.Rank < int(h.from):
		return refusedRank // it is this rank that calls
	case h.stream == 0 && e.handed == nil && !e.complete():
		e.handed = newHanded(h.group, int(h.streams))
	case e.handed == nil || e.handed.group != h.group || len(e.handed.wires) != int(h.streams) || e.handed.wires[h.stream] != nil:
		return refusedStream
	}
	w, err := newWire(conn)
	if err != nil {
		return refusedStream
	}
	e.handed.wires[h.stream] = w
	return accepted
}

// complete reports whether the streams for the rank are there, or were.
func (e *endpoint) complete() bool {
	select {
	case <-e.ready:
		return true
	default:
		return false
	}
}

// arrive is called when the handshake of a stream is over, and not before: the rank may
// write as soon as it has the streams.
func (e *endpoint) arrive(h hello) {
	e.mu.Lock()
	defer e.mu.Unlock()
	if g := e.handed; g != nil && g.group == h.group {
		if g.left--; g.left == 0 {
			close(e.ready)
		}
	}
}

// file returns a duplicate of the descriptor.
func (w *wire) file() (f *os.File, err error) {
	gone := w.use(func(fd int) {
		var dup int
		if dup, err = unix.FcntlInt(uintptr(fd), unix.F_DUPFD_CLOEXEC, 0); err == nil {
			f = os.NewFile(uintptr(dup), "stream")
		}
	})
	if gone != nil {
		return nil, gone
	}
	return f, os.NewSyscallError("dup", err)
}
