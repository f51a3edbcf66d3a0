package intra

import (
	"github.com/mscclpp-go/mscclpp/collectives/internal/kernelargs"
	"github.com/mscclpp-go/mscclpp/framework/device"
)

// launchToAll launches the kernel of an all-reduce for a reduce: for one piece after the other, as large as the spare memory, in which
// ranks that are not the root have the sums.
func launchToAll(a *kernelargs.Args, g *kernelargs.Geometry, r *residents, k device.Kernel, root int, l device.Launch) error {
	at, room := g.Unlined()
	element, all := uint64(a.Element), a.Count
	pieces := max(1, (all*element+room-1)/room)
	piece := min(room, (all*element/pieces+kernelargs.Burst)/kernelargs.Burst*kernelargs.Burst) / element
	apart := a.Rank != uint32(root)
	if apart {
		a.Output = a.Scratch[a.Rank] + uintptr(at)
	}
	for {
		a.Count = min(piece, all)
		a.Chunk = g.PipeChunk(a.Count*element/uint64(a.Ranks), a.Lanes, a.Ranks-1)
		if err := r.launch(k, a, l, kernelargs.ReleaseMet); err != nil {
			return err
		}
		if all -= a.Count; all == 0 {
			return nil
		}
		a.Input += uintptr(piece * element)
		if !apart {
			a.Output += uintptr(piece * element)
		}
	}
}
