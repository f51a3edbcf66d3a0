package topo

import (
	"slices"
	"strconv"
	"strings"
)

const (
	netDir  = "sys/class/net"
	rdmaDir = "sys/class/infiniband"
)

// nics lists RDMA devices, and the interfaces of other adapters. Interfaces that
// no device stands behind (bridges, tunnels, lo) are not adapters.
func (s system) nics() []NIC {
	var all []NIC
	claimed := map[string]bool{}
	for _, name := range s.names(rdmaDir) {
		n := s.rdma(name)
		for _, i := range n.Interfaces {
			claimed[i] = true
		}
		all = append(all, n)
	}
	for _, name := range s.names(netDir) {
		dir := netDir + "/" + name
		if claimed[name] || s.names(dir+"/device") == nil {
			continue
		}
		all = append(all, NIC{
			Name: name, Link: "Ethernet", MTU: s.number(dir+"/mtu", 0), Address: s.text(dir + "/address"),
			Up: s.text(dir+"/operstate") == "up", Mbps: max(s.number(dir+"/speed", 0), 0),
			NUMA: s.number(dir+"/device/numa_node", -1), bus: s.bus(dir),
		})
	}
	for i := range all {
		if path := all[i].bus; len(path) > 0 && isPCI(path[len(path)-1]) {
			all[i].PCI = path[len(path)-1]
		}
	}
	slices.SortFunc(all, func(a, b NIC) int { return natural(a.Name, b.Name) })
	return all
}

// rdma reads one RDMA device. With several ports, the first that is up speaks for
// it: ports of one device share its place in the machine, which is what counts.
func (s system) rdma(name string) NIC {
	dir := rdmaDir + "/" + name
	n := NIC{
		Name: name, RDMA: true, Address: s.text(dir + "/node_guid"),
		NUMA: s.number(dir+"/device/numa_node", -1), bus: s.bus(dir),
		Interfaces: s.names(dir + "/device/net"),
	}
	if n.Interfaces == nil {
		n.Interfaces = s.parent(dir)
	}
	for _, port := range s.names(dir + "/ports") {
		p := dir + "/ports/" + port
		up := strings.Contains(s.text(p+"/state"), "ACTIVE") // "4: ACTIVE"
		if n.Link != "" && !up {
			continue
		}
		n.Link, n.Mbps = s.text(p+"/link_layer"), rate(s.text(p+"/rate"))
		if n.Link == "InfiniBand" {
			n.subnet = subnetOf(s.text(p + "/gids/0"))
		}
		if up {
			n.Up = true
			break
		}
	}
	for _, i := range n.Interfaces {
		n.MTU = max(n.MTU, s.number(netDir+"/"+i+"/mtu", 0))
	}
	return n
}

// subnetOf is the first half of a port's address: "fe80:0000:0000:0000".
func subnetOf(gid string) string {
	parts := strings.Split(gid, ":")
	return strings.Join(parts[:min(4, len(parts))], ":")
}

// parent is the interface below a software device such as rxe, which has no
// hardware of its own.
func (s system) parent(dir string) []string {
	if name := s.text(dir + "/parent"); name != "" {
		return []string{name}
	}
	return nil
}

// rate reads "100 Gb/sec (4X EDR)" as Mbit/s. Rates may be fractions: 2.5.
func rate(text string) int {
	fields := strings.Fields(text)
	if len(fields) < 2 || !strings.HasPrefix(fields[1], "Gb/") {
		return 0
	}
	g, err := strconv.ParseFloat(fields[0], 64)
	if err != nil || g < 0 || g > 1e6 {
		return 0
	}
	return int(g * 1000)
}
