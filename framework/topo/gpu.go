package topo

import (
	"slices"
	"strconv"

	"github.com/mscclpp-go/mscclpp/framework"
)

// GPU is an accelerator. A Finder knows what its driver tells; NUMA comes from /sys.
type GPU struct {
	Device framework.Device `json:"device"` // numbered as the driver does, by PCI address
	Name   string           `json:"name"`
	UUID   string           `json:"uuid,omitempty"`
	Arch   string           `json:"arch,omitempty"`  // "sm_90"
	Bytes  uint64           `json:"bytes,omitempty"` // of memory
	NUMA   int              `json:"numa"`            // -1: unknown
	PCI    string           `json:"pci"`             // "0000:19:00.0"; "" for a maker's device that is on no bus
	CPUs   []int            `json:"cpus,omitempty"`  // those near to it
	Links  []Link           `json:"links,omitempty"`
	Access []Access         `json:"access,omitempty"`
	Fabric *Fabric          `json:"fabric,omitempty"`
	MIG    *MIG             `json:"mig,omitempty"` // nil: the GPU cannot be partitioned, or is not

	// Of AMD's GPUs: the dies with caches of their own, how the card is divided, and the network of links it is in.
	XCDs      int    `json:"xcds,omitempty"`
	Partition string `json:"partition,omitempty"` // "CPX NPS4"
	Hive      string `json:"hive,omitempty"`

	bus []string
}

// Link is a bundle of NVLinks, of AMD's xGMI links, or of another maker's, that lead to one place.
type Link struct {
	Peer    string `json:"peer"` // PCI address of a GPU, or Switch, or CPU; the UUID of a device that is on no bus
	Count   int    `json:"count"`
	Version int    `json:"version,omitempty"` // 4 on H100 and H200
	Kind    string `json:"kind,omitempty"`    // the word of another maker
}

// Ends of a link that are no GPU.
const (
	Switch = "switch"
	CPU    = "cpu"
)

// Access says whether a GPU may address the memory of another one: AccessOK, or why
// not in the driver's words.
type Access struct {
	Peer    string `json:"peer"` // PCI address
	Read    string `json:"read"`
	Write   string `json:"write"`
	Atomics string `json:"atomics"`
}

// AccessOK is granted access.
const AccessOK = "ok"

// Granted reports whether loads and stores reach the peer. Atomics may still be
// missing, between GPUs on PCIe.
func (a Access) Granted() bool { return a.Read == AccessOK && a.Write == AccessOK }

// Why says what is in the way.
func (a Access) Why() string {
	if a.Read != AccessOK {
		return a.Read
	}
	return a.Write
}

// Fabric is the place of a GPU in a switched NVLink network.
type Fabric struct {
	State   string `json:"state"`             // "completed": it has joined
	Cluster string `json:"cluster,omitempty"` // "" where the network is that of one host
	Clique  uint32 `json:"clique"`
}

// MIG lists the parts of a partitioned GPU. Programs run on the parts, which cannot
// address each other's memory.
type MIG struct {
	Parts []Part `json:"parts"`
}

// Part is a part of a partitioned GPU.
type Part struct {
	UUID  string `json:"uuid"`
	Name  string `json:"name"` // "1g.18gb"
	Bytes uint64 `json:"bytes"`
}

// where is how links and accesses of others name a GPU.
func (g GPU) where() string {
	if g.PCI != "" {
		return g.PCI
	}
	return g.UUID
}

// GPU finds a device.
func (h *Host) GPU(d framework.Device) (GPU, bool) {
	i := slices.IndexFunc(h.GPUs, func(g GPU) bool { return g.Device == d })
	if i < 0 {
		return GPU{}, false
	}
	return h.GPUs[i], true
}

// AccessTo tells whether g may address the memory of p, and false if the driver did
// not say. A GPU may always address its own.
func (g GPU) AccessTo(p GPU) (Access, bool) {
	if g.where() == p.where() {
		return Access{Peer: p.where(), Read: AccessOK, Write: AccessOK, Atomics: AccessOK}, true
	}
	i := slices.IndexFunc(g.Access, func(a Access) bool { return a.Peer == p.where() })
	if i < 0 {
		return Access{}, false
	}
	return g.Access[i], true
}

// NVLinks counts the links between two GPUs, direct ones or through switches, and
// says which of the two they are.
func (g GPU) NVLinks(p GPU) (count int, through string) {
	to := func(g GPU, peer string) int {
		for _, l := range g.Links {
			if l.Peer == peer {
				return l.Count
			}
		}
		return 0
	}
	if n := to(g, p.where()); n > 0 {
		return n, p.where()
	}
	if n := min(to(g, Switch), to(p, Switch)); n > 0 && g.Device.Type == p.Device.Type { // each maker's switches are others
		return n, Switch
	}
	return 0, ""
}

// Between is how two GPUs are joined, in the words of nvidia-smi: NV18, or the
// distance on PCIe. AMD's links are XGMI1.
func (h *Host) Between(a, b GPU) string {
	if n, _ := a.NVLinks(b); n > 0 {
		return a.linkWord() + strconv.Itoa(n)
	}
	return h.apart(Place{NUMA: a.NUMA, bus: a.bus}, Place{NUMA: b.NUMA, bus: b.bus})
}

// words are those of tables and drawings for a type of device: its own, the beginning of a link's, and the heading over links.
type words struct{ device, link, links string }

var knownWords = map[string]words{
	"cuda": {device: "GPU", link: "NV", links: "NVLink"},
	"hip":  {link: "XGMI", links: "xGMI"},
}

// wordsOf falls back to what any maker's devices have.
func wordsOf(typ string) words {
	if w, known := knownWords[typ]; known {
		return w
	}
	return words{link: "L", links: "links"}
}

// linkWord begins what tables and drawings call the links of a GPU.
func (g GPU) linkWord() string { return wordsOf(g.Device.Type).link }

// label is how tables and drawings name a GPU.
func (g GPU) label() string {
	if w := wordsOf(g.Device.Type).device; w != "" {
		return w + strconv.Itoa(g.Device.Index)
	}
	return g.Device.String()
}
