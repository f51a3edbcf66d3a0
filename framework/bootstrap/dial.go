package bootstrap

import (
	"context"
	"errors"
	"fmt"
	"io"
	"net"
	"net/netip"
	"syscall"
	"time"

	"github.com/mscclpp-go/mscclpp/framework"
	"github.com/mscclpp-go/mscclpp/framework/bootstrap/internal/failure"
	"github.com/mscclpp-go/mscclpp/framework/bootstrap/internal/handshake"
	"github.com/mscclpp-go/mscclpp/framework/bootstrap/internal/links"
)

// dialer connects without keep-alive: liveness sets it where it is of use.
var dialer = net.Dialer{KeepAlive: -1}

// caller connects to other ranks, and finds rank 0.
type caller struct {
	party *handshake.Party
	cfg   *Config
}

// connect makes a connection and performs the handshake.
func (c *caller) connect(ctx context.Context, at string, why handshake.Purpose, to int) (*net.TCPConn, error) {
	ctx, cancel := context.WithTimeout(ctx, handshakeTimeout)
	defer cancel()
	made, err := dialer.DialContext(ctx, c.cfg.Family.network(), at)
	if err != nil {
		if e := c.cfg.Family.unsuitable(at, err); e != nil {
			return nil, e
		}
		return nil, fmt.Errorf("%w: cannot connect to %s: %w", framework.ErrPeer, at, err)
	}
	conn := made.(*net.TCPConn)
	deadline, _ := ctx.Deadline()
	_ = conn.SetDeadline(deadline)
	stop := context.AfterFunc(ctx, func() { _ = conn.SetDeadline(time.Unix(1, 0)) })
	err = c.party.Dial(conn, why, to)
	if !stop() && err == nil {
		err = handshake.Unanswered(context.Cause(ctx))
	}
	if err != nil {
		_ = conn.Close()
		return nil, fmt.Errorf("%s: %w", at, err)
	}
	return conn, nil
}

// callRank connects to a rank for a link. A connection that the other end drops in the middle
// of the handshake may have had to make room there (see strangers); another attempt tells
// that from the end of the rank, which refuses it.
func (c *caller) callRank(ctx context.Context, at netip.AddrPort, to int) (*net.TCPConn, error) {
	start := time.Now()
	var pause backoff
	for {
		conn, err := c.connect(ctx, at.String(), handshake.Link, to)
		if err == nil || !dropped(err) || time.Since(start) > handshakeTimeout || !pause.wait(ctx) {
			return conn, err
		}
	}
}

// backoff is the pause between attempts: 5 ms, then twice as long each time, up to 200 ms.
type backoff time.Duration

// wait returns false if ctx ends before the pause does.
func (b *backoff) wait(ctx context.Context) bool {
	*b = min(max(2**b, backoff(5*time.Millisecond)), backoff(200*time.Millisecond))
	timer := time.NewTimer(time.Duration(*b))
	defer timer.Stop()
	select {
	case <-timer.C:
		return true
	case <-ctx.Done():
		return false
	}
}

// dropped reports whether an error is that of a connection that the other end has closed.
func dropped(err error) bool {
	return errors.Is(err, io.EOF) || errors.Is(err, io.ErrUnexpectedEOF) || errors.Is(err, syscall.ECONNRESET) || errors.Is(err, syscall.EPIPE)
}

// linkTo returns the link for parcels to a rank, and makes it when there is none.
// Several callers wait for one attempt.
func (t *TCP) linkTo(ctx context.Context, to int) (*links.Link, error) {
	for {
		if err := t.inbox.Departed(to); err != nil {
			return nil, err
		}
		t.mu.Lock()
		p := t.peer(to)
		if p.out != nil {
			t.mu.Unlock()
			return p.out, nil
		}
		if t.closing {
			t.mu.Unlock()
			return nil, failure.ErrClosed
		}
		if to >= len(t.table) || t.table[to].port == 0 {
			t.mu.Unlock()
			return nil, fmt.Errorf("%w: the address of rank %d is not known yet", framework.ErrUnavailable, to)
		}
		wait := p.dialing
		if wait == nil {
			wait = make(chan struct{})
			p.dialing = wait
			at := t.table[to].addr(t.root)
			t.work.Go(func() { t.dial(to, at, wait) })
		}
		t.mu.Unlock()
		select {
		case <-wait:
		case <-ctx.Done():
			return nil, fmt.Errorf("no connection yet: %w", context.Cause(ctx))
		case <-t.failures.Job.Done():
			return nil, t.failures.Job.Cause()
		}
	}
}

// dial is one attempt to reach a rank. A rank that refuses has left or died: a former neighbor of
// it knows which, and says so within a moment if it died.
func (t *TCP) dial(to int, at netip.AddrPort, done chan struct{}) {
	conn, err := t.caller.callRank(t.life, at, to)
	if err == nil {
		err = t.adopt(to, conn)
	}
	if err != nil && t.life.Err() == nil {
		t.cfg.Log.Debug("bootstrap: a rank cannot be reached", "peer", to, "error", err)
		t.await(t.life, 2*lastWords)
		t.inbox.Depart(to, fmt.Errorf("%w: rank %d has left the job or died: %w", framework.ErrPeer, to, err))
	}
	t.mu.Lock()
	t.peer(to).dialing = nil
	t.mu.Unlock()
	close(done)
}

// watch opens a link to a rank that has none, to learn when it goes.
func (t *TCP) watch(rank int) {
	if rank == t.party.Rank || t.isClosing() {
		return
	}
	_, _ = t.linkTo(t.life, rank)
}

// explain finds the reason behind the failure of one link: the job's, if it is
// about to fail.
func (t *TCP) explain(ctx context.Context, to int, err error) error {
	if framework.Class(err) != framework.ErrPeer || t.inbox.Departed(to) != nil {
		return err
	}
	t.await(ctx, 2*lastWords)
	if cause := t.failures.Job.Cause(); cause != nil {
		return cause
	}
	return err
}
