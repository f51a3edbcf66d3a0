package kfd

import (
	"fmt"
	"io/fs"
	"slices"
	"strconv"
	"strings"

	"github.com/mscclpp-go/mscclpp/framework"
	"github.com/mscclpp-go/mscclpp/framework/topo"
)

// Types of links, and bits of their flags.
const (
	linkPCIe = 2
	linkXGMI = 11

	enabled   = 1 << 0
	noAtomics = 1<<2 | 1<<3
	noP2P     = 1 << 4
)

// perLink is what one link carries in each direction, in MB/s, by processor: a bundle of several has a multiple of it.
var perLink = map[string]uint64{"gfx942": 64000, "gfx90a": 50000}

// names are what is sold with a processor, by processor and whether it has memory of its own.
var names = map[string]string{"gfx942": "AMD Instinct MI300", "gfx90a": "AMD Instinct MI200"}

func convert(root fs.FS, nodes []node) (gpus []topo.GPU) {
	at := map[int]*node{}
	parts := map[string]int{}
	for i := range nodes {
		at[nodes[i].number] = &nodes[i]
		parts[nodes[i].properties.card()]++
	}
	for i, n := range nodes {
		p := n.properties
		g := topo.GPU{
			Device: framework.Device{Type: Type, Index: i}, Name: name(p), Arch: p.arch(), PCI: p.address(), NUMA: -1,
			Bytes: memory(root, n.number), XCDs: int(p["num_xcc"]), Partition: partition(root, p, parts[p.card()]),
		}
		if id := p["unique_id"]; id != 0 {
			g.UUID = fmt.Sprintf("GPU-%016x", id)
		}
		if hive := p["hive_id"]; hive != 0 {
			g.Hive = strconv.FormatUint(hive, 16)
		}
		for _, l := range n.links {
			peer := at[int(l["node_to"])]
			if peer == nil || l["flags"]&enabled == 0 || int(l["node_to"]) == n.number {
				continue
			}
			g.Access = append(g.Access, access(l, peer.properties.address()))
			if l["type"] == linkXGMI {
				g.Links = append(g.Links, topo.Link{Peer: peer.properties.address(), Count: count(l, p.arch())})
			}
		}
		gpus = append(gpus, g)
	}
	return gpus
}

func name(p properties) string {
	if n, ok := names[p.arch()]; ok {
		return n
	}
	return "AMD " + p.arch()
}

// count is how many links a bundle has. Those of a part of a card carry a share of one.
func count(l properties, arch string) int {
	one := perLink[arch]
	if one == 0 {
		return 1
	}
	return max(1, int(l["max_bandwidth"]/one))
}

func access(l properties, peer string) topo.Access {
	a := topo.Access{Peer: peer, Read: topo.AccessOK, Write: topo.AccessOK, Atomics: topo.AccessOK}
	if l["flags"]&noP2P != 0 {
		a.Read, a.Write = "the driver has peer-to-peer access off", "the driver has peer-to-peer access off"
	}
	if l["flags"]&noAtomics != 0 {
		a.Atomics = "the link carries none"
	}
	return a
}

// memory is what lies on the device, 0 if the driver does not say.
func memory(root fs.FS, node int) (bytes uint64) {
	const public, private = 1, 2 // heaps of a device's memory: that processors address, and that they do not
	dir := nodesDir + "/" + strconv.Itoa(node) + "/mem_banks"
	entries, _ := fs.ReadDir(root, dir) // none: it does not say
	for _, e := range entries {
		if p := parse(root, dir+"/"+e.Name()+"/properties"); p["heap_type"] == public || p["heap_type"] == private {
			bytes += p["size_in_bytes"]
		}
	}
	return bytes
}

// modes are the names of the ways to divide a card of so many parts.
var modes = map[int]string{1: "SPX", 2: "DPX", 4: "QPX", 8: "CPX"}

// partition says how a card and its memory are divided, "" where it cannot be: "CPX NPS4". The driver's own words come
// first; otherwise the number of parts says it.
func partition(root fs.FS, p properties, parts int) string {
	if p["num_xcc"] == 0 || p.arch() != "gfx942" {
		return ""
	}
	read := func(what string) string {
		text, err := fs.ReadFile(root, "sys/bus/pci/devices/"+p.card()+".0/current_"+what+"_partition")
		if err != nil {
			return ""
		}
		return strings.TrimSpace(string(text))
	}
	words := []string{read("compute"), read("memory")}
	if words[0] == "" {
		words[0] = modes[parts]
	}
	return strings.Join(slices.DeleteFunc(words, func(w string) bool { return w == "" }), " ")
}
