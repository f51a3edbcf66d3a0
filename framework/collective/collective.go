// Package collective has the list of the collectives: their names, as configuration, command lines and
// results have them, their numbers, as kernels and reports of waits have them, and what each of them is like.
package collective

import (
	"fmt"
	"slices"
	"strings"

	"github.com/mscclpp-go/mscclpp/internal/suggest"
)

// Kind is one of the collectives. Its number appears in signatures and in reports about waits, and
// does not change.
type Kind uint32

// The collectives. Those from AllToAllV on are made of messages between pairs.
const (
	AllReduce Kind = iota + 1
	AllGather
	ReduceScatter
	Broadcast
	Reduce
	AllToAll
	Barrier
	AllToAllV
	Gather
	Scatter
	SendRecv
	Kinds = iota + 1 // all numbers are smaller
)

// traits are what a collective is like.
type traits struct {
	name    string
	reduces bool
	rooted  bool
	wide    bool
	inPlace bool
	bus     func(ranks float64) float64 // between algorithm bandwidth and bus bandwidth
}

func one(float64) float64           { return 1 }
func others(n float64) float64      { return (n - 1) / n }
func twiceOthers(n float64) float64 { return 2 * (n - 1) / n }

var table = [Kinds]traits{
	AllReduce:     {name: "allreduce", reduces: true, inPlace: true, bus: twiceOthers},
	AllGather:     {name: "allgather", wide: true, inPlace: true, bus: others},
	ReduceScatter: {name: "reducescatter", reduces: true, wide: true, inPlace: true, bus: others},
	Broadcast:     {name: "broadcast", rooted: true, inPlace: true, bus: one},
	Reduce:        {name: "reduce", reduces: true, rooted: true, inPlace: true, bus: one},
	AllToAll:      {name: "alltoall", wide: true, inPlace: true, bus: others},
	Barrier:       {name: "barrier"},
	AllToAllV:     {name: "alltoallv", wide: true, bus: others},
	Gather:        {name: "gather", rooted: true, wide: true, inPlace: true, bus: others},
	Scatter:       {name: "scatter", rooted: true, wide: true, inPlace: true, bus: others},
	SendRecv:      {name: "sendrecv", bus: one},
}

func (k Kind) traits() traits {
	if k < Kinds {
		return table[k]
	}
	return traits{}
}

// Valid reports whether there is a collective of this number.
func (k Kind) Valid() bool { return k > 0 && k < Kinds }

// String returns the name used in configuration and on the command line.
func (k Kind) String() string {
	if k.Valid() {
		return table[k].name
	}
	return fmt.Sprintf("collective(%d)", uint32(k))
}

// Reduces reports whether the collective takes a reduction.
func (k Kind) Reduces() bool { return k.traits().reduces }

// Rooted reports whether the collective takes a root.
func (k Kind) Rooted() bool { return k.traits().rooted }

// Wide reports whether the larger buffer holds count elements for every rank.
func (k Kind) Wide() bool { return k.traits().wide }

// HasInPlace reports whether the collective has an in-place form, as NCCL defines it.
func (k Kind) HasInPlace() bool { return k.traits().inPlace }

// Messages reports whether the collective is made of messages between pairs.
func (k Kind) Messages() bool { return k >= AllToAllV }

// All lists the collectives, in the order of the documentation.
func All() []Kind {
	return []Kind{AllReduce, AllGather, ReduceScatter, Broadcast, Reduce, AllToAll, AllToAllV, Gather, Scatter, SendRecv, Barrier}
}

// Parse is the inverse of String.
func Parse(name string) (Kind, error) {
	for k := Kind(1); k < Kinds; k++ {
		if table[k].name == name {
			return k, nil
		}
	}
	var names []string
	for _, t := range table[1:] {
		names = append(names, t.name)
	}
	return 0, fmt.Errorf("collective %q: expected one of %s", name, strings.Join(names, " "))
}

// Names lists all names, in the order of the documentation.
func Names() []string {
	var names []string
	for _, k := range All() {
		names = append(names, k.String())
	}
	return names
}

// Among returns the one of some collectives that a name means. Case, '-' and '_' do not matter.
func Among(name string, some []Kind) (Kind, error) {
	names := make([]string, len(some))
	for i, k := range some {
		names[i] = k.String()
	}
	plain := strings.NewReplacer("-", "", "_", "").Replace(strings.ToLower(name))
	if i := slices.Index(names, plain); i >= 0 {
		return some[i], nil
	}
	return 0, fmt.Errorf("collective %q%s: expected one of %s", name, suggest.Hint(suggest.Name(plain, names)), strings.Join(names, ", "))
}
