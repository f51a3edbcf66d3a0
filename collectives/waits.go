package collectives

// waitedFor are words for what kernels wait for, by the numbers of kernels/links.h (Word).
var waitedFor = [...]string{
	1: "a packet", "a chunk in a pipe", "room in a pipe", "a staged chunk", "room in a stage", "a barrier", "what the call is",
	"the switch", "a step of copies", "the offer of a buffer",
}

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
		if k == 0 || k >= collectives || word == 0 || word >= uint32(len(waitedFor)) {
			return ""
		}
		return k.String() + names[kernel&0xffffff] + " waits for " + waitedFor[word]
	})
}
