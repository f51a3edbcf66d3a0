package simulate

import (
	"fmt"
	"slices"
	"strings"

	"github.com/mscclpp-go/mscclpp/framework/collective"
)

// Collective is what is predicted.
type Collective = collective.Kind

// The collectives.
const (
	AllReduce     = collective.AllReduce
	AllGather     = collective.AllGather
	ReduceScatter = collective.ReduceScatter
	Broadcast     = collective.Broadcast
	AllToAll      = collective.AllToAll
)

var predicted = []Collective{AllReduce, AllGather, ReduceScatter, Broadcast, AllToAll}

// ParseCollective is the inverse of String. Case, '-' and '_' do not matter.
func ParseCollective(name string) (Collective, error) {
	c, err := collective.Among(name, predicted)
	if err != nil {
		return 0, fmt.Errorf("%w: %w", err, ErrInvalid)
	}
	return c, nil
}

// Algorithm is a way to perform a collective.
type Algorithm int

// The algorithms. The first two do not know of hosts; the others have one phase
// inside the hosts and one between them.
const (
	FlatDirect    Algorithm = iota // every rank to every rank
	FlatRing                       // rings through all ranks, as many as ranks on a host
	SmallWhole                     // packets, one exchange between hosts, in which every rank sends all that its host has
	Small                          // packets, one exchange between hosts, in which every rank sends its part of that
	LargeDirect                    // pipelined, each host to each
	LargeRing                      // pipelined, hosts in a ring
	LargeDoubling                  // pipelined, partners at distances 1, 2, 4, …
	algorithms
)

var algorithmNames = [algorithms]string{"flat-direct", "flat-ring", "small-whole", "small", "large-direct", "large-ring", "large-doubling"}

// String returns the name as mscclpp-run takes it.
func (a Algorithm) String() string { return algorithmNames[a] }

// ParseAlgorithm is the inverse of String.
func ParseAlgorithm(name string) (Algorithm, error) {
	for a, n := range algorithmNames {
		if n == name {
			return Algorithm(a), nil
		}
	}
	return 0, fmt.Errorf("algorithm %q: expected one of %s: %w", name, strings.Join(algorithmNames[:], ", "), ErrInvalid)
}

// Pipelined reports whether the algorithm cuts a message into pieces.
func (a Algorithm) Pipelined() bool { return a >= LargeDirect }

// Algorithms returns the algorithms that exist for a collective on a cluster.
func Algorithms(c Collective, on Cluster) []Algorithm {
	var all []Algorithm
	for a := range algorithms {
		if supported(c, a, on) == nil {
			all = append(all, a)
		}
	}
	return all
}

// supported is nil, or says why there is no such algorithm.
func supported(c Collective, a Algorithm, on Cluster) error {
	switch {
	case !slices.Contains(predicted, c) || a < 0 || a >= algorithms:
		return fmt.Errorf("collective %d by algorithm %d: no such one: %w", c, a, ErrInvalid)
	case c == AllToAll && (a == FlatRing || a == LargeRing):
		return fmt.Errorf("alltoall by %s: no such algorithm, every block would travel half the ring: expected %s, %s or %s: %w",
			a, FlatDirect, LargeDirect, LargeDoubling, ErrInvalid)
	case c == AllToAll && a == SmallWhole:
		return fmt.Errorf("alltoall by %s: no such algorithm, no two ranks want the same: expected %s or %s: %w", a, Small, FlatDirect, ErrInvalid)
	case c == AllToAll && a == LargeDoubling && !on.Even():
		return fmt.Errorf("alltoall by %s: expected the same number of ranks on each host: %w", a, ErrInvalid)
	}
	return nil
}
