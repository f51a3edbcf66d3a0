package intra

import (
	"testing"

	"github.com/mscclpp-go/mscclpp/collectives/internal/choose"
	"github.com/mscclpp-go/mscclpp/framework/device"
	"github.com/mscclpp-go/mscclpp/internal/fastpath"
)

// C counts blocks that may be waiting as Go does.
func TestPlannedResidents(t *testing.T) {
	for _, most := range []uint32{0, 2, 5, 64, 128} {
		for _, grid := range []uint32{1, 2, 3, 16, 32, 33, 64, 65, 128} {
			for _, block := range []uint32{32, 256, choose.BlockThreads} {
				for waiting := range uint32(130) {
					r := residents{most: most, waiting: waiting}
					l := device.Launch{Grid: grid, Block: block, Overlap: true}
					next, when := r.enter(&l)
					var x fastpath.Layout
					rules(&x, &r)
					cWhen, cWaiting, cOverlap := x.Enter(grid, block, waiting, true)
					if cWhen != uint32(when) || cWaiting != next.waiting || cOverlap != l.Overlap {
						t.Fatalf("most %d, waiting %d, %d blocks of %d: C says %d, %d, %v; Go %d, %d, %v",
							most, waiting, grid, block, cWhen, cWaiting, cOverlap, when, next.waiting, l.Overlap)
					}
				}
			}
		}
	}
}
