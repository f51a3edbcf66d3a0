package intra

import (
	"github.com/mscclpp-go/mscclpp/collectives/internal/kernelargs"
	"github.com/mscclpp-go/mscclpp/framework/collective"
	"github.com/mscclpp-go/mscclpp/framework/comm"
)

// nameWaits has reports of waits that took too long say in what call that was, and for what.
func nameWaits(c *comm.Communicator, list []*algorithm) {
	names := map[uint32]string{}
	for _, a := range list {
		names[a.ID] = " by " + a.Name
	}
	c.NameWaits(func(kernel, word uint32) string { // as kernel_of has put it together
		k := collective.Kind(kernel >> 24)
		if !k.Valid() || word == 0 || word >= uint32(len(kernelargs.WaitedFor)) {
			return ""
		}
		return k.String() + names[kernel&0xffffff] + " waits for " + kernelargs.WaitedFor[word]
	})
}
