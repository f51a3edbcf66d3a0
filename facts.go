package mscclpp

import (
	"encoding/hex"
	"log/slog"
	"strings"

	"github.com/mscclpp-go/mscclpp/framework"
	"github.com/mscclpp-go/mscclpp/framework/gpu"
	"github.com/mscclpp-go/mscclpp/framework/topo"
)

// onBus is a device that knows where it is: those of package cuda.
type onBus interface {
	PCI() string
	UUID() [16]byte
}

// factsOf is what transports are told about the surroundings of the rank's device. A
// number of a device means something else in every environment; an address does not.
// A rank on the host has no place on a bus, and is told the host alone.
func factsOf(dev gpu.Device, host string, log *slog.Logger) framework.Facts {
	facts := framework.Facts{Host: host, NUMA: -1}
	at, ok := dev.(onBus)
	if !ok {
		return facts
	}
	info := dev.Info()
	own := topo.GPU{Device: info.Device, Name: info.Name, PCI: strings.ToLower(at.PCI()), UUID: uuidText(at.UUID())}
	facts.Other = map[string]string{topo.FactPCI: own.PCI, topo.FactUUID: own.UUID}
	h, err := topo.System(func() ([]topo.GPU, error) { return []topo.GPU{own}, nil })
	if err != nil {
		log.Debug("transports are not told what is near the device", "reason", err)
		return facts
	}
	facts = h.Facts(h.At(info.Device, nil))
	facts.Host = host
	return facts
}

// uuidText writes a UUID as NVIDIA's tools do.
func uuidText(id [16]byte) string {
	x := hex.EncodeToString(id[:])
	return "GPU-" + x[:8] + "-" + x[8:12] + "-" + x[12:16] + "-" + x[16:20] + "-" + x[20:]
}
