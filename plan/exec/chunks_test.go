package exec

import (
	"slices"
	"testing"

	"github.com/mscclpp-go/mscclpp/plan/library"
)

// Plans that only copy, reduce and signal have a kernel of their own, the same on all ranks. Their large operands are dealt out if all have one size.
func TestPlansInChunks(t *testing.T) {
	for _, x := range []struct {
		name   string
		kernel string
		dealt  bool
	}{
		{"allreduce-2pa-chunks", forChunks, true},
		{"allgather-chunks", forChunks, true},
		{"allreduce-2pa-packets", forAll, false},
		{"allreduce-2pa-ports", forAll, false},
		{"allreduce-2pa-switch", forAll, false},
		{"allreduce-pipelined", forAll, false},
	} {
		u, all, err := inspect(compiled(t, x.name, library.Shape{Ranks: 3, Blocks: 2, InPlace: x.name == "allreduce-2pa-switch"}))
		if err != nil {
			t.Fatal(err)
		}
		marked := slices.ContainsFunc(all, func(t *tables) bool {
			return slices.ContainsFunc(t.ops, func(o op) bool { return o.Flags&dealt != 0 })
		})
		if u.kernel() != x.kernel || marked != x.dealt {
			t.Errorf("%s: %s, operands are dealt out: %v; expected %s, %v", x.name, u.kernel(), marked, x.kernel, x.dealt)
		}
	}
}

// Groups of several sizes divide operands in several ways: these stay whole.
func TestNothingIsDealtToGroupsOfSeveralSizes(t *testing.T) {
	_, all, err := inspect(compiled(t, "allgather-chunks", library.Shape{Ranks: 2, Blocks: 2}))
	if err != nil {
		t.Fatal(err)
	}
	for _, x := range all {
		for i := range x.ops {
			x.ops[i].Flags &^= dealt
		}
	}
	last := &all[1].ops[slices.IndexFunc(all[1].ops, func(o op) bool { return o.Slices == 2 })]
	last.Slices = 4
	deal(all)
	for _, x := range all {
		if slices.ContainsFunc(x.ops, func(o op) bool { return o.Flags&dealt != 0 }) {
			t.Error("operands are dealt out")
		}
	}
}
