package collectives

// SetPacketEpoch makes the next packets those of another epoch. It is for all ranks, while
// none is in a call.
func (c *Comm) SetPacketEpoch(epoch uint64) {
	c.ports.mu.Lock()
	defer c.ports.mu.Unlock()
	c.ports.hierarchy.packets.epoch = epoch
}

// Packets of a Comm over hosts: whether they are used, and how many epochs there were.
func (c *Comm) Packets() (on bool, epochs uint64) {
	c.ports.mu.Lock()
	defer c.ports.mu.Unlock()
	x := c.ports.hierarchy.packets
	return x.on.Load(), x.epoch
}
