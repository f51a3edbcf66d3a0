package collectives

import (
	"fmt"

	"github.com/mscclpp-go/mscclpp/framework"
)

// Choice names the algorithm that a call like r would run, without running it: the
// named one if it fits, or for "" what the selector and the tables say. Ranks and
// Device of r are filled in. The error is that of the call. Two ranks on a host that
// can read each other's memory try in the first call of many bytes what is best: until
// then the answer for such calls is pull. Whether kernels exchange between hosts of GPUs,
// and whether packets go between hosts, is found out by the first call: until then the
// answer is that the host does, and that none do.
func (c *Comm) Choice(r Request, name string) (string, error) {
	c.mu.Lock()
	defer c.mu.Unlock()
	if c.refused != nil {
		return "", c.refused
	}
	if r.Collective == 0 || r.Collective >= collectives {
		return "", fmt.Errorf("%w: %v", framework.ErrInvalid, r.Collective)
	}
	r.Ranks, r.Device = c.comm.Size(), deviceName(c.host)
	if r.Collective.messages() {
		switch {
		case c.messages == nil:
			return "", fmt.Errorf("%w: no transport has a kernel for messages", framework.ErrUnavailable)
		case c.messagesBy(name) == nil:
			return "", c.noMessagesBy(name)
		}
		return c.messagesBy(name).name, nil
	}
	r.slot, r.lineSlot = c.near[0].Slot, c.near[1].Slot
	if r.Registered {
		r.reached = reachInputs | reachOutputs
	}
	a, _, err := c.choose(&r, name)
	if err != nil {
		return "", err
	}
	return a.name, nil
}
