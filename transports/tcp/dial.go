package tcp

import (
	"context"
	"errors"
	"fmt"
	"net"
	"net/netip"
	"time"

	"github.com/mscclpp-go/mscclpp/framework"
	"github.com/mscclpp-go/mscclpp/transports/internal/fault"
)

// headStart is how long a likelier address of a peer is tried alone.
const headStart = 200 * time.Millisecond

// dial makes a stream to one of the places. They are tried one after another, each
// with a small head start; the first to answer as it should is taken.
func (c *connection) dial(ctx context.Context, config Config, places []netip.AddrPort, h hello) (*net.TCPConn, netip.AddrPort, error) {
	type result struct {
		conn  *net.TCPConn
		place netip.AddrPort
		err   error
	}
	if len(places) == 0 {
		return nil, netip.AddrPort{}, fault.Of(c.peer, fmt.Errorf("%w: it listens at %v alone, which is of no use from here", framework.ErrPeer, c.address.places))
	}
	limit, release := context.WithTimeout(ctx, config.ConnectTimeout+config.AnswerTimeout)
	defer release()
	results := make(chan result, len(places))
	for i, place := range places {
		go func() {
			select {
			case <-time.After(time.Duration(i) * headStart):
			case <-limit.Done():
				results <- result{place: place, err: limit.Err()}
				return
			}
			conn, err := c.persist(limit, config, place, h)
			results <- result{conn, place, err}
		}()
	}
	var failed []error
	for n := range places {
		r := <-results
		if r.err != nil {
			failed = append(failed, fmt.Errorf("at %v: %w", r.place, r.err))
			continue
		}
		release() // the others end, and what they may have is closed
		go func() {
			for range len(places) - n - 1 {
				if r := <-results; r.conn != nil {
					r.conn.Close()
				}
			}
		}()
		return r.conn, r.place, nil
	}
	err := errors.Join(failed...)
	if ctx.Err() == nil {
		return nil, netip.AddrPort{}, fault.Of(c.peer, fmt.Errorf("%w: no connection (options connect_timeout %v, answer_timeout %v): %w", framework.ErrPeer, config.ConnectTimeout, config.AnswerTimeout, err))
	}
	return nil, netip.AddrPort{}, fault.Of(c.peer, fmt.Errorf("%w: no connection: %w", framework.ErrPeer, err))
}

// A peer that many strangers call ends the oldest handshakes, and that may be this one. So
// a handshake that was broken off is begun again, a few times.
const (
	attempts   = 8
	firstPause = 10 * time.Millisecond // before the second; each one is twice as long as the last
)

// persist calls one place until it answers, or cannot.
func (c *connection) persist(ctx context.Context, config Config, place netip.AddrPort, h hello) (*net.TCPConn, error) {
	for n := 0; ; n++ {
		conn, err := c.call(ctx, config, place, h)
		if !errors.Is(err, errBrokenOff) || n+1 == attempts {
			return conn, err
		}
		select {
		case <-time.After(firstPause << n):
		case <-ctx.Done():
			return nil, err
		}
	}
}

// call connects to one place and proves that this rank has the address.
func (c *connection) call(ctx context.Context, config Config, place netip.AddrPort, h hello) (*net.TCPConn, error) {
	d := net.Dialer{Control: config.control, KeepAlive: -1}
	if c.sameHost {
		d.Control = config.localControl
	}
	reached, release := context.WithTimeout(ctx, config.ConnectTimeout)
	made, err := d.DialContext(reached, "tcp", place.String())
	release()
	if err != nil {
		return nil, err
	}
	conn := made.(*net.TCPConn)
	// The end of the context ends the handshake as well.
	ctx, release = context.WithTimeout(ctx, config.AnswerTimeout)
	defer release()
	stop := context.AfterFunc(ctx, func() { _ = conn.SetDeadline(time.Unix(1, 0)) })
	err = greet(conn, c.address.secret, h)
	if !stop() && err == nil {
		err = ctx.Err()
	}
	if err == nil {
		err = config.keepAlive(conn)
	}
	if err != nil {
		conn.Close()
		return nil, err
	}
	return conn, nil
}
