package gpulink

import (
	"slices"

	"github.com/mscclpp-go/mscclpp/framework"
)

// Options are those of a transport's configuration.
type Options struct {
	Shares       []string // ways to map a peer's memory, best first
	RequireLinks bool     // refuse pairs of GPUs that no link joins
	Fabric       bool     // also reach GPUs of other hosts
}

// CheckShares says what is wrong with the option shares, which can name some of known.
func CheckShares(shares []string, known []framework.ShareKind) error {
	if len(shares) == 0 {
		return framework.BadOption("shares", "shares: the list is empty: expected some of %v", known)
	}
	for i, s := range shares {
		if !slices.Contains(known, framework.ShareKind(s)) {
			return framework.BadOption("shares", "shares: %q: expected some of %v", s, known)
		}
		if slices.Contains(shares[:i], s) {
			return framework.BadOption("shares", "shares: %q is listed twice", s)
		}
	}
	return nil
}

// Names are kinds of shares as the option has them.
func Names(kinds []framework.ShareKind) []string {
	var names []string
	for _, k := range kinds {
		names = append(names, string(k))
	}
	return names
}

func (o Options) uses(k framework.ShareKind) bool { return slices.Contains(o.Shares, string(k)) }

// order is the place of a kind in the list of preferences.
func (o Options) order(k framework.ShareKind) int { return slices.Index(o.Shares, string(k)) }
