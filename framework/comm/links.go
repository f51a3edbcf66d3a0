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

// Offers reports whether one of the configured transports claims channels of kind
// k. Whether it reaches a certain peer is only known when a channel is built.
func (c *Communicator) Offers(k framework.Kind) bool {
	return slices.ContainsFunc(c.opts.Transports, func(t *Transport) bool { return t.Description.Has(k) })
}

// Links lists what connects this rank so far, by kind and peer. Connections come into being
// when a channel first needs them.
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
