package collectives

import "github.com/mscclpp-go/mscclpp/collectives/internal/kernelargs"

// nameWaits has reports of waits that took too long say in what call that was, and for what.
func (c *Comm) nameWaits() {
	names := map[uint32]string{}
	for _, list := range c.algorithms {
		for _, a := range list {
			names[a.id] = " by " + a.name
		}
	}
	c.comm.NameWaits(func(kernel, word uint32) string { // as kernel_of has put it together
		k := Collective(kernel >> 24)
		if k == 0 || k >= collectives || word == 0 || word >= uint32(len(kernelargs.WaitedFor)) {
			return ""
		}
		return k.String() + names[kernel&0xffffff] + " waits for " + kernelargs.WaitedFor[word]
	})
}
