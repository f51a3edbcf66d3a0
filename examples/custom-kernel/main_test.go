package main

import (
	"context"
	"fmt"
	"sync"
	"testing"
	"time"

	"github.com/mscclpp-go/mscclpp/framework/bootstrap"
	"github.com/mscclpp-go/mscclpp/framework/comm"
	"github.com/mscclpp-go/mscclpp/framework/device/host"
	"github.com/mscclpp-go/mscclpp/framework/kernel/check"
	"github.com/mscclpp-go/mscclpp/framework/kernel/check/checktest"
	"github.com/mscclpp-go/mscclpp/framework/kernel/image"
	"github.com/mscclpp-go/mscclpp/framework/kernel/image/imagetest"
	"github.com/mscclpp-go/mscclpp/transports"
)

// The example as it runs under mscclpp-run, with all ranks in this process.
func TestEveryRankAddsItsNeighbor(t *testing.T) {
	images := imagetest.Build(t, "kernel/kernels.json", "native")
	for _, ranks := range []int{2, 3} {
		t.Run(fmt.Sprint(ranks, " ranks"), func(t *testing.T) {
			ctx, cancel := context.WithTimeout(t.Context(), time.Minute)
			defer cancel()
			var all sync.WaitGroup
			for r, boot := range bootstrap.InProcess(ranks) {
				all.Go(func() {
					sums, err := member(ctx, boot, images)
					if err != nil {
						t.Errorf("rank %d: %v", r, err)
						return
					}
					for i, got := range sums {
						if want := float32(1000*(r+(r+ranks-1)%ranks) + 2*i); got != want {
							t.Errorf("rank %d element %d: %g, expected %g", r, i, got, want)
							return
						}
					}
				})
			}
			all.Wait()
		})
	}
}

// member is one rank: device, transport, communicator, kernel.
func member(ctx context.Context, boot *bootstrap.Local, images *image.Set) ([]float32, error) {
	dev, err := host.Open()
	if err != nil {
		return nil, err
	}
	defer dev.Close()
	shm, err := transports.Embed("shm", nil)
	if err != nil {
		return nil, err
	}
	t, err := comm.NewTransport(ctx, shm, "embedded")
	if err != nil {
		return nil, err
	}
	c, err := comm.New(ctx, boot, comm.Options{Device: dev, Transports: []*comm.Transport{t}})
	if err != nil {
		return nil, err
	}
	defer c.Close()
	return addNeighbor(ctx, c, images)
}

// The kernel with eight threads a rank, in all modes of the emulator.
func TestKernelIsRightWithManyThreads(t *testing.T) {
	program := check.Program{Source: "kernel/neighbor_check.cc"}
	checktest.Run(t, program, check.Seeds.Seeds, check.Modes...)
}
