package comm

import (
	"context"
	"encoding/json"
	"fmt"
	"sync"

	"github.com/mscclpp-go/mscclpp/framework"
)

// passedOver knows which transports somebody was warned of, that they are there and cannot
// be used: of a communicator and all that are made of it.
type passedOver struct {
	mu   sync.Mutex
	told map[string]bool
}

// first reports whether nobody was warned of a transport so far, and that somebody is now.
func (p *passedOver) first(name string) bool {
	p.mu.Lock()
	defer p.mu.Unlock()
	was := p.told[name]
	p.told[name] = true
	return !was
}

// Survey asks the transports whether the hardware for channels of kind k is present on
// all ranks. If a preferred transport is going to be skipped because its hardware is
// missing, rank 0 warns of it, once for the communicator and all that are made from it.
// Survey is meant for calls that link all ranks. Without it, each rank finds out by
// itself, and warns when it links by a transport after the preferred one. Collective.
func (c *Communicator) Survey(ctx context.Context, k framework.Kind) error {
	return c.setUp(ctx, opSurvey, func(ctx context.Context) error {
		mine, err := json.Marshal(c.lacking(ctx, k))
		if err != nil {
			return err
		}
		all, err := c.agree(ctx, opSurvey, mine, nil)
		if err != nil {
			return err
		}
		said := make([]map[string]string, len(all))
		for r, b := range all {
			if err := json.Unmarshal(b, &said[r]); err != nil {
				return &framework.Error{Op: opSurvey, Peer: r, Err: fmt.Errorf("%w: %.80q: expected what its transports lack: %v", framework.ErrPeer, b, err)}
			}
		}
		for _, t := range c.opts.Transports {
			c.warnLacking(t.Name, said)
		}
		return nil
	})
}

// lacking is why transports cannot be used here for links of a kind, by name: of those that
// are preferred to others.
func (c *Communicator) lacking(ctx context.Context, k framework.Kind) map[string]string {
	var usable []*Transport
	for _, t := range c.opts.Transports {
		if t.Description.Has(k) && c.undriven(k, t) == "" {
			usable = append(usable, t)
		}
	}
	lacks := make(map[string]string)
	for i, t := range usable {
		if i == len(usable)-1 {
			break // where it cannot be used there is no link, and an error says why
		}
		if why := c.probe(ctx, t); why != "" {
			lacks[t.Name] = why
		}
	}
	return lacks
}

// warnLacking warns of one transport by what all ranks have said.
func (c *Communicator) warnLacking(name string, said []map[string]string) {
	rank, ranks := 0, 0
	for r, lacks := range said {
		if lacks[name] != "" {
			if ranks++; ranks == 1 {
				rank = r
			}
		}
	}
	if ranks > 0 && c.passed.first(name) && c.Rank() == 0 {
		c.log.Warn("a transport is passed over", "transport", name, "ranks", ranks, "first", rank, "host", c.HostOf(rank), "reason", said[rank][name])
	}
}

// warnPassed warns of transports that the ranks of a link prefer to the one that they have
// chosen, and that one of them cannot use now: by the offers of this rank and the peer. The
// lower rank does it. What no rank could ever use for such links is no loss.
func (c *Communicator) warnPassed(peer int, chosen string, mine, theirs []offer) {
	if peer < c.Rank() {
		return
	}
	for _, o := range mine {
		if o.Name == chosen {
			return
		}
		rank := c.Rank()
		for _, t := range theirs {
			if o.Why == "" && t.Name == o.Name {
				o, rank = t, peer
			}
		}
		if o.Why != "" && !o.Never && c.passed.first(o.Name) {
			c.log.Warn("a transport is passed over", "transport", o.Name, "instead", chosen, "peer", peer, "first", rank, "host", c.HostOf(rank), "reason", o.Why)
		}
	}
}
