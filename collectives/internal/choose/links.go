package choose

import (
	"cmp"
	"fmt"
	"slices"
	"strings"

	"github.com/mscclpp-go/mscclpp/collectives/internal/choose/model"
)

// Without a word, or with one that cannot be, the bus has 16 lanes of version 4.
const (
	defaultPCIe = 31.5
	mostPCIe    = 1000
	mostLinks   = 1 << 10
	mostRate    = 1e6 // GB/s
	mostLatency = 1e6 // µs
)

// The links and the device that the built-in rows were measured with.
const (
	measuredLinks   = 18
	measuredVersion = 4
	measuredMajor   = 9 // compute capability
	mostMeasured    = 4 // ranks
)

// linksOf is what joins two GPUs; none: PCIe. GPUs whose memory is reached on other hosts are
// behind the same switches.
func linksOf(a, b *Surroundings, lines bool) NVLink {
	if a.Links.Host != b.Links.Host && a.Links.Known {
		if i := slices.IndexFunc(a.Links.NVLinks, func(l NVLink) bool { return l.Switch }); i >= 0 {
			return a.Links.NVLinks[i]
		}
		return NVLink{}
	}
	for _, l := range a.Links.NVLinks {
		if l.Peer != "" && l.Peer == b.Address && l.Count >= 0 && l.Count <= mostLinks && l.Rate <= mostRate && l.Latency <= mostLatency {
			return l
		}
	}
	if a.Links.Known && b.Address != "" || !lines {
		return NVLink{}
	}
	return usual(a.Major, a.Minor)
}

// usual is what GPUs of a compute capability have if nothing says what these have, and if they
// may be joined by NVLink at all.
func usual(major, minor int) NVLink {
	switch {
	case major == 7 && minor == 0:
		return NVLink{Count: 6, Version: 2}
	case major == 8 && minor == 0:
		return NVLink{Count: 12, Version: 3, Switch: true}
	case major == 10:
		return NVLink{Count: 18, Version: 5, Switch: true}
	case major == measuredMajor || major == 0:
		return NVLink{Count: measuredLinks, Version: measuredVersion, Switch: true}
	}
	return NVLink{}
}

// Route is how the GPUs of all ranks are joined, by the slowest pair.
type Route struct {
	Links    model.Links
	How      string // in words
	Measured bool   // as on the machines of the built-in rows
}

// Joined finds it. It follows from what all ranks have said, so all find the same.
func Joined(list []Surroundings, noLines bool) Route {
	r := Route{Measured: !noLines && len(list) <= mostMeasured}
	var paths []string
	for i := range list {
		for j := range list {
			a, b := &list[i], &list[j]
			if i == j || a.Device != "" && a.Device == b.Device {
				continue
			}
			l, path, same := between(a, b, len(list)-1, !noLines)
			if len(paths) == 0 {
				r.Links = l
			}
			r.Links, r.Measured = r.Links.Slower(l), r.Measured && same
			if !slices.Contains(paths, path) {
				paths = append(paths, path)
			}
		}
	}
	r.How = strings.Join(paths, " and ")
	if len(paths) == 0 { // those of other machines are about as good
		r.Links, r.How = model.OverNVLink(measuredLinks, measuredVersion, 1, true, model.MemoryOf("")), "one GPU"
	}
	r.Links.Lines = !noLines
	return r
}

// between are the links from one rank to another, in numbers and in words, and whether rows
// were measured over such.
func between(a, b *Surroundings, peers int, lines bool) (l model.Links, path string, measured bool) {
	bus := a.Links.PCIe
	if bus <= 0 || bus > mostPCIe {
		bus = defaultPCIe
	}
	memory := model.MemoryOf(a.Name)
	if a.Links.HostMemory || b.Links.HostMemory {
		return model.OverHost(bus), "memory of the host", false
	}
	n := linksOf(a, b, lines)
	if n.Count == 0 {
		return model.OverPCIe(bus, memory), "PCIe", false
	}
	if n.Rate > 0 {
		to := " to each peer"
		if n.Switch {
			to = " through switches"
		}
		return model.OverLinks(n.Rate, n.Latency, peers, n.Switch, memory), fmt.Sprintf("%d %s%s", n.Count, cmp.Or(n.Kind, "links"), to), false
	}
	if model.IsAMD(a.Name) {
		return model.OverXGMI(n.Count, peers, a.Name), fmt.Sprintf("%d xGMI links to each peer", n.Count), false
	}
	// Over links to each peer of its own a GPU has those to the others besides.
	count, to := n.Count, " through switches"
	if !n.Switch {
		count, to = n.Count*peers, " to each peer"
	}
	path = fmt.Sprintf("%d NVLinks%s", n.Count, to)
	if n.Version > 0 {
		path = fmt.Sprintf("%d NVLinks %d%s", n.Count, n.Version, to)
	}
	if n.Kind != "" { // a maker's, of a rate that is not known
		return model.OverNVLink(count, n.Version, peers, n.Switch, memory), fmt.Sprintf("%d %s%s of an unknown rate", n.Count, n.Kind, to), false
	}
	same := n.Count == measuredLinks && (n.Version == measuredVersion || n.Version == 0) && (n.Switch || peers == 1)
	return model.OverNVLink(count, n.Version, peers, n.Switch, memory), path, same && (a.Major == measuredMajor || a.Major == 0)
}
