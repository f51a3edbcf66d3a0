package ranktest

import (
	"context"
	"errors"
	"testing"
	"unsafe"

	"github.com/mscclpp-go/mscclpp/framework"
	"github.com/mscclpp-go/mscclpp/framework/bootstrap"
	"github.com/mscclpp-go/mscclpp/framework/comm"
	"github.com/mscclpp-go/mscclpp/framework/device/cuda"
	"github.com/mscclpp-go/mscclpp/framework/device/cuda/emulated"
	"github.com/mscclpp-go/mscclpp/framework/topo"
	"github.com/mscclpp-go/mscclpp/transports/cudaipc"
)

// OnEmulatedGPUs runs f as n ranks with an emulated GPU each.
func OnEmulatedGPUs(t *testing.T, n int, f func(ctx context.Context, c *comm.Communicator, dev *cuda.Device) error) {
	t.Helper()
	t.Setenv(cuda.EnvLibrary, emulated.Build(t))
	t.Setenv(emulated.EnvMemory, "268435456")
	var gpus []topo.GPU
	for i := range n {
		d, err := cuda.Open(i)
		if err != nil {
			t.Fatal(err)
		}
		gpus = append(gpus, topo.GPU{Device: d.Info().Device, Name: d.Info().Name, PCI: d.PCI(), NUMA: -1})
		if err := d.Close(); err != nil {
			t.Fatal(err)
		}
	}
	ranks(t, n, func(ctx context.Context, r int, boot *bootstrap.Local) error {
		defer boot.Close()
		return onGPU(ctx, boot, r, gpus, f)
	})
}

func onGPU(ctx context.Context, boot *bootstrap.Local, index int, gpus []topo.GPU, f func(ctx context.Context, c *comm.Communicator, dev *cuda.Device) error) error {
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
	if err := f(ctx, c, dev); err != nil {
		c.Abort(err)
		return err
	}
	return errors.Join(c.Close(), tr.CloseModules(), dev.Close())
}

// Memory is memory of an emulated GPU, for trials.
type Memory struct {
	Device *cuda.Device
	Base   uintptr
}

// Pointer is where a byte is.
func (m Memory) Pointer(at int) unsafe.Pointer {
	addr := m.Base + uintptr(at)
	return *(*unsafe.Pointer)(unsafe.Pointer(&addr))
}

// Write copies to the memory.
func (m Memory) Write(p []byte, at int) error { return m.Device.WriteAt(p, m.Base+uintptr(at)) }

// Read copies from it.
func (m Memory) Read(p []byte, at int) error { return m.Device.ReadAt(p, m.Base+uintptr(at)) }
