package topo

import (
	"fmt"
	"strconv"
	"strings"

	"github.com/mscclpp-go/mscclpp/framework"
)

// FactLinks is the fact in which a transport tells a rank of the NVLinks between its GPU
// and the others of the host: what FormatPairs writes.
const FactLinks = "nvlink of this GPU"

// Pair is what joins a GPU with another one.
type Pair struct {
	Peer    string // PCI address
	Count   int    // of NVLinks
	Version int    // 0: not told
	Switch  bool   // whether they go through switches, and so to all peers
}

const noPairs = "none"

// Pairs lists the GPUs to which NVLinks lead from g.
func (g GPU) Pairs(gpus []GPU) []Pair {
	var out []Pair
	for _, o := range gpus {
		if n, through := g.NVLinks(o); n > 0 && o.PCI != g.PCI {
			p := Pair{Peer: o.PCI, Count: n, Switch: through == Switch}
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

// FormatPairs writes pairs for people and for ParsePairs: "0000:19:00.0 18 v4 switch", with
// commas between them, or "none".
func FormatPairs(pairs []Pair) string {
	if len(pairs) == 0 {
		return noPairs
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

// ParsePairs reads it. ErrInvalid: the text is something else.
func ParsePairs(text string) ([]Pair, error) {
	if text == noPairs {
		return nil, nil
	}
	var out []Pair
	for part := range strings.SplitSeq(text, ", ") {
		words := strings.Fields(part)
		bad := fmt.Errorf("%w: NVLinks %q: expected an address, a number, and perhaps a version and %q", framework.ErrInvalid, part, Switch)
		if len(words) < 2 || len(words) > 4 {
			return nil, bad
		}
		p := Pair{Peer: words[0]}
		rest := words[2:]
		var err error
		if p.Count, err = strconv.Atoi(words[1]); err != nil || p.Count <= 0 {
			return nil, bad
		}
		if len(rest) > 0 && rest[0] != Switch {
			version, ok := strings.CutPrefix(rest[0], "v")
			if p.Version, err = strconv.Atoi(version); !ok || err != nil || p.Version <= 0 {
				return nil, bad
			}
			rest = rest[1:]
		}
		if p.Switch = len(rest) == 1 && rest[0] == Switch; len(rest) > 0 && !p.Switch {
			return nil, bad
		}
		out = append(out, p)
	}
	return out, nil
}
