package topo

import (
	"encoding/json"
	"fmt"
	"io"
	"strconv"
	"strings"
	"text/tabwriter"
)

// PrintJSON writes the machine as one JSON object.
func (h *Host) PrintJSON(w io.Writer) error {
	e := json.NewEncoder(w)
	e.SetIndent("", "  ")
	return e.Encode(h)
}

// Print writes the machine as tables for people.
func (h *Host) Print(w io.Writer) error {
	t := tabwriter.NewWriter(w, 0, 8, 2, ' ', 0)
	fmt.Fprintf(t, "host\t%s\n", or(h.Name, "?"))
	fmt.Fprintf(t, "boot id\t%s\n", or(h.ID, "?"))
	fmt.Fprintf(t, "processor\t%s, %s, %s\n", or(h.CPU, "?"), count(h.Sockets, "socket"), count(h.Cores, "core"))
	fmt.Fprintf(t, "\nnode\tprocessors\tmemory\tdistances\n")
	for _, n := range h.Nodes {
		fmt.Fprintf(t, "%d\t%s\t%.1f GiB\t%s\n", n.ID, or(formatList(n.CPUs), "-"), float64(n.Bytes)/(1<<30), strings.Trim(fmt.Sprint(n.Distances), "[]"))
	}
	for _, why := range h.Missing {
		if len(h.GPUs) > 0 { // of another vendor
			break
		}
		fmt.Fprintf(t, "\nno GPUs found: %s\n", why)
	}
	if len(h.NICs) > 0 {
		fmt.Fprintf(t, "\nadapter\tlink\tstate\trate\tnode\tPCI\tinterfaces\n")
		for _, n := range h.NICs {
			fmt.Fprintf(t, "%s\t%s\t%s\t%s\t%s\t%s\t%s\n", n.Name, or(n.Link, "-"), state(n.Up), speed(n.Mbps),
				node(n.NUMA), or(n.PCI, "-"), or(strings.Join(n.Interfaces, " "), "-"))
		}
	}
	if len(h.GPUs) > 0 {
		h.printGPUs(t)
	}
	return t.Flush()
}

// formatList is the inverse of parseList: "0-3,8".
func formatList(list []int) string {
	var b strings.Builder
	for i := 0; i < len(list); {
		j := i
		for j+1 < len(list) && list[j+1] == list[j]+1 {
			j++
		}
		if b.Len() > 0 {
			b.WriteByte(',')
		}
		b.WriteString(strconv.Itoa(list[i]))
		if j > i {
			b.WriteString("-" + strconv.Itoa(list[j]))
		}
		i = j + 1
	}
	return b.String()
}

func or(s, otherwise string) string {
	if s == "" {
		return otherwise
	}
	return s
}

func count(n int, what string) string {
	if n == 1 {
		return "1 " + what
	}
	return strconv.Itoa(n) + " " + what + "s"
}

func node(n int) string {
	if n < 0 {
		return "-"
	}
	return strconv.Itoa(n)
}

func state(up bool) string {
	if up {
		return "up"
	}
	return "down"
}

func speed(mbps int) string {
	switch {
	case mbps <= 0:
		return "-"
	case mbps%1000 == 0:
		return strconv.Itoa(mbps/1000) + " Gbit/s"
	case mbps > 1000:
		return fmt.Sprintf("%.1f Gbit/s", float64(mbps)/1000)
	}
	return strconv.Itoa(mbps) + " Mbit/s"
}
