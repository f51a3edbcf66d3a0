package devicetest

import (
	"context"
	"errors"
	"fmt"
	"testing"

	"github.com/mscclpp-go/mscclpp/collectives"
	"github.com/mscclpp-go/mscclpp/collectives/internal/choose"
	"github.com/mscclpp-go/mscclpp/collectives/internal/kernelargs"
	"github.com/mscclpp-go/mscclpp/framework/comm"
)

// A communicator asks the driver for units of 2 MiB: one each for semaphores and for what is expected of them, and those of
// scratch, which has the state of kernels behind it. The emulated driver counts them.
func TestAllocationsOfACommunicator(t *testing.T) {
	const scratch, unit = 48 << 20, 2
	if needsGPU(t); imageFolder == "" {
		t.Skip("needs the emulated driver: that of a GPU takes memory for streams as well")
	}
	job(t, 2, collectives.Options{}, func(ctx context.Context, r *rank) error {
		g, err := kernelargs.Divide(scratch, 2, choose.DeviceLanes, r.dev.LineBytes())
		if err != nil {
			return err
		}
		own := (g.WithLamport(2).Total + kernelargs.Burst + kernelargs.StateBytes + unit<<20 - 1) >> 20 / unit * unit
		var list []*collectives.Comm
		var worlds []*comm.Communicator
		for range 3 {
			before, err := r.held()
			if err != nil {
				return err
			}
			world, err := r.world.Split(ctx, 0, r.Rank())
			if err != nil {
				return err
			}
			worlds = append(worlds, world)
			semaphores, err := r.held()
			if err != nil {
				return err
			}
			c, err := collectives.New(ctx, world, collectives.Options{Scratch: scratch, CopyScratch: 1 << 30})
			if err != nil {
				return err
			}
			list = append(list, c)
			now, err := r.held()
			if err != nil {
				return err
			}
			if semaphores-before != 2*unit || now-semaphores != own {
				return fmt.Errorf("semaphores take %d MiB, and the rest %d: expected %d and %d", semaphores-before, now-semaphores, 2*unit, own)
			}
		}
		for i, c := range list {
			err = errors.Join(err, c.Close(), worlds[i].Close())
		}
		return errors.Join(err, r.world.Barrier(ctx))
	})
}
