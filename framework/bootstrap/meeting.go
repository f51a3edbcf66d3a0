package bootstrap

import (
	"context"
	"fmt"
	"net"
	"net/netip"
	"strings"
	"time"

	"github.com/mscclpp-go/mscclpp/framework"
	"github.com/mscclpp-go/mscclpp/framework/bootstrap/internal/meeting"
)

// idMeeting: the addresses are those of the process that made the id, which need not be a rank. A thread of it says to
// all ranks where rank 0 listens, if they show the token in bytes 110 to 123. The secret is proven between ranks as ever.
const idMeeting = 2

func (id UniqueID) isMeeting() bool { return id[6]&idMeeting != 0 }

// at returns the id with other addresses, at which rank 0 listens.
func (id UniqueID) at(addresses []netip.AddrPort) UniqueID {
	clear(id[56:124])
	id[5], id[6] = byte(len(addresses)), idListening
	for i, a := range addresses {
		meeting.PutAddress(id[56+18*i:], a)
	}
	return id.sealed()
}

// meet turns an id that leads to a meeting place into one that leads to rank 0. Rank 0
// begins to listen before it says where.
func (c *caller) meet(ctx context.Context) error {
	id := c.cfg.ID
	if !id.isMeeting() {
		return nil
	}
	conn, err := c.reachMeeting(ctx)
	if err != nil {
		return err
	}
	defer conn.Close()
	stop := context.AfterFunc(ctx, func() { _ = conn.SetDeadline(time.Unix(1, 0)) })
	defer stop()
	q := meeting.Question{Token: id[110 : 110+meeting.Token], Rank: c.party.Rank, Size: c.party.Size}
	if c.party.Rank == 0 {
		if q.Listening, err = c.listenTowards(ctx, conn); err != nil {
			return err
		}
	}
	addresses, err := q.Ask(conn)
	switch {
	case ctx.Err() != nil && c.party.Rank == 0:
		return &framework.Error{Op: "bootstrap", Peer: framework.NoPeer, Err: fmt.Errorf("the process that made the unique id has not answered rank 0, this rank, at %v: expected it to run until all ranks have joined: %w", conn.RemoteAddr(), context.Cause(ctx))}
	case ctx.Err() != nil:
		return &framework.Error{Op: "bootstrap", Peer: 0, Err: fmt.Errorf("rank 0 has not come: this rank waits for it at the meeting place of the unique id, %v: %w", conn.RemoteAddr(), context.Cause(ctx))}
	case err != nil:
		return err
	}
	c.cfg.ID = id.at(addresses)
	return c.cfg.ID.Validate()
}

// listenTowards makes the listener of rank 0 at the address from which it reaches the meeting place.
func (c *caller) listenTowards(ctx context.Context, place *net.TCPConn) ([]netip.AddrPort, error) {
	here := addrPort(place.LocalAddr()).Addr()
	if c.cfg.Interface != "" {
		var err error
		if here, err = onInterface(c.cfg.Interface, c.cfg.Family, here); err != nil {
			return nil, err
		}
	}
	l, err := c.listen(ctx, netip.AddrPortFrom(here, 0).String())
	if err != nil {
		return nil, err
	}
	c.cfg.closeListener() // an id of this kind comes without one
	c.cfg.Listener = l
	return []netip.AddrPort{netip.AddrPortFrom(here.WithZone(""), addrPort(c.cfg.Listener.Addr()).Port())}, nil
}

// reachMeeting connects to the process that made the id. It has listened since before any
// other got the id, so no address is tried twice.
func (c *caller) reachMeeting(ctx context.Context) (*net.TCPConn, error) {
	candidates, err := c.candidates()
	for _, at := range candidates {
		var conn net.Conn
		attempt, cancel := context.WithTimeout(ctx, handshakeTimeout)
		conn, err = dialer.DialContext(attempt, c.cfg.Family.network(), at)
		cancel()
		if err == nil {
			return conn.(*net.TCPConn), nil
		}
	}
	if len(candidates) > 0 {
		err = fmt.Errorf("%w: the process that made the unique id does not answer at %s: it must live, and be reachable, until all ranks have joined: %w", framework.ErrPeer, strings.Join(candidates, " or "), err)
	}
	return nil, err
}
