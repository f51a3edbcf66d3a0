package comm

import (
	"cmp"
	"slices"

	"github.com/mscclpp-go/mscclpp/framework"
)

// Link says which transport carries one kind of channel to one peer.
type Link struct {
	Kind      framework.Kind
	Peer      int
	Transport *Transport
}

// Offers reports whether one of the configured transports claims channels of kind k.
// Whether it reaches a particular peer is known only when a channel is built.
func (c *Communicator) Offers(k framework.Kind) bool {
	return slices.ContainsFunc(c.opts.Transports, func(t *Transport) bool { return t.Description.Has(k) })
}

// Links lists the links of this rank so far, by kind and peer. A link is made when a
// channel first needs it.
func (c *Communicator) Links() []Link {
	c.parts.mu.Lock()
	defer c.parts.mu.Unlock()
	all := make([]Link, 0, len(c.links))
	for key, l := range c.links {
		if key.number > 0 { // one of several, which are alike
			continue
		}
		all = append(all, Link{key.kind, key.peer, l.transport})
	}
	slices.SortFunc(all, func(a, b Link) int {
		return cmp.Or(cmp.Compare(a.Kind, b.Kind), cmp.Compare(a.Peer, b.Peer))
	})
	return all
}
