package matrix

import (
	"slices"

	"github.com/mscclpp-go/mscclpp/bench"
	"github.com/mscclpp-go/mscclpp/bench/cover"
	"github.com/mscclpp-go/mscclpp/framework/kernel"
)

// Tier says how much is checked: every pair of values over some sizes, and every
// combination over others.
type Tier struct {
	Name  string
	Pairs []int64
	All   []int64
}

// Tiers are the tiers of check, the quickest first. Sizes are those of the larger
// buffer in bytes, rounded up to whole elements. They are chosen around what
// implementations do differently: nothing, one element, less than one vector, packets,
// the thresholds of the selector, many chunks. Most are odd. Large sizes cost time in
// the reference, and show nothing that small ones do not except the number of chunks.
var Tiers = []Tier{
	{Name: "quick", Pairs: []int64{0, 1, 60, 1000, 4097, 33333, 262144}},
	{Name: "full", All: []int64{0, 1, 60, 1000, 16387}, Pairs: []int64{65537, 1<<20 + 24, 9<<20 + 5}},
}

// Support answers what a group can do.
type Support struct {
	Ranks      int
	Algorithms func(bench.Collective) []string
	// Runs says whether the algorithm that the case names can run it. It is not asked
	// about cases that leave the choice to the selector: those must run.
	Runs func(Case) bool
}

// The parameters of the space.
const (
	pCollective = iota
	pType
	pOp
	pSize
	pPlace
	pAlgorithm
	pBuffer
	pOffset
	pRoot
	parameters
)

// Cases returns what the tier checks, the same on every rank.
func (t Tier) Cases(s Support) []Case {
	var cases []Case
	every := newSpace(s, t.All)
	every.Values[pOffset], every.Values[pRoot] = 1, 1
	for v := range every.All {
		c := every.decode(v)
		c.scatter(len(cases), s.Ranks)
		cases = append(cases, c)
	}
	pairs := newSpace(s, t.Pairs)
	for _, v := range pairs.Pairs() {
		cases = append(cases, pairs.decode(v))
	}
	return cases
}

// space is the set from which a tier draws cases.
type space struct {
	cover.Space
	support Support
	all     []bench.Collective
	sizes   []int64
	names   []string // of algorithms, of any collective; "" first
}

func newSpace(s Support, sizes []int64) *space {
	sp := &space{support: s, all: bench.All(), sizes: sizes, names: []string{""}}
	for _, c := range sp.all {
		for _, a := range s.Algorithms(c) {
			if !slices.Contains(sp.names, a) {
				sp.names = append(sp.names, a)
			}
		}
	}
	sp.Values = []int{len(sp.all), kernel.DataTypes, kernel.Ops, len(sizes), 2, len(sp.names), 2, 2, 2}
	sp.Allowed = sp.allowed
	return sp
}

// scatter gives the n-th case one of two alignments and one of two roots, out of
// step with every other parameter.
func (c *Case) scatter(n, ranks int) {
	mixed := uint32(n) * 2654435761
	c.Offset = int(mixed >> 31)
	if c.Collective.Rooted() && mixed>>30&1 == 1 {
		c.Root = ranks - 1
	}
}

func (sp *space) decode(v []int) Case {
	c := Case{
		Collective: sp.all[v[pCollective]], Type: kernel.DataType(v[pType]), Op: kernel.Op(v[pOp]), Algorithm: sp.names[v[pAlgorithm]],
		InPlace: v[pPlace] == 1, Registered: v[pBuffer] == 1, Offset: v[pOffset],
	}
	if v[pRoot] == 1 {
		c.Root = sp.support.Ranks - 1
	}
	c.Count = countFor(c.Collective, sp.sizes[v[pSize]], c.Type.Size(), sp.support.Ranks)
	return c
}

// countFor rounds up, so that every size above 0 has an element.
func countFor(c bench.Collective, bytes int64, size, ranks int) int {
	per := int64(size) * bench.Larger(c, 1, ranks)
	if c == bench.AllToAllV {
		per = int64(size * ranks)
	}
	return int((bytes + per - 1) / per)
}

func (sp *space) allowed(v []int) bool {
	has := func(p int) bool { return v[p] != cover.Unset }
	if has(pCollective) {
		c := sp.all[v[pCollective]]
		switch {
		case !c.Reduces() && has(pOp) && v[pOp] != 0,
			!c.Rooted() && has(pRoot) && v[pRoot] != 0,
			!c.HasInPlace() && has(pPlace) && v[pPlace] != 0,
			has(pAlgorithm) && v[pAlgorithm] != 0 && !slices.Contains(sp.support.Algorithms(c), sp.names[v[pAlgorithm]]):
			return false
		}
	}
	if sp.support.Ranks == 1 && has(pRoot) && v[pRoot] != 0 {
		return false
	}
	if slices.Contains(v, cover.Unset) || v[pAlgorithm] == 0 {
		return true
	}
	return sp.support.Runs(sp.decode(v))
}

// Room returns the size of a buffer in which every case fits.
func Room(cases []Case, ranks int) int64 {
	room := int64(0)
	for _, c := range cases {
		room = max(room, c.bytes(ranks))
	}
	return room + guard
}

// guard is room behind the largest output, to see whether it is written to.
const guard = 256
