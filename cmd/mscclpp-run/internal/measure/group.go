package measure

import (
	"context"
	"errors"
	"fmt"

	mscclpp "github.com/mscclpp-go/mscclpp"
	"github.com/mscclpp-go/mscclpp/bench"
	"github.com/mscclpp-go/mscclpp/bench/matrix"
	"github.com/mscclpp-go/mscclpp/collectives"
	"github.com/mscclpp-go/mscclpp/framework"
	"github.com/mscclpp-go/mscclpp/framework/device"
	"github.com/mscclpp-go/mscclpp/plan/attach"
)

// group is a job as benchmarks and checks see it.
type group struct {
	job  *mscclpp.Job
	ctx  context.Context
	opts collectives.CallOptions // of the call being made

	queue *queue // nil on the host
	plans map[string]attach.Source
}

// Fixed reports whether an algorithm is an execution plan, whose blocks are its own.
func (g *group) Fixed(algorithm string) bool { _, ok := g.plans[algorithm]; return ok }

func (g *group) Rank() int { return g.job.Rank() }
func (g *group) Size() int { return g.job.Size() }
func (g *group) Barrier() error {
	g.opts.Algorithm, g.opts.Scale = "", 0
	return g.job.Barrier(&g.opts)
}

func (g *group) AllGather(ctx context.Context, data []byte) ([][]byte, error) {
	return g.job.World.AllGather(ctx, data)
}

// Alloc keeps the memory for the life of the job.
func (g *group) Alloc(bytes int64, registered bool) (bench.Memory, error) {
	if !registered && g.queue == nil {
		if err := bench.HeapHas(bytes); err != nil {
			return bench.Memory{}, err
		}
		return bench.Heap(bytes), nil
	}
	m, err := g.job.World.AllocData(uint64(bytes))
	if err != nil {
		return bench.Memory{}, err
	}
	if registered && g.job.Comm.Shared() { // else memory from Alloc is all that there is
		if _, err := g.job.World.Exchange(g.ctx, m); err != nil {
			return bench.Memory{}, errors.Join(err, m.Close())
		}
	}
	if g.queue == nil {
		return bench.Host(device.Bytes(m)[:bytes]), nil
	}
	return g.queue.memory(m, bytes), nil
}

// Queue is the stream of the measurement, if the job runs on a GPU.
func (g *group) Queue() bench.Queue {
	if g.queue == nil {
		return nil
	}
	return g.queue
}

func (g *group) Algorithms(c bench.Collective) []string {
	k, err := collectives.ParseCollective(c.String())
	if err != nil {
		return nil
	}
	return g.job.Algorithms(k)
}

// Do makes one call.
func (g *group) Do(c *bench.Call) error {
	o := &g.opts
	o.Algorithm, o.Scale = c.Algorithm, c.Scale
	switch j := g.job; c.Collective {
	case bench.AllReduce:
		return j.AllReduce(c.In, c.Out, c.Count, c.Type, c.Op, o)
	case bench.AllGather:
		return j.AllGather(c.In, c.Out, c.Count, c.Type, o)
	case bench.ReduceScatter:
		return j.ReduceScatter(c.In, c.Out, c.Count, c.Type, c.Op, o)
	case bench.Broadcast:
		return j.Broadcast(c.In, c.Out, c.Count, c.Type, c.Root, o)
	case bench.Reduce:
		return j.Reduce(c.In, c.Out, c.Count, c.Type, c.Op, c.Root, o)
	case bench.AllToAll:
		return j.AllToAll(c.In, c.Out, c.Count, c.Type, o)
	case bench.AllToAllV:
		return j.AllToAllV(c.In, c.V.SendCounts, c.V.SendDispls, c.Out, c.V.RecvCounts, c.V.RecvDispls, c.Type, o)
	case bench.Gather:
		return j.Gather(c.In, c.Out, c.Count, c.Type, c.Root, o)
	case bench.Scatter:
		return j.Scatter(c.In, c.Out, c.Count, c.Type, c.Root, o)
	case bench.SendRecv:
		return g.shift(c)
	}
	return fmt.Errorf("%w: collective %s", framework.ErrInvalid, c.Collective)
}

// shift sends to the next rank and receives from the one before, as one group: in
// any order without a group, some rank would wait for ever.
func (g *group) shift(c *bench.Call) error {
	n, rank := g.Size(), g.Rank()
	g.job.GroupStart()
	sent := g.job.Send(c.In, c.Count, c.Type, (rank+1)%n, &g.opts)
	received := g.job.Recv(c.Out, c.Count, c.Type, (rank+n-1)%n, &g.opts)
	return errors.Join(sent, received, g.job.GroupEnd())
}

// Chosen names the algorithm of a call.
func (g *group) Chosen(c *bench.Call) (string, error) {
	kind, err := collectives.ParseCollective(c.Collective.String())
	if err != nil {
		return "", err
	}
	return g.job.Choice(collectives.Request{
		Collective: kind,
		Bytes:      uint64(bench.Larger(c.Collective, c.Count, g.Size())) * uint64(c.Type.Size()),
		Count:      uint64(c.Count), Type: c.Type, Op: c.Op, Root: c.Root, Registered: c.Registered, InPlace: c.InPlace,
	}, c.Algorithm)
}

// runs says whether the algorithm that a case names can run it.
func (g *group) runs(c matrix.Case) bool {
	_, err := g.Chosen(&bench.Call{
		Collective: c.Collective, Count: c.Count, Type: c.Type, Op: c.Op, Root: c.Root, Algorithm: c.Algorithm,
		InPlace: c.InPlace, Registered: c.Registered,
	})
	return err == nil
}
