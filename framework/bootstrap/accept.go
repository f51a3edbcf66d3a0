package bootstrap

import (
	"context"
	"errors"
	"log/slog"
	"net"
	"net/netip"
	"slices"
	"sync"
	"time"

	"github.com/mscclpp-go/mscclpp/framework"
	"github.com/mscclpp-go/mscclpp/framework/bootstrap/internal/failure"
	"github.com/mscclpp-go/mscclpp/framework/bootstrap/internal/handshake"
	"github.com/mscclpp-go/mscclpp/internal/lograte"
)

// proofBound is how long a connection may take to authenticate while others wait for its
// place. A rank takes milliseconds.
const proofBound = 500 * time.Millisecond

// strangers are connections that have not authenticated yet, oldest first.
type strangers struct {
	mu   sync.Mutex
	list []stranger
}

type stranger struct {
	conn  *net.TCPConn
	since time.Time
}

func (s *strangers) enter(c *net.TCPConn) {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.list = append(s.list, stranger{c, time.Now()})
}

// leave takes a connection off the list, and reports whether it was there.
func (s *strangers) leave(c *net.TCPConn) bool {
	s.mu.Lock()
	defer s.mu.Unlock()
	i := slices.IndexFunc(s.list, func(x stranger) bool { return x.conn == c })
	if i >= 0 {
		s.list = slices.Delete(s.list, i, i+1)
	}
	return i >= 0
}

// drop closes the oldest if it has been there for proofBound. It returns how long to wait
// before the next attempt: a connection that was closed gives its place up by then, and
// one that was not is old enough.
func (s *strangers) drop() time.Duration {
	s.mu.Lock()
	defer s.mu.Unlock()
	if len(s.list) == 0 {
		return proofBound
	}
	if left := proofBound - time.Since(s.list[0].since); left > 0 {
		return left
	}
	_ = s.list[0].conn.Close()
	s.list = slices.Delete(s.list, 0, 1)
	return proofBound
}

// acceptor takes connections and makes them prove themselves.
type acceptor struct {
	party     *handshake.Party
	listener  *net.TCPListener
	most      int // handshakes at once
	log       *slog.Logger
	life      context.Context
	work      *sync.WaitGroup
	arrived   func(conn *net.TCPConn, h handshake.Hello, proved bool, err error)
	strangers strangers
	noise     lograte.Limiter // of strangers
}

// place waits for one of the slots, and reports whether it got one before the end. The
// oldest connections that have not authenticated make room, so that strangers cannot keep
// ranks out.
func (a *acceptor) place(slots chan<- struct{}) bool {
	for {
		select {
		case slots <- struct{}{}:
			return true
		default:
		}
		timer := time.NewTimer(a.strangers.drop())
		select {
		case slots <- struct{}{}:
			timer.Stop()
			return true
		case <-timer.C:
		case <-a.life.Done():
			timer.Stop()
			return false
		}
	}
}

// accept takes connections of other ranks until the listener is closed.
func (a *acceptor) accept() {
	slots := make(chan struct{}, a.most)
	for {
		c, err := a.listener.AcceptTCP()
		switch {
		case errors.Is(err, net.ErrClosed), err != nil && a.life.Err() != nil:
			return
		case err != nil:
			// Out of descriptors, for example. Others may be closed soon.
			a.strangers.drop()
			a.noise.Log(a.log, slog.LevelWarn, "bootstrap: cannot accept connections", "error", err)
			timer := time.NewTimer(50 * time.Millisecond)
			select {
			case <-timer.C:
				continue
			case <-a.life.Done():
				timer.Stop()
				return
			}
		}
		_ = c.SetKeepAlive(false)
		if !a.place(slots) {
			_ = c.Close()
			return
		}
		a.strangers.enter(c)
		a.work.Go(func() {
			defer func() { <-slots }()
			defer a.strangers.leave(c)
			a.welcome(c)
		})
	}
}

// welcome performs the handshake with a process that has connected.
func (a *acceptor) welcome(conn *net.TCPConn) {
	_ = conn.SetDeadline(time.Now().Add(handshakeTimeout))
	stop := context.AfterFunc(a.life, func() { _ = conn.SetDeadline(time.Unix(1, 0)) })
	h, proved, err := a.party.Accept(conn, fromHere(conn), func() bool { return a.strangers.leave(conn) })
	stop()
	if err == nil && a.life.Err() != nil {
		err = failure.ErrClosed
	}
	if err != nil {
		a.noise.Log(a.log, slog.LevelWarn, "bootstrap: a connection was turned down", "from", conn.RemoteAddr().String(), "error", err)
		hangUp(conn)
	}
	a.arrived(conn, h, proved, err)
}

// newAcceptor takes connections for this rank.
func (t *TCP) newAcceptor() *acceptor {
	return &acceptor{party: &t.party, listener: t.listener, most: t.cfg.handshakes, log: t.cfg.Log, life: t.life, work: &t.work, arrived: t.arrived}
}

// arrived decides what a connection is for, or takes note of one that was turned down.
func (t *TCP) arrived(conn *net.TCPConn, h handshake.Hello, proved bool, err error) {
	claim := framework.NoPeer
	if h.Version != 0 { // else it was not understood
		claim = int(h.From)
	}
	switch {
	case err == nil && h.Purpose == handshake.CheckIn:
		t.rendezvous.visit(visit{rank: int(h.From), conn: conn, proved: true})
	case err == nil:
		_ = t.adopt(int(h.From), conn)
	case t.rendezvous != nil:
		// The last message said why it was invalid.
		notified := proved || (h.Job == t.party.Job && errors.Is(err, framework.ErrInvalid))
		t.rendezvous.visit(visit{rank: claim, proved: proved, notified: notified, from: fromHost(conn), err: err})
	}
}

// fromHost is the host that a connection comes from.
func fromHost(conn net.Conn) netip.Addr { return addrPort(conn.RemoteAddr()).Addr().Unmap() }

// fromHere reports whether a connection comes from this host.
func fromHere(conn net.Conn) bool {
	remote, local := addrPort(conn.RemoteAddr()).Addr(), addrPort(conn.LocalAddr()).Addr()
	return remote.IsLoopback() || remote == local
}

// hangUp closes a connection so that the last message arrives: a reset because of
// unread bytes could overtake it.
func hangUp(conn *net.TCPConn) {
	_ = conn.CloseWrite()
	_ = conn.SetReadDeadline(time.Now().Add(lastWords))
	var b [512]byte
	for range 64 {
		if _, err := conn.Read(b[:]); err != nil {
			break
		}
	}
	_ = conn.Close()
}
