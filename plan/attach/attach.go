// Package attach makes execution plans algorithms of collectives, beside those that the library has: they are chosen by
// rows of the table, by name, or by the program's selector.
package attach

import (
	"context"
	"errors"
	"fmt"
	"log/slog"
	"slices"

	"github.com/mscclpp-go/mscclpp/collectives"
	"github.com/mscclpp-go/mscclpp/framework"
	"github.com/mscclpp-go/mscclpp/framework/kernel"
	"github.com/mscclpp-go/mscclpp/plan/exec"
	"github.com/mscclpp-go/mscclpp/plan/schema"
)

// Options say how an attached plan is executed.
type Options struct {
	Packet exec.Packet // the format of packets; 0: LL16
}

// To registers a plan, under its name, and returns the row by which tables choose it. It is collective: all ranks
// register the same plans in the same order. ErrUnsupported: the plan is not for this communicator, or not for one of the
// collectives. The executor ends with the communicator.
func To(ctx context.Context, c *collectives.Comm, p *schema.Plan) (collectives.Row, error) {
	return Options{}.To(ctx, c, p)
}

// To is the function To with options.
func (o Options) To(ctx context.Context, c *collectives.Comm, p *schema.Plan) (collectives.Row, error) {
	kind, err := collectives.ParseCollective(p.Collective)
	switch {
	case err != nil || !known(kind):
		return collectives.Row{}, fmt.Errorf("%w: plan %s is for %q: expected allreduce, allgather, reducescatter or alltoall", framework.ErrUnsupported, p.Name, p.Collective)
	case len(p.GPUs) != c.Size():
		return collectives.Row{}, fmt.Errorf("%w: plan %s is for %d ranks: expected one for %d", framework.ErrUnsupported, p.Name, len(p.GPUs), c.Size())
	}
	e, err := exec.New(ctx, c.Communicator(), p)
	if err != nil {
		return collectives.Row{}, err
	}
	if o.Packet == 0 {
		o.Packet = exec.LL16
	}
	x := &attached{e, kind, uint64(c.Size()), opOf(p, e.Averages), o.Packet}
	if err := c.RegisterAlgorithm(collectives.Algorithm{Collective: kind, Name: p.Name, Fits: x.fits, Run: x.run, Alone: true}); err != nil {
		return collectives.Row{}, errors.Join(err, e.Close())
	}
	row := collectives.Row{Collective: kind, MinRanks: c.Size(), MaxRanks: c.Size(), Algorithm: p.Name}
	if p.MaxSize != schema.DefaultMaxSize {
		row.MaxBytes = p.MaxSize
	}
	return row, nil
}

// All registers those of a list of plans that are for the communicator, and puts their rows behind the given ones. It is
// collective.
func All(ctx context.Context, c *collectives.Comm, plans []Loaded, rows []collectives.Row, log *slog.Logger) error {
	if len(plans) == 0 {
		return nil
	}
	var own []collectives.Row
	elsewhere := map[string]bool{} // plans for other communicators: rows that name them have no effect here
	for _, p := range plans {
		row, err := p.To(ctx, c, p.Plan)
		if errors.Is(err, framework.ErrUnsupported) || errors.Is(err, framework.ErrUnavailable) {
			log.Info("a plan is passed over", "plan", p.Name, "because", err)
			elsewhere[p.Name] = true
			continue
		}
		if err != nil {
			return fmt.Errorf("collectives.plans: %w", err)
		}
		own = append(own, row)
	}
	rows = slices.DeleteFunc(slices.Clone(rows), func(r collectives.Row) bool { return elsewhere[r.Algorithm] })
	return c.UseTable(append(rows, own...))
}

// attached is a plan that is an algorithm.
type attached struct {
	executor *exec.Executor
	kind     collectives.Collective
	ranks    uint64
	op       func(kernel.Op) bool
	packet   exec.Packet
}

// known reports whether plans can be for a collective.
func known(k collectives.Collective) bool {
	return k == collectives.AllReduce || k == collectives.AllGather || k == collectives.ReduceScatter || k == collectives.AllToAll
}

// sizes are those of both buffers of a call, in bytes.
func (x *attached) sizes(r *collectives.Request) (in, out uint64) {
	in = r.Count * uint64(r.Type.Size())
	out = in
	if x.kind == collectives.ReduceScatter || x.kind == collectives.AllToAll {
		in *= x.ranks
	}
	if x.kind == collectives.AllGather || x.kind == collectives.AllToAll {
		out *= x.ranks
	}
	return in, out
}

// opOf says which reductions a plan performs: its sums become the reduction of the call, its minima and maxima do not.
// averages says why it performs no averages.
func opOf(p *schema.Plan, averages func() error) func(kernel.Op) bool {
	found := map[schema.ReduceOp]bool{}
	var look func(ops []schema.Op)
	look = func(ops []schema.Op) {
		for i := range ops {
			if ops[i].Name.Reduces() {
				found[ops[i].Reduce] = true
			}
			look(ops[i].Ops)
		}
	}
	for r := range p.GPUs {
		for b := range p.GPUs[r].Blocks {
			look(p.GPUs[r].Blocks[b].Ops)
		}
	}
	low, high := found[schema.Min], found[schema.Max]
	return func(op kernel.Op) bool {
		switch op {
		case kernel.Min:
			return !high
		case kernel.Max:
			return !low
		case kernel.Sum, kernel.Prod:
			return !low && !high
		case kernel.Avg:
			return !low && !high && averages() == nil
		}
		return false
	}
}

func (x *attached) fits(r collectives.Request) bool {
	if r.Collective.Reduces() && !x.op(r.Op) {
		return false
	}
	in, out := x.sizes(&r)
	return x.executor.Fits(in, out, r.Type, x.packet) == nil
}

func (x *attached) run(_ *collectives.Comm, call *collectives.Call) error {
	in, out := x.sizes(&call.Request)
	op := call.Op
	if !call.Collective.Reduces() {
		op = kernel.Sum
	}
	return x.executor.Execute(&exec.Call{
		Input: call.Input, InputBytes: in, Output: call.Output, OutputBytes: out,
		Type: call.Type, Op: op, Packet: x.packet, Stream: call.Stream, KeepInput: !call.InPlace,
	})
}
