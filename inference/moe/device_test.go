package moe_test

import (
	"context"
	"errors"
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
	"github.com/mscclpp-go/mscclpp/inference/moe"
	"github.com/mscclpp-go/mscclpp/inference/moe/moetest"
	"github.com/mscclpp-go/mscclpp/transports/cudaipc"
)

// On emulated GPUs the committed PTX is interpreted, with blocks that do the work of several. Phases are on two streams by turns.
func TestPTXOnEmulatedGPUs(t *testing.T) {
	t.Setenv(emulated.EnvRun, "ptx")
	t.Setenv(emulated.EnvShape, "3x64")
	onEmulatedGPUs(t, 2, moetest.Trials())
}

// The images of this module load, and calls run in the order of streams.
func TestOnEmulatedGPUs(t *testing.T) {
	t.Setenv(emulated.EnvImages, emulated.Images(t, emulated.Source{Spec: "image/kernels.json"}))
	onEmulatedGPUs(t, 3, moetest.Trials())
}

func onEmulatedGPUs(t *testing.T, ranks int, trials []moetest.Trial) {
	t.Setenv(cuda.EnvLibrary, emulated.Build(t))
	t.Setenv(emulated.EnvMemory, "268435456")
	var gpus []topo.GPU
	for i := range ranks {
		d, err := cuda.Open(i)
		if err != nil {
			t.Fatal(err)
		}
		gpus = append(gpus, topo.GPU{Device: d.Info().Device, Name: d.Info().Name, PCI: d.PCI(), NUMA: -1})
		if err := d.Close(); err != nil {
			t.Fatal(err)
		}
	}
	ctx, cancel := context.WithTimeout(t.Context(), 3*time.Minute)
	defer cancel()
	var all sync.WaitGroup
	for r, boot := range bootstrap.InProcess(ranks) {
		all.Go(func() {
			defer boot.Close()
			if err := onGPU(ctx, boot, r, gpus, trials); err != nil {
				t.Errorf("rank %d: %v", r, err)
			}
		})
	}
	all.Wait()
}

func onGPU(ctx context.Context, boot framework.Bootstrap, index int, gpus []topo.GPU, trials []moetest.Trial) error {
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
	if err := callsOnGPU(ctx, c, dev, trials); err != nil {
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

func callsOnGPU(ctx context.Context, c *comm.Communicator, dev *cuda.Device, trials []moetest.Trial) error {
	b, err := moe.New(ctx, c, moetest.Options())
	if err != nil {
		return err
	}
	var streams [2]device.Stream
	for i := range streams {
		if streams[i], err = dev.NewStream(); err != nil {
			return err
		}
	}
	for i, x := range trials {
		r := moetest.Run{Trial: x, Rank: c.Rank(), Ranks: c.Size(), Seed: uint64(i), Handle: b.HandleBytes()}
		m, err := c.Alloc(uint64(r.Bytes()))
		if err != nil {
			return err
		}
		r.Memory = gpuMemory{dev, m.Addr()}
		settled := func(s device.Stream) error { return errors.Join(c.Settle(ctx, s), c.Check()) }
		if err := thereAndBack(b, r, streams, settled); err != nil {
			return err
		}
		if err := m.Close(); err != nil {
			return err
		}
	}
	return errors.Join(dev.CloseStream(streams[0]), dev.CloseStream(streams[1]), b.Close())
}

func thereAndBack(b *moe.Buffer, r moetest.Run, streams [2]device.Stream, settled func(device.Stream) error) error {
	call, err := r.Dispatch()
	if err != nil {
		return err
	}
	phases := []moe.Phase{moe.Whole}
	if r.Split {
		phases = []moe.Phase{moe.Send, moe.Receive}
	}
	for i, phase := range phases {
		call.Phase, call.Stream = phase, streams[i]
		if err := b.Dispatch(call); err != nil {
			return err
		}
	}
	if err := errors.Join(settled(call.Stream), r.CheckDispatch()); err != nil {
		return err
	}
	sum := r.Combine()
	for i, phase := range phases {
		sum.Phase, sum.Stream = phase, streams[1-i]
		if err := b.Combine(sum); err != nil {
			return err
		}
	}
	return errors.Join(settled(sum.Stream), r.CheckCombine())
}
