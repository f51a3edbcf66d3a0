package inference_test

import (
	"context"
	"errors"
	"fmt"
	"sync"
	"testing"
	"time"
	"unsafe"

	"github.com/mscclpp-go/mscclpp/framework"
	"github.com/mscclpp-go/mscclpp/framework/bootstrap"
	"github.com/mscclpp-go/mscclpp/framework/comm"
	"github.com/mscclpp-go/mscclpp/framework/device"
	"github.com/mscclpp-go/mscclpp/framework/device/cuda"
	"github.com/mscclpp-go/mscclpp/framework/device/cuda/emulated"
	"github.com/mscclpp-go/mscclpp/framework/topo"
	"github.com/mscclpp-go/mscclpp/inference"
	"github.com/mscclpp-go/mscclpp/inference/inferencetest"
	"github.com/mscclpp-go/mscclpp/transports/cudaipc"
)

// On emulated GPUs calls run in the order of streams, from the images of this module, and leave what they leave on the host.
func TestOnEmulatedGPUs(t *testing.T) {
	t.Setenv(cuda.EnvLibrary, emulated.Build(t))
	t.Setenv(emulated.EnvImages, emulated.Images(t, emulated.Source{Spec: "image/kernels.json", Types: []string{"bf16", "f16", "f32"}}))
	t.Setenv(emulated.EnvMemory, "268435456")
	var gpus []topo.GPU
	for i := range 2 {
		d, err := cuda.Open(i)
		if err != nil {
			t.Fatal(err)
		}
		gpus = append(gpus, topo.GPU{Device: d.Info().Device, Name: d.Info().Name, PCI: d.PCI(), NUMA: -1})
		if err := d.Close(); err != nil {
			t.Fatal(err)
		}
	}
	ctx, cancel := context.WithTimeout(t.Context(), 2*time.Minute)
	defer cancel()
	var ranks sync.WaitGroup
	for r, boot := range bootstrap.InProcess(2) {
		ranks.Go(func() {
			defer boot.Close()
			if err := onGPU(ctx, boot, r, gpus); err != nil {
				t.Errorf("rank %d: %v", r, err)
			}
		})
	}
	ranks.Wait()
}

func onGPU(ctx context.Context, boot framework.Bootstrap, index int, gpus []topo.GPU) error {
	dev, err := cuda.Open(index)
	if err != nil {
		return err
	}
	inner, err := cudaipc.NewWith(cudaipc.Config{}.Defaults(), func(context.Context) ([]topo.GPU, error) { return gpus, nil })
	if err != nil {
		return err
	}
	tr, err := comm.NewTransport(ctx, inner, "embedded")
	if err != nil {
		return err
	}
	facts := framework.Facts{NUMA: -1, Other: map[string]string{topo.FactPCI: dev.PCI()}}
	c, err := comm.New(ctx, boot, comm.Options{Device: dev, Transports: []*comm.Transport{tr}, Facts: facts})
	if err != nil {
		return err
	}
	if err := callsOnGPU(ctx, c, dev); err != nil {
		c.Abort(err)
		return err
	}
	return errors.Join(c.Close(), tr.CloseModules(), dev.Close())
}

// gpuMemory is memory of a device.
type gpuMemory struct {
	dev  *cuda.Device
	base uintptr
}

func (m gpuMemory) Pointer(at int) unsafe.Pointer {
	addr := m.base + uintptr(at)
	return *(*unsafe.Pointer)(unsafe.Pointer(&addr))
}
func (m gpuMemory) Write(p []byte, at int) error { return m.dev.WriteAt(p, m.base+uintptr(at)) }
func (m gpuMemory) Read(p []byte, at int) error  { return m.dev.ReadAt(p, m.base+uintptr(at)) }

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
	memory := gpuMemory{dev, m.Addr()}
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
