package comm

import (
	"cmp"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"slices"
	"strings"

	"github.com/mscclpp-go/mscclpp/framework"
	"github.com/mscclpp-go/mscclpp/framework/proxy"
)

type linkKey struct {
	kind   framework.Kind
	peer   int
	number int // of several to one peer, which port channels use in turn
}

// link is a connection to one peer, or for a switch to all others.
type link struct {
	transport *Transport
	endpoint  framework.ID
	conn      framework.ID
	inbox     remote           // the peer's semaphore counters, where they are mapped here
	peerKey   framework.Parcel // port link: their key, where a proxy of the transport raises them
	posted    posted           // port link: where it leaves counts for the rank to forward
	lane      *proxy.Lane      // port link: the stream, where the rank's copy engine does
	tokens    *tokens          // and the peer's, where they are mapped here
	hosted    bool             // the peer raises tokens of this rank, not its counters
	streamed  bool             // port link: the rank drives its sockets
	stream    *streamLink      // these sockets
	several   int              // port link, the first to the peer: how many there are to it once all are used
	users     int              // and how many channels have been given one of them
	parting   parting          // port link by adapters: of the peer
}

// offer is what one side can do towards a peer over one transport.
type offer struct {
	Name  string   `json:"name"`
	Reach []string `json:"reach"`
	Data  []byte   `json:"data"`
	// Kinds of the address's shares; their blobs and descriptors are the next
	// ones of the message that carries the offers.
	Shares  int    `json:"shares"`
	Streams bool   `json:"streams,omitempty"` // port: the rank would drive the sockets itself
	Links   int    `json:"links,omitempty"`   // port: connections that channels would use in turn
	Why     string `json:"why,omitempty"`     // not offered, and the reason
	Never   bool   `json:"never,omitempty"`   // nor at any other time
}

// link returns a connection and makes it when it is first asked for. Both sides call it.
// The caller holds c.setup.
func (c *Communicator) link(ctx context.Context, key linkKey) (*link, error) {
	if l := c.links[key]; l != nil {
		return l, nil
	}
	l, err := c.makeLink(ctx, key.kind, key.peer)
	if err != nil {
		return nil, err
	}
	l.parting = c.partings.expect(c, key.kind, key.peer, l)
	c.parts.mu.Lock() // for Links; others read it in a call of set-up
	defer c.parts.mu.Unlock()
	c.links[key] = l
	return l, nil
}

func (c *Communicator) makeLink(ctx context.Context, k framework.Kind, peer int) (*link, error) {
	ends, offers, err := c.listen(ctx, k, []int{min(c.Rank(), peer), max(c.Rank(), peer)}, 0)
	chosen := ""
	defer func() {
		c.closeEndpoints(ends, chosen)
		ends[chosen].Address.Close() // the peer has it
	}()
	if err != nil {
		return nil, err
	}
	parcel, err := packOffers(offers, ends)
	if err != nil {
		return nil, err
	}
	tag := tagLink + framework.Tag(k)<<8
	if err := c.boot.Send(ctx, peer, tag, parcel); err != nil {
		return nil, err
	}
	answer, err := c.boot.Recv(ctx, peer, tag)
	if err != nil {
		return nil, err
	}
	defer answer.Close()
	theirs, addresses, err := unpackOffers(answer)
	if err != nil {
		return nil, &framework.Error{Op: "link", Peer: peer, Err: err}
	}
	first, second := offers, theirs
	if peer < c.Rank() {
		first, second = theirs, offers
	}
	name, err := choose(first, second)
	if err != nil { // both ends see that, and are in step
		return nil, &refusal{&framework.Error{Op: k.String() + " link", Peer: peer, Err: err}}
	}
	t, end := c.transport(name), ends[name]
	conn, err := t.Connect(ctx, end.ID, []framework.Peer{{Rank: peer, Address: addresses[name]}})
	if err == nil && conn == 0 {
		err = fmt.Errorf("%w: %s answers with connection 0", framework.ErrPlugin, name)
	}
	if err != nil {
		return nil, &framework.Error{Op: "connect", Peer: peer, Err: err}
	}
	chosen = name
	c.warnPassed(peer, name, offers, theirs)
	c.log.Debug("linked", "peer", peer, "kind", k, "transport", name)
	mine, other := offered(offers, name), offered(theirs, name)
	return &link{
		transport: t, endpoint: end.ID, conn: conn, streamed: mine.Streams && other.Streams,
		several: max(1, min(mine.Links, other.Links, framework.MostLinks)),
	}, nil
}

// shut releases a link; that of a communicator that has failed drops what waits for
// the copy engine. A plugin that is gone has released its part.
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
	if l.tokens != nil {
		keep(l.tokens.close())
	}
	if l.stream != nil {
		keep(l.stream.close(ctx, l.transport))
	}
	if l.inbox.close != nil {
		keep(l.inbox.close(ctx))
	}
	if l.posted.close != nil {
		keep(l.posted.close(ctx))
	}
	keep(l.peerKey.Close())
	keep(l.transport.Close(ctx, l.conn))
	keep(l.transport.Close(ctx, l.endpoint))
	return first
}

// listen asks every transport for an endpoint of a link between ranks. One that
// cannot is not an error here: its reason is reported if none remains. One that takes until
// ctx ends is: no time is left to tell the peer, who would get the blame.
func (c *Communicator) listen(ctx context.Context, k framework.Kind, ranks []int, bytes uint64) (map[string]framework.Endpoint, []offer, error) {
	ends := make(map[string]framework.Endpoint)
	var offers []offer
	for _, t := range c.opts.Transports {
		if !t.Description.Has(k) {
			continue
		}
		if why := c.undriven(k, t); why != "" {
			offers = append(offers, offer{Name: t.Name, Why: why, Never: true})
			continue
		}
		if why := c.probe(ctx, t); why != "" {
			offers = append(offers, offer{Name: t.Name, Why: why})
			continue
		}
		end, err := t.Listen(ctx, framework.EndpointConfig{
			Kind: k, Rank: c.Rank(), Ranks: ranks, Bytes: bytes,
			Group: c.opts.Name, Device: c.dev.Info().Device, Facts: c.opts.Facts,
		})
		if err == nil && (end.ID == 0 || k != framework.KindSwitch && len(end.Create) > 0) {
			end.Address.Close()
			c.undo(func(ctx context.Context) error { return t.Close(ctx, end.ID) })
			err = fmt.Errorf("%w: %s answers with endpoint %d and %d objects", framework.ErrPlugin, t.Name, end.ID, len(end.Create))
		}
		if err != nil && ctx.Err() != nil {
			return ends, nil, err
		}
		if err != nil {
			offers = append(offers, offer{Name: t.Name, Why: plainly(err.Error()), Never: errors.Is(err, framework.ErrUnsupported)})
			continue
		}
		ends[t.Name] = end
		offers = append(offers, offer{Name: t.Name, Reach: end.Reach, Data: end.Address.Data, Shares: len(end.Address.Shares), Streams: c.streams(k, t), Links: t.Description.Links})
	}
	return ends, offers, nil
}

// undriven says why nobody could drive port channels of a transport, or "".
func (c *Communicator) undriven(k framework.Kind, t *Transport) string {
	switch {
	case k != framework.KindPort || t.Description.Proxy == framework.ProxyPlugin:
		return ""
	case t.Description.Proxy != framework.ProxyRank:
		return "it has no proxy"
	case c.control.engine.lane == nil:
		return fmt.Sprintf("its port channels are driven by the copy engine of the rank's device, and %v has none", c.dev.Info().Device)
	}
	return ""
}

// probe asks a transport, once, whether its hardware is there, and returns why it
// cannot be used, or "".
func (c *Communicator) probe(ctx context.Context, t *Transport) string {
	if !t.Description.Probe {
		return ""
	}
	if why, ok := c.probed[t]; ok {
		return why
	}
	prober, ok := t.Transport.(framework.Prober)
	if !ok {
		return "it claims to probe its hardware and cannot"
	}
	live, err := prober.Probe(ctx, c.opts.Facts)
	if err != nil {
		return plainly(err.Error()) // it may be better next time
	}
	why := ""
	if !live.Available {
		why = cmp.Or(plainly(live.Reason), "its hardware is not there")
		c.log.Debug("no hardware", "transport", t.Name, "reason", why)
	} else {
		c.log.Debug("hardware", "transport", t.Name, "found", live.Facts)
	}
	c.probed[t] = why
	return why
}

// closeEndpoints closes all but the chosen one.
func (c *Communicator) closeEndpoints(ends map[string]framework.Endpoint, chosen string) {
	for name, e := range ends {
		if name != chosen {
			e.Address.Close()
			c.undo(func(ctx context.Context) error { return c.transport(name).Close(ctx, e.ID) })
		}
	}
}

func offered(offers []offer, name string) offer {
	return offers[slices.IndexFunc(offers, func(o offer) bool { return o.Name == name })]
}

func (c *Communicator) transport(name string) *Transport {
	for _, t := range c.opts.Transports {
		if t.Name == name {
			return t
		}
	}
	return nil
}

// packOffers puts all offers into one parcel: JSON, and the shares in order.
func packOffers(offers []offer, ends map[string]framework.Endpoint) (framework.Parcel, error) {
	data, err := json.Marshal(offers)
	if err != nil {
		return framework.Parcel{}, err
	}
	p := framework.Parcel{Data: data}
	for _, o := range offers {
		p.Shares = append(p.Shares, ends[o.Name].Address.Shares...)
	}
	return p, nil
}

func unpackOffers(p framework.Parcel) ([]offer, map[string]framework.Parcel, error) {
	var offers []offer
	if err := json.Unmarshal(p.Data, &offers); err != nil {
		return nil, nil, fmt.Errorf("%w: offers: %v", framework.ErrPeer, err)
	}
	shares := p.Shares
	addresses := make(map[string]framework.Parcel)
	for _, o := range offers {
		if o.Shares < 0 || o.Shares > len(shares) {
			return nil, nil, fmt.Errorf("%w: offer of %s has %d shares, %d arrived", framework.ErrPeer, o.Name, o.Shares, len(shares))
		}
		addresses[o.Name] = framework.Parcel{Data: o.Data, Shares: shares[:o.Shares]}
		shares = shares[o.Shares:]
	}
	return offers, addresses, nil
}

// choose returns the first transport, in the lower rank's order, whose endpoints
// on both sides share a reach token. Both sides compute it alike.
func choose(lower, higher []offer) (string, error) {
	for _, a := range lower {
		for _, b := range higher {
			if a.Name == b.Name && a.Why == "" && b.Why == "" && slices.ContainsFunc(a.Reach, func(token string) bool {
				return slices.Contains(b.Reach, token)
			}) {
				return a.Name, nil
			}
		}
	}
	class, advice := framework.ErrUnavailable, ""
	if slices.ContainsFunc(lower, func(a offer) bool {
		return a.Why == "" && slices.ContainsFunc(higher, func(b offer) bool { return a.Name == b.Name && b.Why == "" })
	}) { // both have it, and it does not lead from one to the other
		advice = ": expected one that reaches both, such as tcp, in transports on all ranks"
	}
	if hopeless(lower) || hopeless(higher) {
		class = framework.ErrUnsupported
	}
	return "", fmt.Errorf("%w: no common transport: %s%s", class, describeBoth(lower, higher), advice)
}

// plainly is a reason without the class of its error: who reads it knows that the transport
// cannot be used.
func plainly(why string) string {
	for _, class := range framework.Classes {
		why = strings.TrimPrefix(why, class.Error()+": ")
	}
	return why
}

// describeBoth says what both sides offer, and once what they lack for the same reason.
func describeBoth(lower, higher []offer) string {
	var both []string
	rest := func(own, other []offer, note bool) string {
		kept := slices.DeleteFunc(slices.Clone(own), func(o offer) bool {
			same := o.Why != "" && slices.ContainsFunc(other, func(p offer) bool { return p.Name == o.Name && p.Why == o.Why })
			if same && note {
				both = append(both, fmt.Sprintf("%s (%s)", o.Name, o.Why))
			}
			return same
		})
		if len(kept) == 0 && len(own) > 0 {
			return "no other"
		}
		return describe(kept)
	}
	low, high := rest(lower, higher, true), rest(higher, lower, false)
	var words []string
	if len(both) > 0 {
		words = append(words, "both ranks lack "+strings.Join(both, ", "))
	}
	if low != "no other" || high != "no other" {
		words = append(words, "lower rank offers "+low, "higher rank offers "+high)
	}
	return strings.Join(words, "; ")
}

// hopeless reports whether a rank has transports of the kind, and none of them can
// ever make the link.
func hopeless(offers []offer) bool {
	return len(offers) > 0 && !slices.ContainsFunc(offers, func(o offer) bool { return !o.Never })
}

func describe(offers []offer) string {
	if len(offers) == 0 {
		return "none of this kind"
	}
	words := make([]string, len(offers))
	for i, o := range offers {
		if words[i] = fmt.Sprintf("%s %v", o.Name, o.Reach); o.Why != "" {
			words[i] = fmt.Sprintf("%s (%s)", o.Name, o.Why)
		}
	}
	return strings.Join(words, ", ")
}
