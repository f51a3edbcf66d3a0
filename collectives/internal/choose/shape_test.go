package choose

import (
	"testing"

	"github.com/mscclpp-go/mscclpp/collectives/internal/engine"
	"github.com/mscclpp-go/mscclpp/framework/collective"
)

// A kernel that does not wait for the one before it on its stream begins when that has ended: the barrier over a window does not.
func TestOverlap(t *testing.T) {
	c := Launcher{Blocks: 8, Overlap: true}
	for _, x := range []struct {
		kind      collective.Kind
		algorithm string
		want      bool
	}{
		{collective.Barrier, Signal, true}, {collective.Barrier, "switch", false}, {collective.AllReduce, "switch", false},
		{collective.AllReduce, "oneshot_ll8", true}, {collective.AllReduce, Zerocopy, true}, {collective.AllGather, Shares, true}, {collective.AllReduce, "twophase_chunk", false},
	} {
		traits := TraitsOf(x.algorithm, x.kind)
		if l := c.Shape(traits, BlockThreads, &engine.Request{Collective: x.kind, Bytes: 1024}, nil); l.Overlap != x.want {
			t.Errorf("%v by %s: overlaps %v, expected %v", x.kind, x.algorithm, l.Overlap, x.want)
		}
	}
}
