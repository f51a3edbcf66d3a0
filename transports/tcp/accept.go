package tcp

import (
	"context"
	"errors"
	"fmt"
	"net"
	"sync"
	"time"

	"github.com/mscclpp-go/mscclpp/framework"
)

const (
	// greetWithin is how long a stranger may keep a connection.
	greetWithin = 5 * time.Second
	// strangers is how many connections may be in their handshake. More wait.
	strangers = 128
)

// listener takes the streams of all endpoints.
type listener struct {
	t     *Transport
	l     net.Listener
	users int // endpoints; the transport's lock

	mu     sync.Mutex
	greets map[net.Conn]bool // in their handshake; nil: closed
}

// open makes the transport listen, for one more endpoint, and returns the port.
func (t *Transport) open() (uint16, error) {
	t.mu.Lock()
	defer t.mu.Unlock()
	if t.listener == nil {
		network := map[string]string{"": "tcp", familyV4: "tcp4", familyV6: "tcp6"}[t.config.Family]
		// Waiting connections are taken at once, so this cannot block.
		l, err := (&net.ListenConfig{Control: t.config.greeting(&t.usual)}).Listen(context.Background(), network, ":0")
		if err != nil {
			return 0, fmt.Errorf("%w: %w", framework.ErrUnavailable, err)
		}
		t.listener = &listener{t: t, l: l, greets: map[net.Conn]bool{}}
		go t.listener.accept()
	}
	t.listener.users++
	return uint16(t.listener.l.Addr().(*net.TCPAddr).Port), nil
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
	l.l.Close()
	l.mu.Lock()
	defer l.mu.Unlock()
	for c := range l.greets {
		c.Close()
	}
	l.greets = nil
}

func (l *listener) accept() {
	room := make(chan struct{}, strangers)
	for {
		c, err := l.l.Accept()
		if errors.Is(err, net.ErrClosed) {
			return
		}
		if err != nil {
			time.Sleep(10 * time.Millisecond) // out of descriptors: they come back
			continue
		}
		room <- struct{}{}
		go func() {
			conn := c.(*net.TCPConn)
			serve, err := l.greet(conn)
			<-room
			conn.Close() // the group has a descriptor of its own; else who called was told why, if it was one of us
			if err == nil {
				serve()
			}
		}()
	}
}

// track enters a connection into those in their handshake, or takes it out.
func (l *listener) track(c net.Conn, in bool) bool {
	l.mu.Lock()
	defer l.mu.Unlock()
	if l.greets == nil {
		return false
	}
	if in {
		l.greets[c] = true
	} else {
		delete(l.greets, c)
	}
	return true
}

// greet finds out who calls, and makes the connection a stream of its group. What it
// returns serves the stream.
func (l *listener) greet(conn *net.TCPConn) (serve func(), err error) {
	if !l.track(conn, true) {
		return nil, net.ErrClosed
	}
	defer l.track(conn, false)
	if err := errors.Join(conn.SetDeadline(time.Now().Add(greetWithin)), l.t.config.keepAlive(conn)); err != nil {
		return nil, err
	}
	var g *inbound
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
	join := func(h hello) (why refusal) {
		e, err := find[*endpoint](l.t, framework.ID(h.endpoint), "endpoint")
		if err != nil {
			return refusedEndpoint
		}
		if h.handed {
			serve = func() { e.arrive(h) }
			return e.joinHanded(h, conn)
		}
		g, why = e.join(h, conn)
		serve = func() { g.serve(int(h.stream)) }
		return why
	}
	_, err = welcome(conn, look, join)
	if err == nil {
		err = conn.SetDeadline(time.Time{})
	}
	if err != nil && g != nil {
		g.end()
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
		g = newInbound(e, h)
		e.groups[h.group] = g
	case h.stream == 0 || g == nil:
		return nil, refusedStream
	}
	w, err := newWire(conn)
	if err != nil {
		return nil, refusedStream
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
