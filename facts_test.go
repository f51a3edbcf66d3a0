package mscclpp

import (
	"log/slog"
	"testing"

	"github.com/mscclpp-go/mscclpp/framework"
	"github.com/mscclpp-go/mscclpp/framework/gpu"
	"github.com/mscclpp-go/mscclpp/framework/gpu/host"
	"github.com/mscclpp-go/mscclpp/framework/topo"
)

// placed is a device that knows where it is.
type placed struct {
	gpu.Device
	pci string
}

func (p placed) Info() gpu.Info {
	return gpu.Info{Device: framework.Device{Type: "cuda", Index: 3}, Name: "a GPU"}
}
func (p placed) PCI() string { return p.pci }
func (p placed) UUID() (id [16]byte) {
	for i := range id {
		id[i] = byte(0xa0 + i)
	}
	return id
}

func TestFactsOfAGPU(t *testing.T) {
	f := factsOf(placed{pci: "0000:AB:00.0"}, "blade-7", slog.New(slog.DiscardHandler))
	if f.Host != "blade-7" {
		t.Errorf("host %q: expected the one that the job goes by", f.Host)
	}
	if f.Other[topo.FactPCI] != "0000:ab:00.0" || f.Other[topo.FactUUID] != "GPU-a0a1a2a3-a4a5-a6a7-a8a9-aaabacadaeaf" {
		t.Errorf("other facts %v: expected address and UUID of the device", f.Other)
	}
}

func TestFactsOfTheHost(t *testing.T) {
	d, err := host.Open()
	if err != nil {
		t.Fatal(err)
	}
	f := factsOf(d, "blade-7", slog.New(slog.DiscardHandler))
	if f.Host != "blade-7" || f.NUMA != -1 || len(f.Other) != 0 || len(f.NICs) != 0 {
		t.Errorf("%+v: expected the host alone", f)
	}
}
