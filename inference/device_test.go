package inference_test

import (
	"context"
	"errors"
	"fmt"
	"testing"

	"github.com/mscclpp-go/mscclpp/framework/comm"
	"github.com/mscclpp-go/mscclpp/framework/device"
	"github.com/mscclpp-go/mscclpp/framework/device/cuda"
	"github.com/mscclpp-go/mscclpp/framework/device/cuda/emulated"
	"github.com/mscclpp-go/mscclpp/inference"
	"github.com/mscclpp-go/mscclpp/inference/inferencetest"
	"github.com/mscclpp-go/mscclpp/internal/ranktest"
)

// On emulated GPUs calls run in the order of streams, from the images of this module, and leave what they leave on the host.
func TestOnEmulatedGPUs(t *testing.T) {
	t.Setenv(emulated.EnvImages, emulated.Images(t, emulated.Source{Spec: "image/kernels.json", Types: []string{"bf16", "f16", "f32"}}))
	ranktest.OnEmulatedGPUs(t, 2, callsOnGPU)
}

// callsOnGPU makes the trials by turns on two streams.
func callsOnGPU(ctx context.Context, c *comm.Communicator, dev *cuda.Device) error {
	w, err := inference.New(ctx, c, inference.Options{Scratch: 1 << 20})
	if err != nil {
		return err
	}
	m, err := c.Alloc(1 << 20)
	if err != nil {
		return err
	}
	memory := ranktest.Memory{Device: dev, Base: m.Addr()}
	var streams [2]device.Stream
	for i := range streams {
		s, err := dev.NewStream()
		if err != nil {
			return err
		}
		streams[i] = s
	}
	for i, x := range inferencetest.Trials() {
		call, err := x.Call(memory, c.Rank(), c.Size(), uint64(i))
		if err != nil {
			return err
		}
		call.Stream = streams[i%2]
		if err := w.AllReduceNorm(call); err != nil {
			return fmt.Errorf("%v: %w", x, err)
		}
		if !w.HasFrequent(call.Type) { // a later call may be captured
			return fmt.Errorf("%v: the kernel of frequent calls is not loaded behind a call of its type", x)
		}
		if err := errors.Join(c.Settle(ctx, call.Stream), c.Check()); err != nil {
			return err
		}
		sum, err := x.Check(memory, c.Rank(), c.Size(), uint64(i))
		if err != nil {
			return err
		}
		if err := alike(ctx, c, sum); err != nil {
			return fmt.Errorf("%v: %w", x, err)
		}
	}
	return errors.Join(dev.CloseStream(streams[0]), dev.CloseStream(streams[1]), w.Close(), m.Close())
}
