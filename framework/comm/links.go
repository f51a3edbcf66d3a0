package comm

import (
	"context"
	"slices"

	"github.com/mscclpp-go/mscclpp/framework"
	"github.com/mscclpp-go/mscclpp/framework/comm/internal/negotiate"
)

// Link says which transport carries one kind of channel to one peer.
type Link = negotiate.Listed

// Reach says which ranks have memory channels with which others.
type Reach = negotiate.Reach

// Offers reports whether one of the configured transports claims channels of kind k.
// Whether it reaches a particular peer is known only when a channel is built.
func (c *Communicator) Offers(k framework.Kind) bool {
	return slices.ContainsFunc(c.opts.Transports, func(t *Transport) bool { return t.Description.Has(k) })
}

// Links lists the links of this rank so far, by kind and peer. A link is made when a
// channel first needs it.
func (c *Communicator) Links() []Link { return c.links.Links() }

// ReachAll links this rank with all others for memory channels where that is possible,
// and returns the same on all ranks. If some ranks cannot be linked, the communicator
// remains usable: its other channels work. Collective.
func (c *Communicator) ReachAll(ctx context.Context) (reach Reach, err error) {
	err = c.setUp(ctx, opReach, func(ctx context.Context) (err error) {
		reach, err = c.links.ReachAll(ctx)
		return err
	})
	if err != nil {
		return Reach{}, err
	}
	return reach, nil
}

// Survey asks the transports whether the hardware for channels of kind k is present on
// all ranks. If a preferred transport is going to be skipped because its hardware is
// missing, rank 0 warns of it, once for the communicator and all that are made from it.
// Survey is meant for calls that link all ranks. Without it, each rank finds out by
// itself, and warns when it links by a transport after the preferred one. Collective.
func (c *Communicator) Survey(ctx context.Context, k framework.Kind) error {
	return c.setUp(ctx, opSurvey, func(ctx context.Context) error { return c.links.Survey(ctx, k) })
}
