package exec

import (
	"testing"

	"github.com/mscclpp-go/mscclpp/plan/dsl"
	"github.com/mscclpp-go/mscclpp/plan/library"
	"github.com/mscclpp-go/mscclpp/plan/schema"
)

func tablesOf(t *testing.T, p *schema.Plan, rank int) *tables {
	t.Helper()
	_, all, err := inspect(p)
	if err != nil {
		t.Fatal(err)
	}
	return all[rank]
}

func compiled(t *testing.T, name string, s library.Shape) *schema.Plan {
	t.Helper()
	p, err := library.Compile(name, s)
	if err != nil {
		t.Fatal(err)
	}
	return p
}

// A chunk that goes to the own output and to other ranks is read once.
func TestCopiesOfOneSource(t *testing.T) {
	x := tablesOf(t, compiled(t, "allgather-chunks", library.Shape{Ranks: 3, Blocks: 2}), 0)
	n := 0
	for _, o := range x.ops {
		if o.Kind != opMove {
			continue
		}
		if n++; o.Sources != 1 || o.Destinations != 3 {
			t.Errorf("a copy of %d sources to %d destinations: expected one to 3", o.Sources, o.Destinations)
		}
		seen := map[operand]bool{}
		for _, to := range x.operands[o.Operands+1:][:o.Destinations] {
			seen[to] = true
		}
		if len(seen) != 3 {
			t.Errorf("destinations %v: expected three", seen)
		}
	}
	if n != 2 {
		t.Errorf("%d copies, expected one for each block", n)
	}
}

// Copies stay apart whose sources, slices or turns differ, and those between which something stands.
func TestCopiesThatStayApart(t *testing.T) {
	p := dsl.New(dsl.Test(2, 4, 4), dsl.Options{Name: "x", NoFusion: true})
	for r := range 2 {
		in, out, me := p.Input(r), p.Output(r), p.Rank(r)
		me.Copy(out.At(0), in.At(0), dsl.Block(0))
		me.Copy(out.At(1), in.At(1), dsl.Block(0)) // another source
		p.Loop(1<<16, 1, func() { me.Copy(out.At(2), in.At(1), dsl.Block(0)) })
		me.Copy(out.At(3), in.At(1), dsl.Block(0)) // behind a pipeline
	}
	plan, err := p.Compile()
	if err != nil {
		t.Fatal(err)
	}
	n := 0
	for _, o := range tablesOf(t, plan, 0).ops {
		if o.Kind == opMove {
			if n++; o.Destinations != 1 {
				t.Errorf("a copy to %d destinations: expected one", o.Destinations)
			}
		}
	}
	if n != 4 {
		t.Errorf("%d copies, expected 4", n)
	}
}

// Threads are together at both ends of a launch: lists begin and end with something to do, and where handshakes are left out, so are the
// joins around them.
func TestListsHaveNoIdleJoins(t *testing.T) {
	x := tablesOf(t, compiled(t, "allreduce-2pa-chunks", library.Shape{Ranks: 2, InPlace: true, Blocks: 2}), 0)
	for b, list := range x.blocks {
		ops := x.ops[list.First:][:list.Count]
		if len(ops) == 0 || ops[0].Kind == opNop || ops[len(ops)-1].Kind == opNop {
			t.Fatalf("block %d: %v", b, ops)
		}
		for i := 1; i < len(ops); i++ {
			if ops[i].Kind == opNop && ops[i-1].Kind == opNop {
				t.Errorf("block %d: two joins at %d", b, i)
			}
		}
		if first := ops[list.Met]; first.Kind != opReduce {
			t.Errorf("block %d begins with operation %d of kind %d where buffers are reached: expected the reduction", b, list.Met, first.Kind)
		}
	}
}
