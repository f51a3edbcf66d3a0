package twolevel

import (
	"sync/atomic"

	"github.com/mscclpp-go/mscclpp/collectives/internal/engine"
	"github.com/mscclpp-go/mscclpp/collectives/internal/inter/crosshost"
	"github.com/mscclpp-go/mscclpp/collectives/internal/inter/inside"
	"github.com/mscclpp-go/mscclpp/collectives/internal/inter/lanes"
	"github.com/mscclpp-go/mscclpp/collectives/internal/inter/offers"
)

// Engine performs them.
type Engine struct {
	*crosshost.Level
	offers.List
	session *lanes.Session
	inside  *inside.Host
	packets *packets // nil where the network is no network
}

func reduction(c *engine.Call) crosshost.Reduction {
	return crosshost.Reduction{Type: c.Type, Op: c.Op}
}

// packets is the path of small parts over networks whose signals are messages of their own. A part,
// its preamble, and a flag go in one put, and the receiver polls the slot that it comes to: one
// message for each counterpart in place of three, which were the data, its signal, and the signal
// that its slot is free.
//
// Slots need no such answer, for the reason that those of kernels need none (docs/memory-model.md,
// Epochs): each call that uses them is an epoch, and uses half epoch % 2. A rank that sends in
// epoch e + 2 has finished e + 1, so it has, from each other host, a packet of e + 1. That was sent
// behind a collective inside that host, to which all of its ranks contributed, each of them behind
// its own epoch e. So all packets of e have been read, wherever in the other hosts they went, and
// with them the memory that they were sent from. It follows that a collective in which some rank
// needs nothing of another host, as a broadcast, cannot have packets.
//
// Packets lie behind the slots of lanes, in the same memory and on the same channels: what
// one rank sends to another keeps its order where channels keep it.
type packets struct {
	*Engine
	room      uint64 // bytes of data that a packet has at most
	base      uint64 // where packets begin in the memory of lanes
	on        atomic.Bool
	epoch     uint64
	next      uint64    // where in its half the next packet that is sent goes
	common    []byte    // the data that all counterparts are to get
	sent      uint64    // where its packet is; 0: it was not sealed yet
	misplaced misplaced // in place of a packet; to one, at most

	patience []patience // by rank

	// The expected values, for arrived, which is made once: a wait allocates nothing.
	arrived func() bool
	from    int // rank
	slot    []byte
	bytes   uint64
	looks   uint
	wrong   error // the error for a packet of something else
}
