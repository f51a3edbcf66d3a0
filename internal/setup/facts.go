package setup

import (
	"fmt"
	"io/fs"
	"log/slog"
	"slices"
	"strconv"
	"strings"

	"github.com/mscclpp-go/mscclpp/framework"
	"github.com/mscclpp-go/mscclpp/framework/device"
	"github.com/mscclpp-go/mscclpp/framework/device/native"
	"github.com/mscclpp-go/mscclpp/framework/topo"
	"github.com/mscclpp-go/mscclpp/internal/processors"
)

// onBus is a device that may know where it is, and what tells it from all others: those of package native.
type onBus interface {
	PCI() string
	UUID() [16]byte
}

// hosting is a device whose allocations may be memory of the host: likewise.
type hosting interface{ Hosted() bool }

// multicasting is a device that knows whether it has multicast, without asking the driver for any: those of package cuda.
type multicasting interface {
	Multicast() error
	DriverVersion() int
}

// multicast notes what the rank's device says about multicast.
func multicast(dev device.Device, facts *framework.Facts) {
	d, ok := dev.(multicasting)
	if !ok {
		return
	}
	facts.Other[topo.FactMulticast], facts.Other[topo.FactDriver] = topo.MulticastYes, strconv.Itoa(d.DriverVersion())
	if err := d.Multicast(); err != nil {
		facts.Other[topo.FactMulticast] = err.Error()
	}
}

// Facts are the transports' input about the surroundings of the rank's device. A
// number of a device means something else in every environment; an address does not.
// A rank on the host has no place on a bus: the place of its processors counts.
// turn is the rank's number in its host, by which its ranks share out adapters.
func Facts(root fs.FS, dev device.Device, host string, turn int, log *slog.Logger) framework.Facts {
	facts := framework.Facts{Host: host, NUMA: -1}
	info := dev.Info()
	finders, cpus := []topo.Finder(nil), []int(nil)
	own := itself(dev)
	if own.PCI != "" {
		finders = append(finders, func() ([]topo.GPU, error) { return []topo.GPU{own}, nil })
	} else {
		cpus, _ = processors.Allowed() // none: nothing is said to be near
	}
	h, err := topo.Surroundings(root, finders...)
	if err != nil {
		log.Debug("transports get no facts about the surroundings of the device", "reason", err)
	} else {
		place := h.At(info.Device, cpus)
		place.Turn = turn
		facts = h.Facts(place)
		facts.Host = host
	}
	facts.Other = map[string]string{}
	if own.PCI != "" {
		facts.Other[topo.FactKey(info.Device.Type, "pci")] = own.PCI
	}
	if own.UUID != "" {
		facts.Other[topo.FactKey(info.Device.Type, "uuid")] = own.UUID
	}
	if d, ok := dev.(device.Linked); ok {
		_, facts.Links, facts.LinksKnown = d.Links()
	}
	if d, ok := dev.(hosting); ok && d.Hosted() {
		facts.Other[topo.FactKey(info.Device.Type, "memory")] = "host"
	}
	multicast(dev, &facts)
	if len(facts.NICs) > 0 {
		log.Debug("adapters, in the order in which transports try them", "adapters", inOrder(facts.NICs), "memory node", facts.NUMA,
			"reason", fmt.Sprintf("nearest to %v first; of those alike ranks of a host begin with different ones, and this is its rank %d", info.Device, turn))
	}
	return facts
}

// itself returns the identity of a device, without its links. A device that is on no bus has no address, and may have a UUID.
func itself(dev device.Device) topo.GPU {
	info := dev.Info()
	own := topo.GPU{Device: info.Device, Name: info.Name}
	if at, ok := dev.(onBus); ok {
		own.PCI, own.UUID = strings.ToLower(at.PCI()), uuidText(info.Device.Type, at.UUID())
	}
	return own
}

// oneHost notes for transports that no rank outside of this host takes part.
func oneHost(facts *framework.Facts) {
	facts.Other[topo.FactReach] = "host"
}

// inOrder writes adapters for people: "mlx5_0 (PIX) mlx5_1 (SYS)".
func inOrder(nics []framework.NIC) string {
	words := make([]string, len(nics))
	for i, n := range nics {
		words[i] = n.Name + " (" + n.Distance + ")"
	}
	return strings.Join(words, " ")
}

// Turn is the number of a rank among those of its host: as the launcher says, else
// by the ranks that are found to be there.
func Turn(getenv func(string) string, rank int, there []int) int {
	if local, err := localRank(getenv); err == nil && local > 0 {
		return local
	}
	return max(slices.Index(there, rank), 0)
}

// uuidText writes a UUID, that of an NVIDIA GPU as NVIDIA's tools do; "" if it is not known.
func uuidText(typ string, id [16]byte) string {
	text := native.FormatUUID(id)
	switch {
	case text == "":
	case typ == "cuda":
		return "GPU-" + text
	case typ == "hip":
		return "GPU-" + string(id[:]) // it is sixteen digits
	}
	return text
}
