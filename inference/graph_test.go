package inference_test

import (
	"context"
	"errors"
	"fmt"
	"testing"

	"github.com/mscclpp-go/mscclpp/framework/comm"
	"github.com/mscclpp-go/mscclpp/framework/device/cuda"
	"github.com/mscclpp-go/mscclpp/framework/device/cuda/emulated"
	"github.com/mscclpp-go/mscclpp/framework/kernel"
	"github.com/mscclpp-go/mscclpp/inference"
	"github.com/mscclpp-go/mscclpp/inference/inferencetest"
	"github.com/mscclpp-go/mscclpp/internal/ranktest"
)

// A graph of calls, one- and two-shot, is right in each replay, with other inputs than it was recorded with, and beside eager calls.
func TestGraphs(t *testing.T) {
	t.Setenv(emulated.EnvImages, emulated.Images(t, emulated.Source{Spec: "image/kernels.json"}))
	ranktest.OnEmulatedGPUs(t, 2, func(ctx context.Context, c *comm.Communicator, dev *cuda.Device) error {
		w, err := inference.New(ctx, c, inference.Options{Scratch: 1 << 20})
		if err != nil {
			return err
		}
		s, err := dev.NewStream()
		if err != nil {
			return err
		}
		trials := []inferencetest.Trial{{Type: kernel.BFloat16, Tokens: 3, Hidden: 264}, {Type: kernel.BFloat16, Tokens: 5, Hidden: 128, Shots: inference.TwoShot}}
		memories := make([]ranktest.Memory, len(trials))
		for i, x := range trials {
			m, err := c.Alloc(uint64(x.Bytes()))
			if err != nil {
				return err
			}
			memories[i] = ranktest.Memory{Device: dev, Base: m.Addr()}
		}
		// inputs are those of a round; calls are made of them, and checked.
		calls := func(seed uint64, launch bool) error {
			for i, x := range trials {
				call, err := x.Call(memories[i], c.Rank(), c.Size(), seed)
				if err != nil {
					return err
				}
				if call.Stream = s; launch {
					err = w.AllReduceNorm(call)
				}
				if err != nil {
					return err
				}
			}
			return nil
		}
		check := func(seed uint64) error {
			if err := errors.Join(c.Settle(ctx, s), c.Check()); err != nil {
				return err
			}
			for i, x := range trials {
				if _, err := x.Check(memories[i], c.Rank(), c.Size(), seed); err != nil {
					return fmt.Errorf("%v, seed %d: %w", x, seed, err)
				}
			}
			return nil
		}
		if err := errors.Join(calls(1, true), check(1)); err != nil { // kernels are loaded
			return err
		}
		if err := dev.BeginCapture(s, cuda.CaptureThreadLocal); err != nil {
			return err
		}
		err = calls(2, true)
		g, err2 := dev.EndCapture(s)
		if err := errors.Join(err, err2); err != nil {
			return err
		}
		for seed := range uint64(5) {
			if err := errors.Join(calls(10+seed, false), c.Barrier(ctx), g.Launch(s), check(10+seed)); err != nil {
				return err
			}
			if err := errors.Join(c.Barrier(ctx), calls(20+seed, true), check(20+seed), c.Barrier(ctx)); err != nil {
				return err
			}
		}
		return errors.Join(g.Close(), dev.CloseStream(s), w.Close())
	})
}
