package bootstrap

import (
	"context"
	"errors"
	"fmt"
	"net"
	"strings"
	"syscall"
	"time"

	"github.com/mscclpp-go/mscclpp/framework"
	"github.com/mscclpp-go/mscclpp/framework/bootstrap/internal/handshake"
)

// familyOnHost refuses a family of which this host has no address: otherwise the
// rank would wait in vain for a connection.
func (c *caller) familyOnHost() error {
	if c.cfg.Family == AnyFamily {
		return nil
	}
	addrs, err := c.cfg.addresses()
	if err != nil {
		return fmt.Errorf("%w: the addresses of this host: %w", framework.ErrUnavailable, err)
	}
	return c.cfg.Family.among(addrs)
}

// candidates are the addresses at which rank 0 may be, best first.
func (c *caller) candidates() ([]string, error) {
	ids := c.cfg.ID.Addresses()
	if len(ids) == 0 {
		return []string{c.cfg.Addr}, nil
	}
	var out []string
	for _, a := range ids {
		if c.cfg.Family.admits(a.Addr()) {
			out = append(out, a.String())
		}
	}
	if len(out) == 0 {
		return nil, fmt.Errorf("%w: the unique id says that rank 0 listens at %v: expected an %s address, because bootstrap.family is %s", framework.ErrInvalid, ids, c.cfg.Family, string(c.cfg.Family))
	}
	return out, nil
}

// findRoot connects to rank 0, which may not have started yet: then it tries again
// until ctx ends. A rank 0 that is known to have listened before and does not any
// more has failed or left, and nothing will come of waiting.
func (c *caller) findRoot(ctx context.Context) (*net.TCPConn, error) {
	candidates, err := c.candidates()
	if err != nil {
		return nil, err
	}
	where := strings.Join(candidates, " or ")
	failed := func(err error) (*net.TCPConn, error) {
		return nil, &framework.Error{Op: "bootstrap", Peer: 0, Err: err}
	}
	start := time.Now()
	var pause backoff
	var last, refusal error
	for {
		refused, elsewhere, pathless := 0, 0, 0
		for _, at := range candidates {
			begun := time.Now()
			conn, err := c.connect(ctx, at, handshake.CheckIn, 0)
			if err == nil {
				return conn, nil
			}
			if noRoute(err) && time.Since(begun) < atOnce {
				pathless++
			}
			if last == nil || !over(ctx) { // an attempt cut short says less
				last = err
			}
			if !retry(err) && (len(c.cfg.ID.Addresses()) > 0 && c.cfg.ID[6]&idSuccessor == 0 || !busy(err)) {
				return failed(err)
			}
			switch {
			case errors.Is(err, syscall.ECONNREFUSED):
				refused, refusal = refused+1, err
			case unreachable(err):
				elsewhere++
			}
		}
		if refused > 0 && refused+elsewhere == len(candidates) && c.cfg.ID.isListening() {
			return failed(fmt.Errorf("rank 0 does not listen at %s any more, where it listened before this unique id was given out: it has failed, or the job has ended (a process joins a job once; its communicators are split for more): %w", where, refusal))
		}
		if pathless == len(candidates) {
			return failed(fmt.Errorf("no route from this host to rank 0 at %s: see whether the address is right and the interface that leads there is up: %w", where, last))
		}
		if !pause.wait(ctx) && busy(last) {
			return failed(fmt.Errorf("%w (this rank has waited %v for it to end: %w)", last, time.Since(start).Round(time.Millisecond), context.Cause(ctx)))
		}
		if ctx.Err() != nil {
			return failed(fmt.Errorf("rank 0 does not answer: this rank has waited %v for it to listen at %s; it has not started there, or has failed and gone: last attempt: %w: %w",
				time.Since(start).Round(time.Millisecond), where, last, context.Cause(ctx)))
		}
	}
}

// over reports whether the time of a context is up. A connection with the same deadline may notice before the context.
func over(ctx context.Context) bool {
	limit, bounded := ctx.Deadline()
	return ctx.Err() != nil || bounded && !time.Now().Before(limit)
}

// unreachable reports whether an address belongs to a network that this host is not part of. The
// answer of a host without IPv6 depends on how that was turned off: for the kernel, for the network
// namespace, or by leaving out the route.
func unreachable(err error) bool {
	return errors.Is(err, syscall.EAFNOSUPPORT) || errors.Is(err, syscall.EADDRNOTAVAIL) || errors.Is(err, syscall.ENETUNREACH)
}

// atOnce is the time within which this host itself, or a router, says that there is no
// route. A host of its own network that does not answer for seconds may be starting.
const atOnce = time.Second

// noRoute reports whether an attempt ended because nothing leads to the address, which
// waiting does not change.
func noRoute(err error) bool {
	for _, number := range []syscall.Errno{syscall.ENETUNREACH, syscall.EHOSTUNREACH, syscall.ENETDOWN, syscall.EHOSTDOWN, syscall.EAFNOSUPPORT, syscall.EACCES, syscall.EPERM} {
		if errors.Is(err, number) {
			return true
		}
	}
	return false
}

// busy reports whether another job has the address, which may end in time.
func busy(err error) bool {
	return errors.Is(err, handshake.ErrOtherJob) || errors.Is(err, handshake.ErrEnding)
}

// retry reports whether an attempt got no answer: one that was given will not change.
func retry(err error) bool {
	var op net.Error
	return errors.As(err, &op) || dropped(err)
}
