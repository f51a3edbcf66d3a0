package comm

import (
	"context"
	"fmt"

	"github.com/mscclpp-go/mscclpp/framework/bootstrap"
	"github.com/mscclpp-go/mscclpp/framework/device"
)

// OnDevice joins the same ranks into another communicator with a different device: the
// host, for work that the host does on behalf of ranks on GPUs. The transports are the
// same, and so are the facts about the rank's place: a network adapter near the GPU
// counts as near for it. Collective. The new one is closed separately, before dev
// is.
func (c *Communicator) OnDevice(ctx context.Context, dev device.Device) (*Communicator, error) {
	var other *Communicator
	err := c.setUp(ctx, opOnDevice, func(ctx context.Context) error {
		if _, err := c.rounds.Agree(ctx, opOnDevice, nil, nil); err != nil {
			return err
		}
		c.children++
		o := c.opts
		o.Name, o.Device = fmt.Sprintf("%s/%d.device", c.opts.Name, c.children), dev
		ranks := make([]int, c.Size())
		for r := range ranks {
			ranks[r] = r
		}
		var err error
		if other, err = New(ctx, bootstrap.Sub(c.boot, ranks, tagRange(o.Name)), o); err != nil {
			return err
		}
		c.keep(other)
		return nil
	})
	return other, err
}
