package topo

import (
	"maps"
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

// Keys of framework.Facts.Other for NVIDIA's GPUs; FactKey has those of other devices. Numbers of devices depend on the
// environment of a process; these do not.
const (
	FactUUID = "nvidia/uuid" // "GPU-…", or "MIG-…"
	FactPCI  = "nvidia/pci"  // "0000:19:00.0"

	// FactMemory is "host" where the rank's memory is that of the host, which GPUs reach
	// whatever lies between them; else it is not there.
	FactMemory = "nvidia/memory"

	// FactMulticast is MulticastYes where the rank's GPU and its driver have multicast, else why not; and FactDriver is
	// the version of that driver, 12060 for CUDA 12.6.
	FactMulticast = "nvidia/multicast"
	FactDriver    = "nvidia/driver"
	MulticastYes  = "yes"

	// FactReach is "host" where all ranks of the job are on one host and share its network,
	// so that no transport has to be reachable from elsewhere; else it is not there.
	FactReach = "job/reach"
)

// makers begin the keys of devices whose type is not that word.
var makers = map[string]string{"cuda": "nvidia"}

// FactKey is the key of a fact about devices of a type: "uuid", "pci" or "memory", as in nvidia/pci for cuda and acme/pci for acme.
func FactKey(typ, fact string) string {
	if maker := makers[typ]; maker != "" {
		typ = maker
	}
	return typ + "/" + fact
}

// Place is where the kernels of a rank run.
type Place struct {
	NUMA  int // -1: not known
	Turn  int // number of the rank in its host, by which ranks share out adapters
	bus   []string
	facts map[string]string
}

// At is the place of a device. For the host it is the memory node on which the
// rank's processors lie; for an accelerator, its own.
func (h *Host) At(d framework.Device, cpus []int) Place {
	if g, ok := h.GPU(d); ok {
		p := Place{NUMA: g.NUMA, bus: g.bus}
		p.facts = map[string]string{FactKey(d.Type, "pci"): g.PCI}
		if g.UUID != "" {
			p.facts[FactKey(d.Type, "uuid")] = g.UUID
		}
		return p
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

// Facts are the surroundings of a rank, for transports: adapters,
// nearest first, those that are up before those that are not. Transports take the
// first that they can use, so ranks of a host begin with different ones where there
// is a choice: adapters that are alike and equally near are taken in turn.
func (h *Host) Facts(p Place) framework.Facts {
	nics := slices.Clone(h.NICs)
	slices.SortStableFunc(nics, func(a, b NIC) int {
		if a.Up != b.Up {
			if a.Up {
				return -1
			}
			return 1
		}
		return rank[h.apart(p, a.place())] - rank[h.apart(p, b.place())]
	})
	h.inTurn(p, nics)
	f := framework.Facts{Host: h.ID, NUMA: p.NUMA, Other: maps.Clone(p.facts)}
	for _, n := range nics {
		f.NICs = append(f.NICs, framework.NIC{Name: n.Name, Distance: h.apart(p, n.place()), NUMA: n.NUMA})
	}
	return f
}

// inTurn has the adapters of each kind change places among themselves, so that the
// rank's turn comes first. A kind is equally near and in one network at one rate: else
// ranks would end up with adapters that cannot reach each other, or that are slower
// than need be. Where the kinds come is left as it is.
func (h *Host) inTurn(p Place, nics []NIC) {
	type kind struct {
		up, rdma         bool
		apart, link, net string
		mbps             int
	}
	seats := map[kind][]int{}
	for i, n := range nics {
		k := kind{n.Up, n.RDMA, h.apart(p, n.place()), n.Link, n.subnet, n.Mbps}
		seats[k] = append(seats[k], i)
	}
	was := slices.Clone(nics)
	for _, at := range seats {
		// Ranks that are neighbors get different ones, and so do those of one memory
		// node where ranks are dealt to nodes in turn: every second, every fourth.
		first := max(p.Turn, 0)%len(at) + max(p.Turn, 0)/len(at)
		for i, seat := range at {
			nics[seat] = was[at[(first+i)%len(at)]]
		}
	}
}

func (n NIC) place() Place { return Place{NUMA: n.NUMA, bus: n.bus} }

// apart tells how far two places are from each other. A rank on the host's
// processors is on its memory node, no nearer to one bridge than to another.
func (h *Host) apart(a, b Place) string {
	if common := shared(a.bus, b.bus); common > 0 {
		// Between the fork and a device lie ports of switches: one each
		// when both hang on the same switch.
		switch bridges := max(len(a.bus), len(b.bus)) - 1 - common; {
		case common == 1:
			return PHB
		case bridges <= 1:
			return PIX
		default:
			return PXB
		}
	}
	if a.NUMA == b.NUMA && a.NUMA >= 0 || len(h.Nodes) == 1 {
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
