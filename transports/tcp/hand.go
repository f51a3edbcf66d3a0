package tcp

import (
	"context"
	"crypto/rand"
	"errors"
	"fmt"
	"net"
	"net/netip"
	"os"
	"time"

	"golang.org/x/sys/unix"

	"github.com/mscclpp-go/mscclpp/framework"
	"github.com/mscclpp-go/mscclpp/transports/internal/fault"
)

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
// meanwhile, which its host does not say, or be held up by a third rank; that it has died
// is found out by the bootstrap, which ends ctx. A peer whose plugin answers is not blamed.
func (c *connection) awaitHanded(ctx context.Context, t *Transport) (*handed, error) {
	// Longer than the caller tries to reach others: if a third rank holds it up, its error
	// comes first and names that one, unless the caller began later.
	wait := t.config.ConnectTimeout + t.config.AnswerTimeout*4/3
	asking, stop := context.WithCancel(ctx)
	defer stop()
	if err := c.awaitStreams(ctx, wait, c.ask(asking, t)); err != nil {
		return nil, err
	}
	e := c.local
	e.mu.Lock()
	defer e.mu.Unlock()
	g := e.handed
	e.handed = nil
	if g == nil {
		return nil, fault.Of(c.peer, fmt.Errorf("%w: the streams of this link were handed out before, or the endpoint was closed", framework.ErrInvalid))
	}
	return g, nil
}

// awaitStreams waits for the streams themselves, without a bound of its own if the peer's
// plugin answers.
func (c *connection) awaitStreams(ctx context.Context, wait time.Duration, answers <-chan struct{}) error {
	bound := time.NewTimer(wait)
	defer bound.Stop()
	for {
		select {
		case <-c.local.ready:
			return nil
		case <-bound.C:
			if !isClosed(answers) {
				return fault.Of(c.peer, fmt.Errorf("%w: no connection from it within %v: it, or its plugin, does not run", framework.ErrPeer, wait))
			}
		case <-ctx.Done():
			if isClosed(answers) {
				return fmt.Errorf("%w: no connection from rank %d, whose plugin answers: it has not begun to connect, or another rank holds it up: %w", framework.ErrUnavailable, c.peer, ctx.Err())
			}
			return fault.Of(c.peer, fmt.Errorf("%w: no connection from it: %w", framework.ErrPeer, ctx.Err()))
		}
	}
}

// ask calls the peer's plugin if the peer has not called for a while. The channel is closed
// when it answers: it refuses the stream, because it is the lower rank that calls.
func (c *connection) ask(ctx context.Context, t *Transport) <-chan struct{} {
	answers := make(chan struct{})
	go func() {
		select {
		case <-time.After(t.config.ConnectTimeout):
		case <-ctx.Done():
			return
		}
		h := hello{streams: 1, handed: true, from: uint32(c.config.Rank), to: uint32(c.peer), endpoint: c.address.endpoint}
		conn, _, err := c.dial(ctx, t.config, candidates(c.address, t.stack, subnets()), h)
		if conn != nil {
			conn.Close()
		}
		if errors.Is(err, refusedRank) {
			close(answers)
		}
	}()
	return answers
}

func isClosed(c <-chan struct{}) bool {
	select {
	case <-c:
		return true
	default:
		return false
	}
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

// unjoinHanded takes a stream out whose handshake failed in the end. Without its first one
// a group is none.
func (e *endpoint) unjoinHanded(h hello) {
	e.mu.Lock()
	defer e.mu.Unlock()
	g := e.handed
	switch {
	case g == nil || g.group != h.group:
	case h.stream == 0:
		g.close(nil)
		e.handed = nil
	default:
		g.wires[h.stream].close()
		g.wires[h.stream] = nil
	}
}

// complete reports whether the streams for the rank are there, or were.
func (e *endpoint) complete() bool { return isClosed(e.ready) }

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
