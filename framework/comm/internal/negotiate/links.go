package negotiate

import (
	"cmp"
	"slices"

	"github.com/mscclpp-go/mscclpp/framework"
	"github.com/mscclpp-go/mscclpp/framework/comm/internal/transport"
)

// Listed says which transport carries one kind of channel to one peer.
type Listed struct {
	Kind      framework.Kind
	Peer      int
	Transport *transport.Transport
}

// Links lists the links of this rank so far, by kind and peer. A link is made when a
// channel first needs it.
func (n *Negotiator) Links() []Listed {
	n.mu.Lock()
	defer n.mu.Unlock()
	all := make([]Listed, 0, len(n.links))
	for key, l := range n.links {
		if key.Number > 0 { // one of several, which are alike
			continue
		}
		all = append(all, Listed{key.Kind, key.Peer, l.Transport})
	}
	slices.SortFunc(all, func(a, b Listed) int {
		return cmp.Or(cmp.Compare(a.Kind, b.Kind), cmp.Compare(a.Peer, b.Peer))
	})
	return all
}
