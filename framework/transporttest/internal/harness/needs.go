package harness

import (
	"context"
	"fmt"
	"slices"
	"strings"

	"github.com/mscclpp-go/mscclpp/framework"
)

// Memory is what the device of the suite has for the transport.
type Memory struct {
	Apart  bool   // this process cannot touch it: it is a device's own
	Lacks  string // the quality that it lacks to be registered; "": it can be
	Absent bool   // it would do, but the transport has no device
}

// offers are the shares of which one has to be there to meet a need.
var offers = map[framework.Need]struct {
	kinds []framework.ShareKind
	text  string
}{
	framework.NeedMemFD:  {[]framework.ShareKind{framework.ShareMemFD}, "memory of the host behind a descriptor"},
	framework.NeedDMABuf: {[]framework.ShareKind{framework.ShareDMABuf}, "memory of a device that exports it as a dma-buf"},
	framework.NeedVMM: {[]framework.ShareKind{framework.ShareVMM, framework.ShareFabric, framework.ShareLegacyIPC},
		"memory of a GPU, exported by its driver"},
}

// look finds out whether memory of the device is what the transport needs. That it
// is not is no fault of the transport: what can be tested without is.
func look(ctx context.Context, o Options, side framework.Transport, d framework.Description) (m Memory, err error) {
	dev, err := o.Device(0)
	if err != nil {
		return m, fmt.Errorf("open the device of rank 0: %w", err)
	}
	defer dev.Close()
	m.Apart = dev.Info().Device != framework.Host
	mem, err := dev.Alloc(4096)
	if err != nil {
		return m, fmt.Errorf("allocate on %s: %w", dev.Info().Device, err)
	}
	defer mem.Close()
	shares, err := mem.Export()
	if err != nil {
		return m, fmt.Errorf("export memory of %s: %w", dev.Info().Device, err)
	}
	defer framework.Parcel{Shares: shares}.Close()
	var lacks []string
	for _, n := range d.Needs {
		need, known := offers[n]
		if known && !slices.ContainsFunc(shares, func(s framework.Share) bool {
			// Memory of the host that a device has registered is that device's, too.
			return slices.Contains(need.kinds, s.Kind) || m.Apart && n == framework.NeedVMM && s.Kind == framework.ShareMemFD
		}) {
			lacks = append(lacks, need.text)
		}
	}
	if len(lacks) == len(d.Needs) { // one is enough
		m.Lacks = strings.Join(lacks, " or ")
	}
	if p, ok := side.(framework.Prober); ok && d.Probe {
		ctx, cancel := context.WithTimeout(ctx, o.CallLimit)
		defer cancel()
		// The faults of an answer are for control/probe to report.
		live, err := p.Probe(ctx, o.Facts)
		switch {
		case err != nil || live.Available || live.Reason == "":
		case m.Lacks == "":
			m.Lacks, m.Absent = "a device: "+live.Reason, true
		default:
			m.Lacks += ": " + live.Reason
		}
	}
	return m, nil
}
