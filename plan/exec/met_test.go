package exec

import (
	"slices"
	"testing"

	"github.com/mscclpp-go/mscclpp/plan/dsl"
	"github.com/mscclpp-go/mscclpp/plan/library"
	"github.com/mscclpp-go/mscclpp/plan/schema"
)

// marked lists the kinds of the operations of each rank that launches leave out where ranks reach each other's buffers.
func marked(t *testing.T, p *schema.Plan) (out [][]uint16) {
	t.Helper()
	_, all, err := inspect(p)
	if err != nil {
		t.Fatal(err)
	}
	for _, x := range all {
		var kinds []uint16
		for i := range x.ops {
			if x.ops[i].Flags&met != 0 {
				kinds = append(kinds, x.ops[i].Kind)
			}
		}
		out = append(out, kinds)
	}
	return out
}

// The handshake at the beginning is left out at both ends, and the one at the end of a plan is not.
func TestFirstHandshake(t *testing.T) {
	p, err := library.Compile("allreduce-2pa-chunks", library.Shape{Ranks: 3, InPlace: true})
	if err != nil {
		t.Fatal(err)
	}
	_, all, err := inspect(p)
	if err != nil {
		t.Fatal(err)
	}
	for r, kinds := range marked(t, p) {
		var signals, waits int
		for i := range all[r].ops {
			switch all[r].ops[i].Kind {
			case opSignal:
				signals++
			case opWait:
				waits++
			}
		}
		n := len(kinds)
		if n == 0 || 2*n != signals+waits || !slices.Contains(kinds, opSignal) || !slices.Contains(kinds, opWait) {
			t.Errorf("rank %d leaves %v out, of %d signals and %d waits: expected half of each", r, kinds, signals, waits)
		}
	}
}

// Signals stay that say more than that a rank has begun: those behind a wait, and the waits for them.
func TestChainOfSignals(t *testing.T) {
	p, err := chain()
	if err != nil {
		t.Fatal(err)
	}
	for r, kinds := range marked(t, p) {
		if r == 2 && len(kinds) != 0 || r < 2 && len(kinds) != 1 {
			t.Errorf("rank %d leaves %v out: expected the signal of rank 0, and the wait of rank 1 for it", r, kinds)
		}
	}
}

// chain is a plan in which rank 2 learns by rank 1 that rank 0 has begun.
func chain() (*schema.Plan, error) {
	p := dsl.New(dsl.AllReduce(3, 1, true), dsl.Options{Name: "chain"})
	first, second, third, fourth := p.MemoryChannel(1, 0), p.MemoryChannel(0, 1), p.MemoryChannel(2, 1), p.MemoryChannel(1, 2)
	first.Signal(0, dsl.Relaxed)
	second.Wait(0, dsl.Relaxed|dsl.After)
	second.Put(p.Input(0).At(1), p.Input(1).At(1), dsl.Block(0))
	third.Signal(0, dsl.Relaxed)
	fourth.Wait(0, dsl.Relaxed|dsl.After)
	fourth.Put(p.Input(1).At(2), p.Input(2).At(2), dsl.Block(0))
	return p.Compile()
}
