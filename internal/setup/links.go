package setup

import (
	"context"
	"io/fs"
	"log/slog"
	"strconv"
	"strings"

	"github.com/mscclpp-go/mscclpp/collectives"
	"github.com/mscclpp-go/mscclpp/framework"
	"github.com/mscclpp-go/mscclpp/framework/comm"
	"github.com/mscclpp-go/mscclpp/framework/topo"
)

// Probed is the answer about other GPUs by a transport whose kernels reach into them.
type Probed struct {
	transport string
	live      framework.Live
	err       error
}

// probeLinks asks those of the job.
func probeLinks(ctx context.Context, transports []*comm.Transport, facts framework.Facts) []Probed {
	var found []Probed
	for _, t := range transports {
		p, ok := t.Transport.(framework.Prober)
		if !ok || !t.Description.Probe || !t.Description.Has(framework.KindMemory) {
			continue
		}
		live, err := p.Probe(ctx, facts)
		found = append(found, Probed{t.Name, live, err})
	}
	return found
}

// tearsLines reports whether a store of 128 bytes may come in parts on its way to a
// GPU of this host: if one of the transports does not say that it arrives whole between
// all pairs. A rank may be alone on a GPU that has no other beside it, so no news is bad
// news.
func tearsLines(found []Probed, log *slog.Logger) bool {
	for _, p := range found {
		if p.err == nil && p.live.WholeLines {
			continue
		}
		log.Info("kernels send no packets of 128 bytes: collectives.lines says otherwise", "transport", p.transport, "nvlink", p.live.Facts["nvlink"], "error", p.err)
		return true
	}
	return false
}

// Links describes, for collectives, the path from the rank's device, which is of a type, to others: by the device itself,
// else by the first transport that knows it, and of the bus by the kernel.
func Links(root fs.FS, typ string, found []Probed, facts framework.Facts, hostMemory bool) collectives.Links {
	l := collectives.Links{Host: facts.Host, HostMemory: hostMemory, PCIe: busRate(root, facts.Other[topo.FactKey(typ, "pci")])}
	list, known := facts.Links, facts.LinksKnown
	for _, p := range found {
		if !known && p.err == nil && p.live.LinksKnown {
			list, known = p.live.Links, true
		}
	}
	l.Known = known
	for _, x := range list {
		l.NVLinks = append(l.NVLinks, collectives.NVLink(x))
	}
	return l
}

// busRate is the rate of a device's bus in each direction, in GB/s: its speed when it is not at
// rest, by its width. 0: the kernel does not say, or a virtual machine makes up something.
func busRate(root fs.FS, address string) float64 {
	read := func(name string) string {
		text, err := fs.ReadFile(root, "sys/bus/pci/devices/"+address+"/"+name)
		if err != nil {
			return ""
		}
		return strings.TrimSpace(string(text))
	}
	if address == "" {
		return 0
	}
	speed, _, _ := strings.Cut(read("max_link_speed"), " ") // "32.0 GT/s PCIe"
	transfers, err := strconv.ParseFloat(speed, 64)
	lanes, widthErr := strconv.Atoi(read("max_link_width"))
	if err != nil || widthErr != nil || transfers < leastSpeed || lanes < 1 || lanes > 32 {
		return 0
	}
	return transfers * float64(lanes) / 8 * 128 / 130
}

// leastSpeed is that of PCIe 3, from which on 128 bits travel as 130. No GPU that kernels
// are built for is slower, and what virtual machines make up is.
const leastSpeed = 8
