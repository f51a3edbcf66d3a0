package tcp

import (
	"context"
	"errors"
	"fmt"
	"net"
	"net/netip"
	"slices"
	"sync"
	"time"

	"github.com/mscclpp-go/mscclpp/framework"
)

// strangers is how many connections may be in their handshake. One more ends the oldest
// of them, once that has had proofTime: a rank proves itself within two round trips, so
// those that need longer are silent.
const (
	strangers = 128
	proofTime = 500 * time.Millisecond
)

// listener takes the streams of all endpoints, at the addresses that peers get.
type listener struct {
	t     *Transport
	doors map[netip.Addr]net.Listener // the transport's lock, as users
	users int                         // endpoints

	mu     sync.Mutex
	greets []unproved // the oldest first
	closed bool

	room chan struct{} // there may be a place, or the listener is closed
}

// unproved is a connection in its handshake.
type unproved struct {
	conn  net.Conn
	since time.Time
}

// open makes the transport listen at these addresses, for one more endpoint, and returns
// the places that work. An address may have gone since it was found, or not be usable yet.
func (t *Transport) open(localAddresses []localAddress) ([]netip.AddrPort, error) {
	t.mu.Lock()
	defer t.mu.Unlock()
	l := t.listener
	if l == nil {
		l = &listener{t: t, doors: map[netip.Addr]net.Listener{}, room: make(chan struct{}, 1)}
	}
	var places []netip.AddrPort
	var failed []error
	for _, s := range localAddresses {
		door := l.doors[s.addr]
		if door == nil {
			// Waiting connections are taken at once, so this cannot block.
			var err error
			door, err = (&net.ListenConfig{Control: t.config.greeting(&t.usual)}).Listen(context.Background(), "tcp", netip.AddrPortFrom(s.addr, 0).String())
			if err != nil {
				failed = append(failed, err)
				continue
			}
			l.doors[s.addr] = door
			go l.accept(door)
		}
		places = append(places, netip.AddrPortFrom(s.addr, uint16(door.Addr().(*net.TCPAddr).Port)))
	}
	if len(places) == 0 {
		return nil, fmt.Errorf("%w: %w", framework.ErrUnavailable, errors.Join(failed...))
	}
	l.users++
	t.listener = l
	return places, nil
}

// unlisten is called when an endpoint is closed.
func (t *Transport) unlisten() {
	t.mu.Lock()
	l := t.listener
	if l.users--; l.users > 0 {
		t.mu.Unlock()
		return
	}
	t.listener = nil
	t.mu.Unlock()
	for _, door := range l.doors {
		door.Close()
	}
	l.mu.Lock()
	defer l.mu.Unlock()
	for _, g := range l.greets {
		g.conn.Close()
	}
	l.greets, l.closed = nil, true
	l.wake()
}

func (l *listener) accept(door net.Listener) {
	for {
		c, err := door.Accept()
		if errors.Is(err, net.ErrClosed) {
			return
		}
		if err != nil {
			l.evict()                         // out of descriptors, most likely
			time.Sleep(10 * time.Millisecond) // they come back
			continue
		}
		if !l.admit(c) {
			c.Close()
			return
		}
		go func() {
			conn := c.(*net.TCPConn)
			serve, err := l.greet(conn)
			l.removeGreet(conn)
			conn.Close() // the group has a descriptor of its own; a peer that was refused has the reason by now
			if err == nil {
				serve()
			}
		}()
	}
}

// admit enters a connection into those in their handshake, as soon as there is a place for
// it. Meanwhile the kernel keeps those that come after it.
func (l *listener) admit(c net.Conn) bool {
	for {
		wait, entered := l.enter(c)
		if entered {
			return true
		}
		if wait < 0 {
			l.wake() // others wait as well
			return false
		}
		timer := time.NewTimer(wait)
		select {
		case <-timer.C:
		case <-l.room:
			timer.Stop()
		}
	}
}

// enter enters a connection, in the place of the oldest if all are taken. Where that is too
// young it returns how long to wait for it; less than 0: the listener is closed.
func (l *listener) enter(c net.Conn) (wait time.Duration, entered bool) {
	l.mu.Lock()
	defer l.mu.Unlock()
	if l.closed {
		return -1, false
	}
	if len(l.greets) >= strangers {
		if wait := l.dropOldest(); wait > 0 {
			return wait, false
		}
	}
	l.greets = append(l.greets, unproved{c, time.Now()})
	return 0, true
}

// evict ends the oldest handshake.
func (l *listener) evict() {
	l.mu.Lock()
	defer l.mu.Unlock()
	if len(l.greets) > 0 {
		l.dropOldest()
	}
}

// dropOldest ends the oldest handshake, or returns how long that still has.
func (l *listener) dropOldest() time.Duration {
	if left := l.t.proofTime - time.Since(l.greets[0].since); left > 0 {
		return left
	}
	l.greets[0].conn.Close()
	l.greets = slices.Delete(l.greets, 0, 1)
	return 0
}

// removeGreet takes a connection out whose handshake is over, and reports whether it was still
// there: not, if it was dropped.
func (l *listener) removeGreet(c net.Conn) bool {
	l.mu.Lock()
	defer l.mu.Unlock()
	i := slices.IndexFunc(l.greets, func(g unproved) bool { return g.conn == c })
	if i < 0 {
		return false
	}
	l.greets = slices.Delete(l.greets, i, i+1)
	l.wake()
	return true
}

// wake lets one that waits for a place look again.
func (l *listener) wake() {
	select {
	case l.room <- struct{}{}:
	default:
	}
}

// greet authenticates the caller and makes the connection a stream of its group. The
// function that it returns serves the stream.
func (l *listener) greet(conn *net.TCPConn) (serve func(), err error) {
	if err := errors.Join(conn.SetDeadline(time.Now().Add(l.t.config.AnswerTimeout)), l.t.config.keepAlive(conn)); err != nil {
		return nil, err
	}
	rollBack := func() {}
	look := func(h hello) (secret [32]byte, why refusal) {
		e, err := find[*endpoint](l.t, framework.ID(h.endpoint), "endpoint")
		if err != nil {
			return secret, refusedEndpoint
		}
		if int(h.to) != e.config.Rank || int(h.from) == e.config.Rank || int(h.from) != e.config.Ranks[0] && int(h.from) != e.config.Ranks[1] {
			return secret, refusedRank
		}
		return e.secret, accepted
	}
	join := func(h hello) (refusal, error) {
		// From here on nobody ends the connection to make room, so that a stream that has
		// joined is not lost. One that was dropped begins again.
		if !l.removeGreet(conn) {
			return refusedStream, net.ErrClosed
		}
		e, err := find[*endpoint](l.t, framework.ID(h.endpoint), "endpoint")
		if err != nil {
			return refusedEndpoint, nil
		}
		var why refusal
		if h.handed {
			serve, rollBack = func() { e.arrive(h) }, func() { e.unjoinHanded(h) }
			why = e.joinHanded(h, conn)
		} else {
			var g *inbound
			g, why = e.join(h, conn)
			serve, rollBack = func() { g.serve(int(h.stream)) }, func() { g.unjoin(int(h.stream)) }
		}
		if why != accepted {
			rollBack = func() {}
		}
		return why, nil
	}
	_, err = welcome(conn, look, join)
	if err == nil {
		err = conn.SetDeadline(time.Time{})
	}
	if err != nil {
		rollBack() // the peer, which has no answer, begins again
	}
	return serve, err
}

// join makes a stream part of its group; the first stream makes the group.
func (e *endpoint) join(h hello, conn *net.TCPConn) (*inbound, refusal) {
	e.mu.Lock()
	defer e.mu.Unlock()
	g := e.groups[h.group]
	switch {
	case e.closed:
		return nil, refusedEndpoint
	case h.stream == 0 && g == nil && len(e.groups) < maxGroups:
	case h.stream == 0 || g == nil:
		return nil, refusedStream
	}
	w, err := newWire(conn)
	if err != nil {
		return nil, refusedStream
	}
	if g == nil { // a group has its first stream from the beginning
		g = newInbound(e, h)
		e.groups[h.group] = g
	}
	if !g.join(int(h.stream), int(h.streams), w) {
		w.drop() // the connection still has to say why
		return nil, refusedStream
	}
	return g, accepted
}

// maxGroups bounds the proxies of one peer that an endpoint serves.
const maxGroups = 4096

// part takes a group out that has ended.
func (e *endpoint) part(g *inbound) {
	e.mu.Lock()
	defer e.mu.Unlock()
	if e.groups[g.id] == g {
		delete(e.groups, g.id)
	}
}
