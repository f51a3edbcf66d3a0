package negotiate

import (
	"context"
	"errors"
	"fmt"

	"github.com/mscclpp-go/mscclpp/framework"
	"github.com/mscclpp-go/mscclpp/framework/comm/internal/preamble"
)

// Link returns a connection and makes it when it is first asked for. Both sides call it.
// The caller
// is in a call of set-up.
func (n *Negotiator) Link(ctx context.Context, key Key) (*Link, error) {
	if l := n.links[key]; l != nil {
		return l, nil
	}
	l, err := n.makeLink(ctx, key.Kind, key.Peer)
	if err != nil {
		return nil, err
	}
	n.Linked(key.Kind, key.Peer, l)
	n.mu.Lock()
	defer n.mu.Unlock()
	if n.links == nil {
		n.links = make(map[Key]*Link)
	}
	n.links[key] = l
	return l, nil
}

func (n *Negotiator) makeLink(ctx context.Context, k framework.Kind, peer int) (*Link, error) {
	ends, offers, err := n.listen(ctx, k, []int{min(n.Boot.Rank(), peer), max(n.Boot.Rank(), peer)}, 0)
	chosen := ""
	defer func() {
		n.closeEndpoints(ends, chosen)
		ends[chosen].Address.Close() // the peer has it
	}()
	if err != nil {
		return nil, err
	}
	parcel, err := packOffers(offers, ends)
	if err != nil {
		return nil, err
	}
	tag := preamble.TagLink + framework.Tag(k)<<8
	if err := n.Boot.Send(ctx, peer, tag, parcel); err != nil {
		return nil, err
	}
	answer, err := n.Boot.Recv(ctx, peer, tag)
	if err != nil {
		return nil, err
	}
	defer answer.Close()
	theirs, addresses, err := unpackOffers(answer)
	if err != nil {
		return nil, &framework.Error{Op: "link", Peer: peer, Err: err}
	}
	first, second := offers, theirs
	if peer < n.Boot.Rank() {
		first, second = theirs, offers
	}
	name, err := choose(first, second)
	if err != nil { // both ends see that, and are in step
		return nil, &preamble.Refusal{Err: &framework.Error{Op: k.String() + " link", Peer: peer, Err: err}}
	}
	t, end := n.named(name), ends[name]
	conn, err := t.Connect(ctx, end.ID, []framework.Peer{{Rank: peer, Address: addresses[name]}})
	if err == nil && conn == 0 {
		err = fmt.Errorf("%w: %s answers with connection 0", framework.ErrPlugin, name)
	}
	if err != nil {
		return nil, &framework.Error{Op: "connect", Peer: peer, Err: err}
	}
	chosen = name
	n.warnPassed(peer, name, offers, theirs)
	n.Log.Debug("linked", "peer", peer, "kind", k, "transport", name)
	mine, other := offered(offers, name), offered(theirs, name)
	return &Link{
		Transport: t, endpoint: end.ID, Conn: conn, Streamed: mine.Streams && other.Streams,
		Several: max(1, min(mine.Links, other.Links, framework.MostLinks)),
	}, nil
}

// Close releases all links. A plugin that is gone has released its part.
func (n *Negotiator) Close(ctx context.Context) error {
	var first error
	keep := func(err error) {
		if err != nil && !errors.Is(err, framework.ErrPlugin) && first == nil {
			first = err
		}
	}
	for _, l := range n.links {
		if l.Inbox.Close != nil {
			keep(l.Inbox.Close(ctx))
		}
		keep(l.Transport.Close(ctx, l.Conn))
		keep(l.Transport.Close(ctx, l.endpoint))
	}
	return first
}
