package topo

import (
	"strconv"
	"strings"

	"github.com/mscclpp-go/mscclpp/framework"
)

// Pairs lists the GPUs to which NVLinks lead from g.
func (g GPU) Pairs(gpus []GPU) []framework.DeviceLink {
	var out []framework.DeviceLink
	for _, o := range gpus {
		if n, through := g.NVLinks(o); n > 0 && o.where() != g.where() {
			p := framework.DeviceLink{Peer: o.where(), Count: n, Switch: through == Switch}
			for _, l := range g.Links {
				if l.Peer == through {
					p.Version = l.Version
				}
			}
			out = append(out, p)
		}
	}
	return out
}

// FormatPairs writes pairs for people: "0000:19:00.0 18 v4 switch", with
// commas between them, or "none".
func FormatPairs(pairs []framework.DeviceLink) string {
	if len(pairs) == 0 {
		return "none"
	}
	words := make([]string, len(pairs))
	for i, p := range pairs {
		words[i] = p.Peer + " " + strconv.Itoa(p.Count)
		if p.Version > 0 {
			words[i] += " v" + strconv.Itoa(p.Version)
		}
		if p.Switch {
			words[i] += " " + Switch
		}
	}
	return strings.Join(words, ", ")
}
