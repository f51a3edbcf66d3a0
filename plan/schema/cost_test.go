package schema_test

import (
	"testing"

	"github.com/mscclpp-go/mscclpp/plan/schema"
)

// A plan may have a hundred thousand operations: its check makes no text, and nothing else, for one that is right.
func TestChecksAllocateNothingForOperations(t *testing.T) {
	p, err := schema.ReadFile("../verify/testdata/right/allgather_packet_ring.json")
	if err != nil {
		t.Fatal(err)
	}
	allocations := func() float64 {
		return testing.AllocsPerRun(5, func() {
			if err := p.Check(); err != nil {
				t.Error(err)
			}
		})
	}
	before, n := allocations(), 0
	for r := range p.GPUs {
		for b := range p.GPUs[r].Blocks {
			block := &p.GPUs[r].Blocks[b]
			ops := block.Ops
			for range 20 {
				block.Ops = append(block.Ops, ops...)
			}
			n += len(block.Ops)
		}
	}
	if after := allocations(); after > before {
		t.Errorf("a check of %d operations allocates %v times, before %v", n, after, before)
	}
}
