package schema

// form says which operands an operation has. A list is a first operand and, for many, any number of others.
type form struct {
	src, dst []slot
	types    []ChannelType // of the channel
}

// slot is an operand, or several of one kind if many is set.
type slot struct {
	kind    OperandKind
	either  bool // local or remote
	scratch bool // in scratch memory: packets
	many    bool // any number from least
	least   int
}

var (
	local       = slot{kind: Local}
	localPkt    = slot{kind: Local, scratch: true}
	locals      = slot{kind: Local, many: true, least: 1}
	localPkts   = slot{kind: Local, scratch: true, many: true, least: 1}
	remotes     = slot{kind: Remote, many: true, least: 1}
	remotePkts  = slot{kind: Remote, scratch: true, many: true, least: 1}
	anywhere    = slot{either: true, many: true, least: 1}
	multicast   = slot{kind: Multicast}
	multiPkt    = slot{kind: Multicast, scratch: true}
	noChannel   = []ChannelType{NoChannel}
	overMemory  = []ChannelType{Memory}
	overSwitch  = []ChannelType{Switch}
	overPeers   = []ChannelType{Memory, Port}
	reduceLocal = []ChannelType{NoChannel, Memory}
)

var forms = map[OpName]form{
	Copy:             {[]slot{local}, []slot{local}, noChannel},
	Put:              {[]slot{locals}, []slot{remotes}, overPeers},
	Pws:              {[]slot{locals}, []slot{remotes}, overPeers},
	Pwsf:             {[]slot{locals}, []slot{remotes}, overPeers},
	Get:              {[]slot{remotes}, []slot{locals}, overMemory},
	Re:               {[]slot{locals}, []slot{local}, reduceLocal},
	Res:              {[]slot{locals}, []slot{local, remotes}, overMemory},
	Rre:              {[]slot{local, anywhere}, []slot{local}, overMemory},
	Rres:             {[]slot{local, anywhere}, []slot{local, remotes}, overMemory},
	CopyPkt:          {[]slot{local}, []slot{localPkt}, noChannel},
	UnpackPkt:        {[]slot{localPkt}, []slot{local}, noChannel},
	PutPkt:           {[]slot{locals}, []slot{remotePkts}, overPeers},
	ReadPutPkt:       {[]slot{localPkt}, []slot{remotePkts}, overPeers},
	ReducePkt:        {[]slot{local, localPkts}, []slot{local}, reduceLocal},
	ReduceSendPkt:    {[]slot{local, localPkts}, []slot{local, remotePkts}, overMemory},
	ReduceCopyPkt:    {[]slot{local, localPkts}, []slot{local, localPkt}, reduceLocal},
	ReduceCSPkt:      {[]slot{local, localPkts}, []slot{local, localPkt, remotePkts}, overMemory},
	GroupReduceStore: {[]slot{multicast}, []slot{multicast}, overSwitch},
	GroupStore:       {[]slot{local}, []slot{multicast}, overSwitch},
	GroupStorePkt:    {[]slot{localPkt}, []slot{multiPkt}, overSwitch},
}

// shape checks the number and kinds of an operation's operands.
func (c *opChecker) shape() error {
	f, o := forms[c.o.Name], c.o
	ok := false
	for _, t := range f.types {
		ok = ok || o.Channel() == t
	}
	if !ok {
		return c.fail(".channel_type", "over a channel of type %s", o.Channel())
	}
	if err := c.slots(".src_buff", "source", f.src, o.Src); err != nil {
		return err
	}
	if err := c.slots(".dst_buff", "destination", f.dst, o.Dst); err != nil {
		return err
	}
	return c.pairs()
}

func (c *opChecker) slots(name, what string, form []slot, operands []Operand) error {
	k := 0
	for _, s := range form {
		n := 1
		if s.many {
			n = max(len(operands)-k, s.least)
		}
		for range n {
			if k >= len(operands) {
				return c.fail(name, "%d operands: a %s is missing", len(operands), what)
			}
			if err := c.slot(field{name, k}, what, s, &operands[k]); err != nil {
				return err
			}
			k++
		}
	}
	if k < len(operands) {
		return c.fail(name, "%d operands: expected %d", len(operands), k)
	}
	return nil
}

func (c *opChecker) slot(at field, what string, s slot, x *Operand) error {
	names := [...]string{"local", "remote", "multicast"}
	if x.Kind != s.kind && (!s.either || x.Kind == Multicast) {
		return c.failAt(at, "a %s %s: expected a %s one", names[x.Kind], what, names[s.kind])
	}
	if !s.scratch {
		return nil
	}
	buffer := x.Buffer
	switch ids := c.remotes[c.o.Channel()]; {
	case x.Kind == Remote && x.ID >= 0 && x.ID < len(ids):
		buffer = c.gpu.RemoteBuffers[ids[x.ID]].Type
	case x.Kind == Multicast && x.ID >= 0 && x.ID < len(c.channels[Switch]):
		buffer = c.switches[c.channels[Switch][x.ID]].Buffer
	case x.Kind != Local:
		return nil // the check of the operand says more
	}
	if buffer != Scratch {
		return c.failAt(at, "packets in buffer %q: they lie in scratch memory alone", buffer)
	}
	return nil
}

// pairs checks what depends on several lists: sources and destinations that belong together, and their channels.
func (c *opChecker) pairs() error {
	o := c.o
	switch o.Name {
	case Put, Pws, Pwsf, Get, PutPkt:
		if len(o.Src) != len(o.Dst) {
			return c.fail("", "%d sources and %d destinations", len(o.Src), len(o.Dst))
		}
	}
	if o.Name == Pws || o.Name == Pwsf || o.Channel() == Port {
		if len(o.ChannelIDs) != len(o.Dst) {
			return c.fail(".channel_ids", "%d channels for %d destinations", len(o.ChannelIDs), len(o.Dst))
		}
	}
	if o.Name == PutPkt && o.Channel() == Port {
		for k := range o.Src {
			if o.Src[k].Buffer != Scratch {
				return c.failAt(field{".src_buff", k}, "over a port channel the source is packets, which lie in scratch memory alone")
			}
		}
	}
	if o.Name == ReducePkt || o.Name == ReduceCopyPkt || o.Name == Re || o.Name == Copy {
		return nil
	}
	return c.samePeer()
}

// samePeer checks that a transfer over a port channel goes to the peer of that channel.
func (c *opChecker) samePeer() error {
	o := c.o
	if o.Channel() != Port {
		return nil
	}
	ids, remote := c.channels[Port], c.remotes[Port]
	for k, id := range o.ChannelIDs {
		if id < 0 || id >= len(ids) || k >= len(o.Dst) || o.Dst[k].ID < 0 || o.Dst[k].ID >= len(remote) {
			continue // other checks say more
		}
		peer, owner := c.peers[Port][ids[id]], c.gpu.RemoteBuffers[remote[o.Dst[k].ID]].Rank
		if peer != owner {
			return c.failAt(field{".channel_ids", k}, "a channel to rank %d, and a buffer of rank %d", peer, owner)
		}
	}
	return nil
}
