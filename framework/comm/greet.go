package comm

import (
	"cmp"
	"context"
	"encoding/json"
	"fmt"
	"os"
	"slices"

	"github.com/mscclpp-go/mscclpp/framework"
	"github.com/mscclpp-go/mscclpp/framework/bootstrap"
	"github.com/mscclpp-go/mscclpp/framework/comm/internal/preamble"
	"github.com/mscclpp-go/mscclpp/framework/kernel"
)

// hello is what ranks say to each other first. It is JSON so that ranks of
// different versions can still say what separates them.
type hello struct {
	ABI        int      `json:"abi"`
	Host       string   `json:"host"` // the host whose processors it shares
	Node       string   `json:"node"` // the host's name, for people
	Name       string   `json:"name"`
	Transports []string `json:"transports"` // in order of preference
}

// greet compares versions and transports, and returns the number of ranks on this host.
func (c *Communicator) greet(ctx context.Context) (local int, err error) {
	mine, err := json.Marshal(c.hello())
	if err != nil {
		return 0, err
	}
	all, err := bootstrap.AllGatherBytes(ctx, c.boot, preamble.TagHello, mine)
	if err != nil {
		return 0, fmt.Errorf("greeting: %w", err)
	}
	said := make([]hello, len(all))
	for r, b := range all {
		if said[r], err = greeted(r, b, c.opts.Name); err != nil {
			return 0, err
		}
		if c.sameHost(r, said[r].Host) {
			local++
		}
		c.nodes = append(c.nodes, said[r].node())
	}
	return local, sameTransports(said)
}

// hello is what this rank says.
func (c *Communicator) hello() hello {
	h := hello{ABI: kernel.ABI, Host: c.opts.Facts.Host, Name: c.opts.Name}
	h.Node, _ = os.Hostname() // "": it has no name
	for _, t := range c.opts.Transports {
		h.Transports = append(h.Transports, t.Name)
	}
	return h
}

// node is what people call the host of a rank: by the name that they gave it themselves,
// if they did.
func (h *hello) node() string { return cmp.Or(h.Host, h.Node, "unknown") }

// sameTransports refuses ranks whose lists of transports differ, also in their order: which
// calls a rank makes in order to be joined with others, and whose kernels it takes, follows
// from its list. All ranks come to the same error.
func sameTransports(said []hello) error {
	for r := range said {
		if !slices.Equal(said[r].Transports, said[0].Transports) {
			return &preamble.Refusal{Err: &framework.Error{Op: "greeting", Peer: r, Err: fmt.Errorf(
				"%w: its transports on host %s are %v, those of rank 0 on host %s are %v: expected the same list on all ranks, also where some of them find no hardware",
				framework.ErrInvalid, said[r].node(), said[r].Transports, said[0].node(), said[0].Transports)}}
		}
	}
	return nil
}

// greeted reads the greeting of a rank that is to join the communicator of a name.
func greeted(rank int, b []byte, name string) (h hello, err error) {
	switch err := json.Unmarshal(b, &h); {
	case err != nil:
		return h, &framework.Error{Op: "greeting", Peer: rank, Err: fmt.Errorf("%w: not a greeting: %v", framework.ErrPeer, err)}
	case h.ABI != kernel.ABI:
		return h, &framework.Error{Op: "greeting", Peer: rank, Err: fmt.Errorf("%w: device ABI %d, expected %d", framework.ErrPeer, h.ABI, kernel.ABI)}
	case h.Name != name:
		return h, &framework.Error{Op: "greeting", Peer: rank, Err: fmt.Errorf("%w: joins communicator %q, expected %q", framework.ErrPeer, h.Name, name)}
	}
	return h, nil
}

// sameHost reports whether a rank shares this rank's processors. The bootstrap
// knows by trying; one that an application brought may not.
func (c *Communicator) sameHost(rank int, host string) bool {
	if b, ok := c.boot.(bootstrap.SameHoster); ok && rank != c.Rank() {
		return b.SameHost(rank)
	}
	return host == c.opts.Facts.Host
}
