package collectives

import (
	"context"

	"github.com/mscclpp-go/mscclpp/collectives/internal/coverage"
	"github.com/mscclpp-go/mscclpp/collectives/internal/engine"
	"github.com/mscclpp-go/mscclpp/collectives/internal/inter"
	"github.com/mscclpp-go/mscclpp/collectives/internal/inter/inside"
	"github.com/mscclpp-go/mscclpp/collectives/internal/inter/lanes"
	"github.com/mscclpp-go/mscclpp/collectives/internal/intra"
	"github.com/mscclpp-go/mscclpp/collectives/internal/kernelargs"
	"github.com/mscclpp-go/mscclpp/framework"
	"github.com/mscclpp-go/mscclpp/framework/collective"
	"github.com/mscclpp-go/mscclpp/framework/comm"
	"github.com/mscclpp-go/mscclpp/framework/device"
	"github.com/mscclpp-go/mscclpp/framework/kernel"
)

// overHosts makes the engine for ranks on such hosts, which do not share memory for the reason apart; for what
// kernels leave, or for all collectives.
func (c *Comm) overHosts(apart error, hosts [][]int, left coverage.Remainder) (engine.Engine, error) {
	of := c.opts
	o := inter.Options{
		Scratch: of.Scratch, Describe: describing(c.choice.name), Apart: apart, Hosts: hosts,
		Kinds: left.Kinds(), Last: left.InPart,
		Inside: func(ctx context.Context, group *comm.Communicator, blocks int) (inside.Ranks, error) {
			return newHostRanks(ctx, group, of, blocks)
		},
	}
	if tooMany(c.comm) {
		o.First = counterparts(hosts, c.comm.Rank())
	}
	if !c.host {
		multiprocessors := c.comm.Device().Info().SMs
		o.Blocks, o.Multiprocessors = intra.MostBlocks(multiprocessors, of.Sharing, of.MaxBlocks), multiprocessors/max(1, of.Sharing)
	}
	return inter.New(c.comm, o)
}

// describing says in words what calls signatures are of.
func describing(name func(k collective.Kind, id uint32) string) func(s *kernelargs.Signature) string {
	return func(s *kernelargs.Signature) string {
		if *s == lanes.OfMessages() {
			return "a message" // its pieces do not say of what
		}
		return s.Describe(name)
	}
}

// hostRanks performs the collectives of the ranks of one host, for those of all hosts.
type hostRanks struct{ c *Comm }

// newHostRanks makes them, with the options of all hosts and so many blocks of a launch at most.
func newHostRanks(ctx context.Context, group *comm.Communicator, of Options, blocks int) (inside.Ranks, error) {
	o := Options{Signatures: of.Signatures}
	if group.Device().Info().Device != framework.Host {
		o = of
		o.Table = nil
		if blocks > 0 {
			o.MaxBlocks = blocks
		}
	}
	c, err := New(ctx, group, o)
	if err != nil {
		return nil, err
	}
	return hostRanks{c}, nil
}

// Perform performs a call.
func (r hostRanks) Perform(x inside.Call) error {
	o := &CallOptions{Stream: x.Stream, Scale: x.Scale, alike: true}
	switch x.Kind {
	case collective.AllReduce:
		return r.c.AllReduce(x.In, x.Out, x.Count, x.Type, x.Op, o)
	case collective.AllGather:
		return r.c.AllGather(x.In, x.Out, x.Count, x.Type, o)
	case collective.ReduceScatter:
		return r.c.ReduceScatter(x.In, x.Out, x.Count, x.Type, x.Op, o)
	case collective.Broadcast:
		return r.c.Broadcast(x.In, x.Out, x.Count, x.Type, x.Root, o)
	case collective.Reduce:
		return r.c.Reduce(x.In, x.Out, x.Count, x.Type, x.Op, x.Root, o)
	case collective.AllToAll:
		return r.c.AllToAll(x.In, x.Out, x.Count, x.Type, o)
	}
	return r.c.Barrier(o)
}

// Messages performs a group of messages.
func (r hostRanks) Messages(s device.Stream, list []kernelargs.Transfer) error {
	o := &CallOptions{Stream: s}
	r.c.GroupStart()
	var failed error
	for _, m := range list {
		call := r.c.Send
		if m.Receive == 1 {
			call = r.c.Recv
		}
		if failed == nil {
			failed = call(kernelargs.At(m.Buffer), int(m.Bytes), kernel.Uint8, int(m.Peer), o)
		}
	}
	if err := r.c.GroupEnd(); failed == nil {
		failed = err
	}
	return failed
}

// Prepare loads what calls may need.
func (r hostRanks) Prepare(k collective.Kind, t kernel.DataType) error { return r.c.Prepare(k, t) }

// Close releases everything.
func (r hostRanks) Close() error { return r.c.Close() }
