package collectives

import (
	"fmt"

	"github.com/mscclpp-go/mscclpp/framework"
)

// Choice returns the algorithm that a call described by r would run, without running
// it: name if it is given and fits; for "", what the selector and the tables choose. It
// fills in Ranks and Device of r itself. The error is the one that the call would
// return.
//
// Some choices are settled by the first call only. Two ranks on a host that can read
// each other's memory find out in the first large call which method is fastest; until
// then the answer for such calls is pull. Whether kernels drive the exchange between
// hosts of GPUs, and whether packets are used between hosts, is also found out by the
// first call; until then the answer assumes that the host drives it, and that no
// packets are used. Where a call in a capture comes before copies are ready, or a device
// has no memory for them, kernels serve what is said to be copied.
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
	if r.Collective.Messages() {
		switch {
		case c.messages == nil:
			return "", c.noKernel("messages", "transfers")
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
