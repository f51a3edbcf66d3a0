package negotiate

import (
	"context"
	"encoding/json"
	"fmt"

	"github.com/mscclpp-go/mscclpp/framework"
	"github.com/mscclpp-go/mscclpp/framework/comm/internal/transport"
)

// Survey asks the transports whether the hardware for channels of kind k is present on all
// ranks, and warns of preferred ones that are going to be skipped.
func (n *Negotiator) Survey(ctx context.Context, k framework.Kind) error {
	mine, err := json.Marshal(n.lacking(ctx, k))
	if err != nil {
		return err
	}
	all, err := n.Rounds.Agree(ctx, OpSurvey, mine, nil)
	if err != nil {
		return err
	}
	said := make([]map[string]string, len(all))
	for r, b := range all {
		if err := json.Unmarshal(b, &said[r]); err != nil {
			return &framework.Error{Op: OpSurvey, Peer: r, Err: fmt.Errorf("%w: %.80q: expected what its transports lack: %v", framework.ErrPeer, b, err)}
		}
	}
	for _, t := range n.Transports {
		n.warnLacking(t.Name, said)
	}
	return nil
}

// lacking is why transports cannot be used here for links of a kind, by name: of those that
// are preferred to others.
func (n *Negotiator) lacking(ctx context.Context, k framework.Kind) map[string]string {
	var usable []*transport.Transport
	for _, t := range n.Transports {
		if t.Description.Has(k) && n.undriven(k, t) == "" {
			usable = append(usable, t)
		}
	}
	lacks := make(map[string]string)
	for i, t := range usable {
		if i == len(usable)-1 {
			break // where it cannot be used there is no link, and an error says why
		}
		if why := n.probe(ctx, t); why != "" {
			lacks[t.Name] = why
		}
	}
	return lacks
}

// warnLacking warns of one transport by what all ranks have said.
func (n *Negotiator) warnLacking(name string, said []map[string]string) {
	rank, ranks := 0, 0
	for r, lacks := range said {
		if lacks[name] != "" {
			if ranks++; ranks == 1 {
				rank = r
			}
		}
	}
	if ranks > 0 && n.Passed.first(name) && n.Boot.Rank() == 0 {
		n.Log.Warn("a transport is passed over", "transport", name, "ranks", ranks, "first", rank, "host", n.HostOf(rank), "reason", said[rank][name])
	}
}

// warnPassed warns of transports that the ranks of a link prefer to the one that they have chosen,
// and that one of them cannot use now: by the offers of this rank and the peer. The lower rank does
// it. A transport that no rank could ever use for such links is no loss.
func (n *Negotiator) warnPassed(peer int, chosen string, mine, theirs []offer) {
	if peer < n.Boot.Rank() {
		return
	}
	for _, o := range mine {
		if o.Name == chosen {
			return
		}
		rank := n.Boot.Rank()
		for _, t := range theirs {
			if o.Why == "" && t.Name == o.Name {
				o, rank = t, peer
			}
		}
		if o.Why != "" && !o.Never && n.Passed.first(o.Name) {
			n.Log.Warn("a transport is passed over", "transport", o.Name, "instead", chosen, "peer", peer, "first", rank, "host", n.HostOf(rank), "reason", o.Why)
		}
	}
}
