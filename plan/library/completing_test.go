package library_test

import (
	"strings"
	"testing"

	"github.com/mscclpp-go/mscclpp/plan/dsl"
	"github.com/mscclpp-go/mscclpp/plan/library"
	"github.com/mscclpp-go/mscclpp/plan/schema"
	"github.com/mscclpp-go/mscclpp/plan/verify"
)

// The reductions that an average divides are those with a part of every rank: in plans over hosts the first ones have those of a
// host alone.
func TestCompleting(t *testing.T) {
	for name, want := range map[string][2]int{ // of rank 0: how many reductions complete results, and how many do not
		"allreduce-1pa": {4, 0}, "allreduce-2pa-chunks": {4, 0}, "allreduce-hierarchical-packets": {2, 2},
	} {
		shape := library.Shape{Ranks: 4, Blocks: 4}
		if strings.Contains(name, "hierarchical") {
			shape.PerHost, shape.Blocks = 2, 0
		}
		p, err := library.Compile(name, shape)
		if err != nil {
			t.Fatal(err)
		}
		last, err := verify.Completing(p)
		if err != nil {
			t.Errorf("%s: %v", name, err)
			continue
		}
		var got [2]int
		for b := range p.GPUs[0].Blocks {
			ops := p.GPUs[0].Blocks[b].Ops
			for i := range ops {
				if ops[i].Name.Reduces() {
					if last[&ops[i]] {
						got[0]++
					} else {
						got[1]++
					}
				}
			}
		}
		if got[0] == 0 || (got[1] == 0) != (want[1] == 0) {
			t.Errorf("%s: %d reductions complete results, %d do not: expected %v", name, got[0], got[1], want)
		}
	}
}

// A plan has no average where a reduction completes one chunk and not another, and the reason names it.
func TestNoAverage(t *testing.T) {
	p := dsl.New(dsl.AllReduce(2, 1, true), dsl.Options{Name: "half"})
	for r := range 2 {
		peer, in := 1-r, p.Input(r)
		ch := p.MemoryChannel(peer, r)
		tmp := p.Scratch(r, 2)
		ch.Signal(0, dsl.Relaxed)
		ch.Wait(0, dsl.Relaxed|dsl.After)
		ch.Get(tmp.All(), p.Input(peer).All(), dsl.Block(0))
		ch.Signal(0, dsl.Before)
		ch.Wait(0, dsl.After)
		p.Rank(r).Reduce(in.All(), in.All(), []dsl.Chunk{tmp.All()}, dsl.Block(0))
	}
	plan, err := p.Compile()
	if err != nil {
		t.Fatal(err)
	}
	if _, err := verify.Completing(plan); err != nil {
		t.Errorf("%v: expected an average", err)
	}
	for _, x := range []struct{ name, want string }{{"allgather-chunks", "expected allreduce or reducescatter"}} {
		q, err := library.Compile(x.name, library.Shape{Ranks: 2})
		if err != nil {
			t.Fatal(err)
		}
		if _, err := verify.Completing(q); err == nil || !strings.Contains(err.Error(), x.want) {
			t.Errorf("%s: %v: expected %q", x.name, err, x.want)
		}
	}
	for r := range plan.GPUs {
		for b := range plan.GPUs[r].Blocks {
			ops := plan.GPUs[r].Blocks[b].Ops
			for i := range ops {
				if ops[i].Name.Reduces() {
					ops[i].Reduce = schema.Max
				}
			}
		}
	}
	if _, err := verify.Completing(plan); err == nil || !strings.Contains(err.Error(), "expected sum") {
		t.Errorf("%v: expected that a plan of maxima has no average", err)
	}
}
