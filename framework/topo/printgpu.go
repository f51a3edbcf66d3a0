package topo

import (
	"fmt"
	"io"
	"maps"
	"slices"
	"strings"
)

// printGPUs writes what GPUs there are, and the matrix of distances as nvidia-smi
// topo -m has it.
func (h *Host) printGPUs(w io.Writer) {
	fmt.Fprintf(w, "\nGPU\tdevice\tname\tarch\tmemory\t%s\tnode\tPCI\n", h.linkHeading())
	for _, g := range h.GPUs {
		fmt.Fprintf(w, "%s\t%s\t%s\t%s\t%s\t%s\t%s\t%s\n", g.label(), g.Device, g.fullName(), or(g.Arch, "-"), size(g.Bytes),
			g.linkText(), node(g.NUMA), or(g.PCI, "-"))
		if g.MIG == nil {
			continue
		}
		for _, p := range g.MIG.Parts {
			fmt.Fprintf(w, "\t  part\t%s\t\t%s\t-\t\t%s\n", p.Name, size(p.Bytes), p.UUID)
		}
	}
	used := h.matrix(w)
	fmt.Fprintln(w)
	h.printAccess(w)
	h.printHives(w)
	printLegend(w, used)
}

// fullName is the name, and how one of AMD's GPUs is divided.
func (g GPU) fullName() string {
	words := []string{g.Name}
	if g.XCDs > 1 {
		words = append(words, count(g.XCDs, "XCD"))
	}
	if g.Partition != "" {
		words = append(words, g.Partition)
	}
	return strings.Join(words, ", ")
}

// printHives says which GPUs are in one network of xGMI links.
func (h *Host) printHives(w io.Writer) {
	members := map[string][]string{}
	for _, g := range h.GPUs {
		if g.Hive != "" {
			members[g.Hive] = append(members[g.Hive], g.label())
		}
	}
	for _, hive := range slices.Sorted(maps.Keys(members)) {
		fmt.Fprintf(w, "hive %s: %s\n", hive, strings.Join(members[hive], " "))
	}
}

// linkHeading names the links of the GPUs that there are.
func (h *Host) linkHeading() string {
	if len(h.GPUs) == 0 {
		return wordsOf("cuda").links
	}
	typ := h.GPUs[0].Device.Type
	if slices.ContainsFunc(h.GPUs, func(g GPU) bool { return g.Device.Type != typ }) {
		typ = "cuda" // the column is of several makers; the rows have their words
	}
	return wordsOf(typ).links
}

// linkText sums up the links of a GPU: "18 × v4 to switch".
func (g GPU) linkText() string {
	total, version, through, kind := 0, 0, "", ""
	for _, l := range g.Links {
		total += l.Count
		version = max(version, l.Version)
		if l.Kind != "" {
			kind = " " + l.Kind
		}
		if l.Peer == Switch {
			through = ", switch"
		}
	}
	switch {
	case total == 0:
		return "-"
	case version == 0:
		return fmt.Sprintf("%d%s%s", total, kind, through)
	}
	return fmt.Sprintf("%d v%d%s", total, version, through)
}

// matrix shows how far devices are from each other, and returns the words it used.
func (h *Host) matrix(w io.Writer) (used []string) {
	add := func(word string) {
		used = append(used, word)
		fmt.Fprint(w, "\t", word)
	}
	fmt.Fprintln(w)
	for _, g := range h.GPUs {
		fmt.Fprint(w, "\t", g.label())
	}
	for _, n := range h.NICs {
		fmt.Fprint(w, "\t", n.Name)
	}
	fmt.Fprint(w, "\tCPU affinity\tNUMA\n")
	for _, a := range h.GPUs {
		fmt.Fprint(w, a.label())
		for _, b := range h.GPUs {
			if a.PCI == b.PCI && a.Device == b.Device {
				add("X")
			} else {
				add(h.Between(a, b))
			}
		}
		for _, n := range h.NICs {
			add(h.apart(h.At(a.Device, nil), n.place()))
		}
		fmt.Fprintf(w, "\t%s\t%s\n", or(formatList(h.adapters(a)), "-"), node(a.NUMA))
	}
	for i, n := range h.NICs {
		fmt.Fprint(w, n.Name)
		for _, g := range h.GPUs {
			add(h.apart(n.place(), h.At(g.Device, nil)))
		}
		for j, m := range h.NICs {
			if i == j {
				add("X")
			} else {
				add(h.apart(n.place(), m.place()))
			}
		}
		fmt.Fprintf(w, "\t\t%s\n", node(n.NUMA))
	}
	return used
}

// adapters lists the processors near to a GPU: those that its driver names, else those
// of its memory node.
func (h *Host) adapters(g GPU) []int {
	if len(g.CPUs) > 0 {
		return g.CPUs
	}
	for _, n := range h.Nodes {
		if n.ID == g.NUMA {
			return n.CPUs
		}
	}
	return nil
}

// printAccess says which GPUs can address each other's memory, in as few lines as
// that takes.
func (h *Host) printAccess(w io.Writer) {
	reasons, pairs := map[string][]string{}, 0
	var order []string
	for i, a := range h.GPUs {
		for _, b := range h.GPUs[i+1:] {
			pairs++
			why := h.barrier(a, b)
			if _, seen := reasons[why]; !seen {
				order = append(order, why)
			}
			reasons[why] = append(reasons[why], a.label()+"-"+b.label())
		}
	}
	for _, why := range order {
		list := strings.Join(reasons[why], " ")
		if len(reasons[why]) == pairs {
			list = "all pairs"
		}
		fmt.Fprintf(w, "peer access: %s: %s\n", list, or(why, "yes"))
	}
}

// barrier says why two GPUs cannot address each other's memory; "" if they can.
func (h *Host) barrier(a, b GPU) string {
	ab, known := a.AccessTo(b)
	ba, back := b.AccessTo(a)
	switch {
	case !known || !back:
		return "unknown"
	case !ab.Granted():
		return "no (" + ab.Why() + ")"
	case !ba.Granted():
		return "no (" + ba.Why() + ")"
	case ab.Atomics != AccessOK || ba.Atomics != AccessOK:
		return "yes, without atomics"
	}
	return ""
}

var legend = []struct{ word, text string }{
	{"X", "the device itself"},
	{"NV", "that many NVLinks"},
	{"XGMI", "that many xGMI links"},
	{"L", "that many links of the maker's"},
	{PIX, "at most one PCIe bridge"},
	{PXB, "several PCIe bridges, not the host bridge"},
	{PHB, "a PCIe host bridge"},
	{NODE, "host bridges of one memory node"},
	{SYS, "the interconnect between memory nodes"},
}

// printLegend explains the words that were used.
func printLegend(w io.Writer, used []string) {
	fmt.Fprintln(w)
	width := 4
	if slices.ContainsFunc(used, func(u string) bool { return strings.HasPrefix(u, "XGMI") }) {
		width = 5
	}
	for _, l := range legend {
		word := l.word
		if !slices.ContainsFunc(used, func(u string) bool { return u == word || linked(word) && strings.HasPrefix(u, word) }) {
			continue
		}
		if linked(word) {
			word += "#"
		}
		fmt.Fprintf(w, "%-*s = %s\n", width, word, l.text)
	}
}

// linked tells the words that have a number of links behind them.
func linked(word string) bool { return word == "NV" || word == "XGMI" || word == "L" }

func size(bytes uint64) string {
	if bytes == 0 {
		return "-"
	}
	return fmt.Sprintf("%.1f GiB", float64(bytes)/(1<<30))
}
