package exec

import (
	"testing"

	"github.com/mscclpp-go/mscclpp/plan/library"
)

// Launches may go in passes if packets alone connect the blocks of ranks, and each operand is one of equal parts of its buffer.
func TestPlansThatGoInPasses(t *testing.T) {
	for _, x := range []struct {
		name    string
		span    uint32
		packets bool
	}{
		{"allreduce-1pa", 3, true},
		{"allreduce-2pa-packets", 1, true},
		{"allgather-packets", 1, true},
		{"allreduce-2pa-chunks", 1, false},
		{"alltoall", 1, false},
		{"allreduce-pipelined", 0, false},
	} {
		u, _, err := inspect(compiled(t, x.name, library.Shape{Ranks: 3, Blocks: 2}))
		if err != nil {
			t.Fatal(err)
		}
		if u.packets != x.packets || x.packets && u.span != x.span {
			t.Errorf("%s: packets alone: %v, chunks of each operand: %d; expected %v, %d", x.name, u.packets, u.span, x.packets, x.span)
		}
		e := &Executor{setting: setting{plan: compiled(t, x.name, library.Shape{Ranks: 3, Blocks: 2}), use: u}, host: true}
		if large, small := e.piece(wholeBytes+16), e.piece(wholeBytes/16); x.packets != (large != 0) || large*uint64(x.span) > pieceBytes || small != 0 {
			t.Errorf("%s: passes of %d and %d bytes", x.name, large, small)
		}
	}
}
