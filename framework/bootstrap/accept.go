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

	"golang.org/x/sys/unix"

	"github.com/mscclpp-go/mscclpp/framework"
	"github.com/mscclpp-go/mscclpp/framework/bootstrap/internal/failure"
	"github.com/mscclpp-go/mscclpp/framework/bootstrap/internal/handshake"
)

// maxHandshakes is how many connections may be in their handshake at once, if as many files
// may be open.
const maxHandshakes = 1024

// mostHandshakes leaves three quarters of the descriptors of this process to the program.
func mostHandshakes(files uint64) int { return int(max(8, min(maxHandshakes, files/4))) }

// openFiles is how many descriptors this process may have.
func openFiles() uint64 {
	var limit unix.Rlimit
	if err := unix.Getrlimit(unix.RLIMIT_NOFILE, &limit); err != nil {
		return maxHandshakes
	}
	return limit.Cur
}

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

// place waits for one of the slots, and reports whether it got one before the end. The
// oldest connections that have not authenticated make room, so that strangers cannot keep
// ranks out.
func (t *TCP) place(slots chan<- struct{}) bool {
	for {
		select {
		case slots <- struct{}{}:
			return true
		default:
		}
		timer := time.NewTimer(t.strangers.drop())
		select {
		case slots <- struct{}{}:
			timer.Stop()
			return true
		case <-timer.C:
		case <-t.life.Done():
			timer.Stop()
			return false
		}
	}
}

// accept takes connections of other ranks until the listener is closed.
func (t *TCP) accept() {
	slots := make(chan struct{}, t.cfg.handshakes)
	for {
		c, err := t.listener.AcceptTCP()
		switch {
		case errors.Is(err, net.ErrClosed), err != nil && t.life.Err() != nil:
			return
		case err != nil:
			// Out of descriptors, for example. Others may be closed soon.
			t.strangers.drop()
			t.noise.Log(t.cfg.Log, slog.LevelWarn, "bootstrap: cannot accept connections", "error", err)
			timer := time.NewTimer(50 * time.Millisecond)
			select {
			case <-timer.C:
				continue
			case <-t.life.Done():
				timer.Stop()
				return
			}
		}
		_ = c.SetKeepAlive(false)
		if !t.place(slots) {
			_ = c.Close()
			return
		}
		t.strangers.enter(c)
		t.work.Go(func() {
			defer func() { <-slots }()
			defer t.strangers.leave(c)
			t.welcome(c)
		})
	}
}

// welcome performs the handshake with whoever has connected.
func (t *TCP) welcome(conn *net.TCPConn) {
	_ = conn.SetDeadline(time.Now().Add(handshakeTimeout))
	stop := context.AfterFunc(t.life, func() { _ = conn.SetDeadline(time.Unix(1, 0)) })
	h, proved, err := t.party.Accept(conn, fromHere(conn), func() bool { return t.strangers.leave(conn) })
	stop()
	claim := framework.NoPeer
	if h.Version != 0 { // else it was not understood
		claim = int(h.From)
	}
	if err == nil && t.life.Err() != nil {
		err = failure.ErrClosed
	}
	switch {
	case err != nil:
		t.noise.Log(t.cfg.Log, slog.LevelWarn, "bootstrap: a connection was turned down", "from", conn.RemoteAddr().String(), "error", err)
		hangUp(conn)
		if t.visits != nil {
			// What was invalid about it was said in the last message.
			told := proved || (h.Job == t.party.Job && errors.Is(err, framework.ErrInvalid))
			t.visit(visit{rank: claim, proved: proved, told: told, from: caller(conn), err: err})
		}
	case h.Purpose == handshake.CheckIn:
		t.visit(visit{rank: int(h.From), conn: conn, proved: true})
	default:
		_ = t.adopt(int(h.From), conn)
	}
}

// caller is the host that a connection comes from.
func caller(conn net.Conn) netip.Addr { return addrPort(conn.RemoteAddr()).Addr().Unmap() }

// fromHere reports whether a connection comes from this host.
func fromHere(conn net.Conn) bool {
	far, near := addrPort(conn.RemoteAddr()).Addr(), addrPort(conn.LocalAddr()).Addr()
	return far.IsLoopback() || far == near
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
