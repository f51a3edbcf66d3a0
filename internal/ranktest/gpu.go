package ranktest

import (
	"context"
	"errors"
	"strconv"
	"testing"
	"unsafe"

	"github.com/mscclpp-go/mscclpp/framework"
	"github.com/mscclpp-go/mscclpp/framework/bootstrap"
	"github.com/mscclpp-go/mscclpp/framework/comm"
	"github.com/mscclpp-go/mscclpp/framework/device/cuda"
	"github.com/mscclpp-go/mscclpp/framework/device/cuda/emulated"
	"github.com/mscclpp-go/mscclpp/framework/topo"
	"github.com/mscclpp-go/mscclpp/transports/cudaipc"
	"github.com/mscclpp-go/mscclpp/transports/nvls"
	"github.com/mscclpp-go/mscclpp/transports/shm"
	"github.com/mscclpp-go/mscclpp/transports/tcp"
)

// OnEmulatedGPUs runs f as n ranks with an emulated GPU each.
func OnEmulatedGPUs(t *testing.T, n int, f func(ctx context.Context, c *comm.Communicator, dev *cuda.Device) error) {
	t.Helper()
	onGPUs(t, make([]string, n), false, f)
}

// OnEmulatedSwitch is OnEmulatedGPUs with a switch between them. Its windows are reached by kernels that are interpreted, and by nothing else.
func OnEmulatedSwitch(t *testing.T, n int, f func(ctx context.Context, c *comm.Communicator, dev *cuda.Device) error) {
	t.Helper()
	onGPUs(t, make([]string, n), true, f)
}

// OnEmulatedGPUsOverHosts is OnEmulatedGPUs for ranks that say they are on several hosts, one name for each, with sockets between them and kernels
// for the host.
func OnEmulatedGPUsOverHosts(t *testing.T, hosts []string, f func(ctx context.Context, c *comm.Communicator, dev *cuda.Device) error) {
	t.Helper()
	onGPUs(t, hosts, false, f)
}

func onGPUs(t *testing.T, hosts []string, multicast bool, f func(ctx context.Context, c *comm.Communicator, dev *cuda.Device) error) {
	t.Helper()
	t.Setenv(cuda.EnvLibrary, emulated.Build(t))
	t.Setenv(emulated.EnvMemory, "268435456")
	gpus, err := listed(len(hosts))
	if err != nil {
		t.Fatal(err)
	}
	ranks(t, len(hosts), func(ctx context.Context, r int, boot *bootstrap.Local) error {
		defer boot.Close()
		return onGPU(ctx, boot, r, hosts[r], multicast, gpus, f)
	})
}

// listed are the first GPUs of the emulated driver.
func listed(n int) (gpus []topo.GPU, err error) {
	for i := range n {
		d, err := cuda.Open(i)
		if err != nil {
			return nil, err
		}
		gpus = append(gpus, topo.GPU{Device: d.Info().Device, Name: d.Info().Name, PCI: d.PCI(), NUMA: -1})
		if err := d.Close(); err != nil {
			return nil, err
		}
	}
	return gpus, nil
}

func onGPU(ctx context.Context, boot framework.Bootstrap, index int, name string, multicast bool, gpus []topo.GPU, f func(ctx context.Context, c *comm.Communicator, dev *cuda.Device) error) error {
	dev, err := cuda.Open(index)
	if err != nil {
		return err
	}
	direct, err := cudaipc.NewWith(cudaipc.Config{}.Defaults(), func(context.Context) ([]topo.GPU, error) { return gpus, nil })
	if err != nil {
		return err
	}
	all := []framework.Transport{direct}
	if name != "" {
		config := shm.Config{}.Defaults()
		config.Images = images
		shared, err := shm.New(config)
		if err != nil {
			return err
		}
		sockets, err := tcp.New(tcp.Config{}.Defaults())
		if err != nil {
			return err
		}
		all = append(all, shared, sockets)
	}
	o := comm.Options{Device: dev, Facts: framework.Facts{Host: name, NUMA: -1, Other: map[string]string{topo.FactPCI: dev.PCI()}}}
	if multicast {
		o.Facts.Other[topo.FactMulticast], o.Facts.Other[topo.FactDriver] = topo.MulticastYes, strconv.Itoa(dev.DriverVersion())
		if err := dev.Multicast(); err != nil {
			o.Facts.Other[topo.FactMulticast] = err.Error()
		}
		between, err := nvls.New(nvls.Config{}.Defaults())
		if err != nil {
			return err
		}
		all = append(all, between)
	}
	for _, inner := range all {
		tr, err := comm.NewTransport(ctx, inner, "embedded")
		if err != nil {
			return err
		}
		o.Transports = append(o.Transports, tr)
	}
	c, err := comm.New(ctx, boot, o)
	if err != nil {
		return err
	}
	if err := f(ctx, c, dev); err != nil {
		c.Abort(err)
		return err
	}
	errs := []error{c.Close()}
	for _, tr := range o.Transports {
		errs = append(errs, tr.CloseModules())
	}
	return errors.Join(append(errs, dev.Close())...)
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
