package negotiate

import (
	"cmp"
	"context"
	"errors"
	"fmt"

	"github.com/mscclpp-go/mscclpp/framework"
	"github.com/mscclpp-go/mscclpp/framework/comm/internal/transport"
)

// listen asks every transport for an endpoint of a link between ranks. One that cannot is not an
// error here: its reason is reported if none remains. One that takes until ctx ends is: no time is
// left to inform the peer, which would get the blame.
func (n *Negotiator) listen(ctx context.Context, k framework.Kind, ranks []int, bytes uint64) (map[string]framework.Endpoint, []offer, error) {
	ends := make(map[string]framework.Endpoint)
	var offers []offer
	for _, t := range n.Transports {
		if !t.Description.Has(k) {
			continue
		}
		if why := n.undriven(k, t); why != "" {
			offers = append(offers, offer{Name: t.Name, Why: why, Never: true})
			continue
		}
		if why := n.probe(ctx, t); why != "" {
			offers = append(offers, offer{Name: t.Name, Why: why})
			continue
		}
		end, err := t.Listen(ctx, framework.EndpointConfig{
			Kind: k, Rank: n.Boot.Rank(), Ranks: ranks, Bytes: bytes,
			Group: n.Name, Device: n.Counters.Dev.Info().Device, Facts: n.Facts,
		})
		if err == nil && (end.ID == 0 || k != framework.KindSwitch && len(end.Create) > 0) {
			end.Address.Close()
			n.Life.Rollback(func(ctx context.Context) error { return t.Close(ctx, end.ID) })
			err = fmt.Errorf("%w: %s answers with endpoint %d and %d objects", framework.ErrPlugin, t.Name, end.ID, len(end.Create))
		}
		if err != nil && ctx.Err() != nil {
			return ends, nil, err
		}
		if err != nil {
			offers = append(offers, offer{Name: t.Name, Why: transport.Plainly(err.Error()), Never: errors.Is(err, framework.ErrUnsupported)})
			continue
		}
		ends[t.Name] = end
		offers = append(offers, offer{Name: t.Name, Reach: end.Reach, Data: end.Address.Data, Shares: len(end.Address.Shares), Streams: n.streams(k, t), Links: t.Description.Links})
	}
	return ends, offers, nil
}

// undriven says why nobody could drive port channels of a transport, or "".
func (n *Negotiator) undriven(k framework.Kind, t *transport.Transport) string {
	switch {
	case k != framework.KindPort || t.Description.Proxy == framework.ProxyPlugin:
		return ""
	case t.Description.Proxy != framework.ProxyRank:
		return "it has no proxy"
	case n.Counters.Queue.Lane == nil:
		return fmt.Sprintf("its port channels are driven by the copy engine of the rank's device, and %v has none", n.Counters.Dev.Info().Device)
	}
	return ""
}

// probe asks a transport, once, whether its hardware is there, and returns why it
// cannot be used, or "".
func (n *Negotiator) probe(ctx context.Context, t *transport.Transport) string {
	if !t.Description.Probe {
		return ""
	}
	if why, ok := n.probed[t]; ok {
		return why
	}
	prober, ok := t.Transport.(framework.Prober)
	if !ok {
		return "it claims to probe its hardware and cannot"
	}
	live, err := prober.Probe(ctx, n.Facts)
	if err != nil {
		return transport.Plainly(err.Error()) // it may be better next time
	}
	why := ""
	if !live.Available {
		why = cmp.Or(transport.Plainly(live.Reason), "its hardware is not there")
		n.Log.Debug("no hardware", "transport", t.Name, "reason", why)
	} else {
		n.Log.Debug("hardware", "transport", t.Name, "found", live.Facts)
	}
	if n.probed == nil {
		n.probed = make(map[*transport.Transport]string)
	}
	n.probed[t] = why
	return why
}

// closeEndpoints closes all but the chosen one.
func (n *Negotiator) closeEndpoints(ends map[string]framework.Endpoint, chosen string) {
	for name, e := range ends {
		if name != chosen {
			e.Address.Close()
			n.Life.Rollback(func(ctx context.Context) error { return n.named(name).Close(ctx, e.ID) })
		}
	}
}

// streams reports whether this rank would drive the sockets of a transport's links.
func (n *Negotiator) streams(k framework.Kind, t *transport.Transport) bool {
	return k == framework.KindPort && t.Description.Streams && n.Counters.HostDev == nil
}

func (n *Negotiator) named(name string) *transport.Transport {
	for _, t := range n.Transports {
		if t.Name == name {
			return t
		}
	}
	return nil
}
