// Package topo reads what a machine is made of: processors, memory nodes, network
// adapters, and how near they are to each other. From it come the Facts that a
// transport is given with each endpoint.
//
// Everything is read through an fs.FS that looks like the root of a Linux system,
// so a machine can be recorded (Record) and its recording be read anywhere: the
// tests know machines that no developer has on the desk. A fact that a machine does not
// give is left at its zero value, or -1 for a memory node; nothing here is an error
// but the absence of /sys.
//
// Accelerators are found by packages that can talk to their driver; a Finder adds them.
package topo

import (
	"io/fs"
	"slices"
	"strconv"
	"strings"
)

// Host is one machine.
type Host struct {
	ID      string `json:"id"`   // boot id: equal for all processes of one running kernel
	Name    string `json:"name"` // host name
	CPU     string `json:"cpu"`  // model
	Sockets int    `json:"sockets"`
	Cores   int    `json:"cores"`
	Nodes   []Node `json:"nodes"` // ascending
	NICs    []NIC  `json:"nics"`  // by name
	GPUs    []GPU  `json:"gpus"`  // added by finders

	// Missing has the reasons of finders that could not look.
	Missing []string `json:"missing,omitempty"`
}

// Node is a memory node.
type Node struct {
	ID        int    `json:"id"`
	CPUs      []int  `json:"cpus"`
	Bytes     uint64 `json:"bytes"`
	Distances []int  `json:"distances"` // to every node, as the firmware tells; 10 is local
}

// NIC is a network adapter: an RDMA device with its network interfaces, or an
// interface alone.
type NIC struct {
	Name       string   `json:"name"`
	RDMA       bool     `json:"rdma"`
	Interfaces []string `json:"interfaces,omitempty"` // of an RDMA device
	Link       string   `json:"link"`                 // "Ethernet", "InfiniBand"
	Up         bool     `json:"up"`
	Mbps       int      `json:"mbps"` // 0: unknown
	MTU        int      `json:"mtu,omitempty"`
	Address    string   `json:"address,omitempty"` // hardware address, or node GUID
	NUMA       int      `json:"numa"`              // -1: unknown
	PCI        string   `json:"pci,omitempty"`     // "0000:3b:00.0"
	bus        []string // the way to it: host bridge, bridges, device
	subnet     string   // of InfiniBand: what the adapter reaches
}

// Finder lists the accelerators of one vendor. It fills at least Device, Name and
// PCI. ErrUnavailable is no failure: the vendor's driver is not there.
type Finder func() ([]GPU, error)

// system reads small files, and forgives everything.
type system struct{ root fs.FS }

func (s system) text(name string) string {
	b, err := fs.ReadFile(s.root, name)
	if err != nil {
		return ""
	}
	return strings.TrimSpace(string(b))
}

func (s system) number(name string, otherwise int) int {
	n, err := strconv.Atoi(s.text(name))
	if err != nil {
		return otherwise
	}
	return n
}

// names lists a folder in natural order: node2 before node10.
func (s system) names(dir string) []string {
	entries, err := fs.ReadDir(s.root, dir)
	if err != nil {
		return nil
	}
	names := make([]string, len(entries))
	for i, e := range entries {
		names[i] = e.Name()
	}
	slices.SortFunc(names, natural)
	return names
}

// natural compares names with numbers at their end by the number.
func natural(a, b string) int {
	cut := func(s string) (string, int) {
		head := strings.TrimRight(s, "0123456789")
		n, err := strconv.Atoi(s[len(head):])
		if err != nil {
			n = -1
		}
		return head, n
	}
	ha, na := cut(a)
	hb, nb := cut(b)
	if c := strings.Compare(ha, hb); c != 0 {
		return c
	}
	if na != nb {
		return na - nb
	}
	return strings.Compare(a, b)
}

// bus returns the way to a device from its host bridge, read off the path that
// its entry under /sys/class or /sys/bus links to.
func (s system) bus(entry string) []string {
	target, err := fs.ReadLink(s.root, entry)
	if err != nil {
		return nil
	}
	var path []string
	for part := range strings.SplitSeq(target, "/") {
		if strings.HasPrefix(part, "pci") && strings.Contains(part, ":") || isPCI(part) {
			path = append(path, part)
		}
	}
	return path
}

// isPCI reports whether s is an address such as 0000:3b:00.0.
func isPCI(s string) bool {
	parts := strings.FieldsFunc(s, func(r rune) bool { return r == ':' || r == '.' })
	if len(parts) != 4 || strings.Count(s, ":") != 2 || strings.Count(s, ".") != 1 {
		return false
	}
	for _, p := range parts {
		if _, err := strconv.ParseUint(p, 16, 32); err != nil {
			return false
		}
	}
	return true
}
