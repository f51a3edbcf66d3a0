// Package twolevel performs collectives of ranks on hosts in two levels: inside a host by kernels over memory
// channels, between hosts over lanes. Hosts are the groups of ranks that share memory, and need not have the same
// number of ranks.
//
// Small calls send redundantly: all ranks of a host have its part, and each of them
// gives it to counterparts on the other hosts, so that nothing has to be passed on
// inside. Large calls divide the data of a host among its ranks, so that each of them
// sends a part and all adapters are busy, and they do it piece by piece, so that one
// piece crosses the network while the next is worked on inside.
//
// Partial results of a host are added up in the order of the hosts, once, or alike in
// all places: all ranks get the same bits, in all runs. They are not those of the
// order of the ranks, and partial results have the type of the elements.
package twolevel

import (
	"context"

	"github.com/mscclpp-go/mscclpp/collectives/internal/engine"
	"github.com/mscclpp-go/mscclpp/collectives/internal/inter/crosshost"
	"github.com/mscclpp-go/mscclpp/collectives/internal/inter/inside"
	"github.com/mscclpp-go/mscclpp/collectives/internal/inter/lanes"
	"github.com/mscclpp-go/mscclpp/collectives/internal/inter/lifetime"
	"github.com/mscclpp-go/mscclpp/framework/collective"
)

// New makes the engine. It opens nothing. Packets are for networks.
func New(s *lanes.Session, x *crosshost.Level, in *inside.Host, network bool) *Engine {
	h := &Engine{Level: x, session: s, inside: in}
	if network {
		h.packets = newPackets(h)
	}
	h.Table(func(row engine.Row, fits func(*engine.Request) bool) {
		run := h.large
		if row.Algorithm == crosshost.NameSmall {
			run = func(ctx context.Context, c *engine.Call) error {
				return h.small(ctx, c, crosshost.Signals{Level: x})
			}
		}
		h.offer(row, fits, run)
	})
	return h
}

// offer adds an algorithm. A call that fails in it leaves the others in the middle of theirs.
func (h *Engine) offer(row engine.Row, fits func(*engine.Request) bool, run func(context.Context, *engine.Call) error) {
	h.Add(h, row, fits, func(c *engine.Call) error {
		return h.session.Collective(c, row.Algorithm, func(ctx context.Context) error {
			return lifetime.Abandon(h.session.Comm, run(ctx, c))
		})
	})
}

// small performs a call of little data.
func (h *Engine) small(ctx context.Context, c *engine.Call, w crosshost.SmallExchange) error {
	switch c.Collective {
	case collective.AllReduce:
		return h.allReduceSmall(ctx, c, w)
	case collective.AllGather:
		return h.allGatherSmall(ctx, c, w)
	case collective.ReduceScatter:
		return h.reduceScatterSmall(ctx, c, w)
	case collective.Broadcast:
		return h.broadcastSmall(ctx, c)
	case collective.Reduce:
		return h.reduceSmall(ctx, c)
	case collective.AllToAll:
		return h.allToAllSmall(ctx, c)
	}
	return h.barrier(ctx, w)
}

// large performs one of much.
func (h *Engine) large(ctx context.Context, c *engine.Call) error {
	switch c.Collective {
	case collective.AllReduce:
		return h.allReduceLarge(ctx, c)
	case collective.AllGather:
		return h.allGatherLarge(ctx, c)
	case collective.ReduceScatter:
		return h.reduceScatterLarge(ctx, c)
	case collective.Broadcast:
		return h.broadcastLarge(ctx, c)
	case collective.Reduce:
		return h.reduceLarge(ctx, c)
	}
	return h.allToAllLarge(ctx, c)
}

// Adapts reports whether the first call finds out what can be offered.
func (h *Engine) Adapts() bool { return h.packets != nil }

// Open finds out, together with all ranks, whether packets are used.
func (h *Engine) Open(ctx context.Context) error { return h.packets.open(ctx) }

// Close has nothing to release: the makers of the lanes, and of the ranks of the host, close them.
func (h *Engine) Close() error { return nil }

// newPackets prepares packets, and offers the algorithms. Whether networks have use for them is found out before
// the first call.
func newPackets(h *Engine) *packets {
	x := &packets{Engine: h, room: min(mostPacket, h.Slot), base: h.Lanes.SlotBytes(), patience: make([]patience, h.Ranks())}
	x.arrived = x.look
	h.Lanes.Await, h.Lanes.Behind = x.wait, x.memory()
	for _, k := range []collective.Kind{collective.Barrier, collective.AllReduce, collective.AllGather, collective.ReduceScatter} {
		fits := func(r *engine.Request) bool {
			return x.on.Load() && r.Bytes <= x.room && (!k.Reduces() || crosshost.Partial(r.Type, r.Op))
		}
		h.offer(engine.Row{Collective: k, Algorithm: crosshost.NamePackets, MaxBytes: x.room}, fits, func(ctx context.Context, c *engine.Call) error {
			return h.small(ctx, c, x)
		})
	}
	return x
}
