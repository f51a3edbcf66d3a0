package bootstrap

import (
	"context"
	"errors"
	"fmt"
	"net"
	"time"

	"github.com/mscclpp-go/mscclpp/framework"
)

// maxHandshakes is how many connections may be in their handshake at once. Who
// opens more, without proving anything, waits; so do others, but not for long.
const maxHandshakes = 1024

// accept takes connections of other ranks until the listener is closed.
func (t *TCP) accept() {
	slots := make(chan struct{}, maxHandshakes)
	for {
		c, err := t.listener.AcceptTCP()
		switch {
		case errors.Is(err, net.ErrClosed):
			return
		case err != nil:
			// Out of descriptors, for example. Others may be closed soon.
			t.cfg.Log.Warn("bootstrap: cannot accept connections", "error", err)
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
		select {
		case slots <- struct{}{}:
		case <-t.life.Done():
			_ = c.Close()
			return
		}
		t.work.Go(func() {
			defer func() { <-slots }()
			t.welcome(c)
		})
	}
}

// welcome performs the handshake with whoever has connected.
func (t *TCP) welcome(conn *net.TCPConn) {
	_ = conn.SetDeadline(time.Now().Add(handshakeTimeout))
	stop := context.AfterFunc(t.life, func() { _ = conn.SetDeadline(time.Unix(1, 0)) })
	h, proved, err := t.call.accept(conn)
	stop()
	claim := framework.NoPeer
	if h.version != 0 { // else it was not understood
		claim = int(h.from)
	}
	if err == nil && t.life.Err() != nil {
		err = errClosed
	}
	switch {
	case err != nil:
		t.cfg.Log.Warn("bootstrap: a connection was turned down", "from", conn.RemoteAddr().String(), "error", err)
		hangUp(conn)
		if t.visits != nil {
			// What was invalid about it was said in the last message.
			told := proved || (h.job == t.job && errors.Is(err, framework.ErrInvalid))
			t.visit(visit{rank: claim, proved: proved, told: told, err: err})
		}
	case !t.hasSecret && !t.cfg.Insecure && !fromHere(conn):
		// Without a secret the address is all there is to go by.
		n := notice{origin: t.rank, culprit: int(h.from), class: framework.ErrInvalid, text: noSecret(int(h.from))}
		_, _ = conn.Write(appendFrame(nil, frameNotice, 0, n.encode()))
		hangUp(conn)
		if t.visits != nil {
			t.visit(visit{rank: claim, told: true, err: n.err()})
		}
	case h.purpose == purposeCheckIn:
		t.visit(visit{rank: int(h.from), conn: conn, proved: true})
	default:
		_ = t.adopt(int(h.from), conn)
	}
}

// fromHere reports whether a connection comes from this host.
func fromHere(conn net.Conn) bool {
	far, near := addrPort(conn.RemoteAddr()).Addr(), addrPort(conn.LocalAddr()).Addr()
	return far.IsLoopback() || far == near
}

func noSecret(rank int) string {
	return fmt.Sprintf("rank %d is on another host than rank 0 and the job has no secret: set %s on all ranks, or bootstrap.insecure to let anybody join", rank, EnvSecretFile)
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
