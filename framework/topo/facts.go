package topo

import (
	"slices"

	"github.com/mscclpp-go/mscclpp/framework"
)

// Distances between two devices, nearest first, named as in the vendors' tools.
const (
	PIX  = "PIX"  // at most one PCIe bridge in between
	PXB  = "PXB"  // several bridges, but not the host bridge
	PHB  = "PHB"  // through the host bridge
	NODE = "NODE" // through host bridges of one memory node
	SYS  = "SYS"  // between memory nodes
)

var rank = map[string]int{PIX: 0, PXB: 1, PHB: 2, NODE: 3, SYS: 4}

// Place is where the kernels of a rank run.
type Place struct {
	NUMA int // -1: not known
	bus  []string
}

// At is the place of a device. For the host it is the memory node on which the
// rank's processors lie; for an accelerator, its own.
func (h *Host) At(d framework.Device, cpus []int) Place {
	for _, g := range h.GPUs {
		if g.Device == d {
			return Place{NUMA: g.NUMA, bus: g.bus}
		}
	}
	return Place{NUMA: h.NodeOf(cpus)}
}

// NodeOf is the one memory node on which all the processors lie, or -1.
func (h *Host) NodeOf(cpus []int) int {
	if len(h.Nodes) == 1 {
		return h.Nodes[0].ID
	}
	for _, n := range h.Nodes {
		inside := func(cpu int) bool { return slices.Contains(n.CPUs, cpu) }
		if len(cpus) > 0 && !slices.ContainsFunc(cpus, func(cpu int) bool { return !inside(cpu) }) {
			return n.ID
		}
	}
	return -1
}

// Facts are what transports are told about the surroundings of a rank: adapters,
// nearest first, those that are up before those that are not.
func (h *Host) Facts(p Place) framework.Facts {
	nics := slices.Clone(h.NICs)
	slices.SortStableFunc(nics, func(a, b NIC) int {
		if a.Up != b.Up {
			if a.Up {
				return -1
			}
			return 1
		}
		return rank[distance(p, a, h)] - rank[distance(p, b, h)]
	})
	f := framework.Facts{Host: h.ID, NUMA: p.NUMA}
	for _, n := range nics {
		f.NICs = append(f.NICs, framework.NIC{Name: n.Name, Distance: distance(p, n, h), NUMA: n.NUMA})
	}
	return f
}

// distance tells how far an adapter is. A rank on the host's processors is on its
// memory node, no nearer to one bridge than to another.
func distance(p Place, n NIC, h *Host) string {
	if common := shared(p.bus, n.bus); common > 0 {
		// What lies between the fork and a device is ports of switches: one each
		// when both hang on the same switch.
		switch bridges := max(len(p.bus), len(n.bus)) - 1 - common; {
		case common == 1:
			return PHB
		case bridges <= 1:
			return PIX
		default:
			return PXB
		}
	}
	if p.NUMA == n.NUMA && p.NUMA >= 0 || len(h.Nodes) == 1 {
		return NODE
	}
	return SYS
}

// shared counts the leading components that two ways have in common.
func shared(a, b []string) int {
	n := 0
	for n < len(a) && n < len(b) && a[n] == b[n] {
		n++
	}
	return n
}
