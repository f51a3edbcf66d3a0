package harness

import (
	"github.com/mscclpp-go/mscclpp/framework"
)

// Unknown is an id that no transport has reached.
const Unknown = framework.ID(1<<63 + 12345)

// Members are the ranks of a link of a kind.
func Members(kind framework.Kind) []int {
	if kind == framework.KindSwitch {
		return []int{0, 1, 2}
	}
	return []int{0, 1}
}

// LinkConfig is the configuration of rank r in a link of a kind.
func (r *Rank) LinkConfig(kind framework.Kind) framework.EndpointConfig {
	cfg := r.Config(kind, Members(kind)...)
	if kind == framework.KindSwitch {
		cfg.Bytes = WindowBytes
	}
	return cfg
}

// WindowBytes is the size of the window that the members of a switch link ask for.
const WindowBytes = 1 << 16

// Ends returns the endpoints of a link of a kind, one for each member.
func (t *T) Ends(kind framework.Kind) ([]*Rank, []framework.Endpoint) {
	all := t.Ranks(len(Members(kind)))
	list := make([]framework.Endpoint, len(all))
	for i, r := range all {
		list[i], _ = r.Listening(r.LinkConfig(kind))
	}
	return all, list
}

// PeersOf lists all ends but that of rank n, in ascending rank.
func PeersOf(n int, ends []framework.Endpoint) []framework.Peer {
	var peers []framework.Peer
	for i, e := range ends {
		if i != n {
			peers = append(peers, framework.Peer{Rank: i, Address: e.Address})
		}
	}
	return peers
}
