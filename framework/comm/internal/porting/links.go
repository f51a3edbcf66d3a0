package porting

import (
	"context"
	"errors"

	"github.com/mscclpp-go/mscclpp/framework"
	"github.com/mscclpp-go/mscclpp/framework/comm/internal/negotiate"
	"github.com/mscclpp-go/mscclpp/framework/proxy"
)

// link returns one of the links to a peer.
func (s *Ports) link(ctx context.Context, peer, number int) (*link, error) {
	made, err := s.Links.Link(ctx, negotiate.Key{Kind: framework.KindPort, Peer: peer, Number: number})
	if err != nil {
		return nil, err
	}
	l := s.links[made]
	if l == nil {
		l = &link{Link: made, goodbye: s.goodbyes.expect(s, framework.KindPort, peer, made)}
		s.links[made] = l
	}
	return l, nil
}

// portLink returns a link for port channels; with it go the semaphore counters of the peer:
// their key for a proxy of the transport, else their address, and a stream.
func (s *Ports) portLink(ctx context.Context, peer int) (*link, error) {
	first, err := s.link(ctx, peer, 0)
	if err != nil {
		return nil, err
	}
	number := first.users % first.Several // both ends count alike: they build channels in the same order
	first.users++
	l, err := s.link(ctx, peer, number)
	if err != nil {
		return nil, err
	}
	if l.Transport.Description.Proxy == framework.ProxyRank {
		return l, s.driveLink(ctx, l, peer)
	}
	if l.Streamed {
		return l, s.streamLink(ctx, l, peer)
	}
	if l.peerKey.Data != nil {
		return l, nil
	}
	if err := s.Links.SendKey(ctx, l.Link, peer, s.Counters.Inbound); err != nil {
		return nil, err
	}
	if l.peerKey, _, err = s.Links.RecvBareKey(ctx, peer); err != nil {
		return nil, err
	}
	return l, s.openInbox(ctx, l, peer)
}

// driveLink makes a link ready for the rank's own copy engine.
func (s *Ports) driveLink(ctx context.Context, l *link, peer int) error {
	if l.lane != nil {
		return nil
	}
	if err := s.Links.Inbox(ctx, l.Link, peer); err != nil {
		return err
	}
	if err := s.tradeHostCounters(ctx, l, peer); err != nil {
		return err
	}
	word, err := s.Counters.Queue.Word()
	if err == nil {
		l.lane, err = proxy.NewLane(s.Counters.Queue.Engine, peer, word)
	}
	if err != nil {
		return &framework.Error{Op: "link", Peer: peer, Err: err}
	}
	return nil
}

// shut releases what this package has added to a link; that of a communicator that has
// failed drops what waits for the copy engine.
func (l *link) shut(ctx context.Context, failed bool) error {
	var first error
	keep := func(err error) {
		if err != nil && !errors.Is(err, framework.ErrPlugin) && first == nil {
			first = err
		}
	}
	if l.lane != nil {
		if failed {
			l.lane.Drop()
		}
		keep(l.lane.Close(ctx))
	}
	if l.host != nil {
		keep(l.host.Close())
	}
	if l.stream != nil {
		keep(l.stream.close(ctx, l.Transport))
	}
	if l.posted.close != nil {
		keep(l.posted.close(ctx))
	}
	keep(l.peerKey.Close())
	return first
}
