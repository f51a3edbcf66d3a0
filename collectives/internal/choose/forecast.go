package choose

import (
	"cmp"
	"fmt"
	"slices"

	"github.com/mscclpp-go/mscclpp/collectives/internal/choose/model"
	"github.com/mscclpp-go/mscclpp/collectives/internal/engine"
	"github.com/mscclpp-go/mscclpp/collectives/internal/kernelargs"
	"github.com/mscclpp-go/mscclpp/framework/collective"
	"github.com/mscclpp-go/mscclpp/framework/kernel"
)

// Sizes for which the model is asked: from the smallest to the largest, in steps of a half and a
// third. A size between two of them is treated as the larger one.
const (
	LeastModeled = 1 << 10
	MostModeled  = mostInPieces
	// The algorithm that was fastest for the size before stays if it takes at most so many times as
	// long: the model is not that exact.
	staysWithin = 1.02
)

// Facts are what rows of the model depend on.
type Facts struct {
	Route       Route
	Ranks       int
	CopyScratch uint64 // bytes
	Slots       Slots
}

// Builtin picks the rows for a communicator of GPUs: those that were measured, or, for numbers of ranks and links
// without measurements, those of the model for the algorithms that there are. basis says it in words.
func Builtin(f Facts, offered []*engine.Algorithm) (rows []engine.Row, basis string) {
	r, n := f.Route, f.Ranks
	if n < 2 || r.Measured {
		return deviceTable, fmt.Sprintf("rows measured on H200s, for %d ranks over %s", n, r.How)
	}
	g := forecast{links: r.Links, ranks: n, scratch: f.CopyScratch, slots: f.Slots}
	for k := collective.AllReduce; k < collective.Barrier; k++ {
		var list []*engine.Algorithm
		for _, a := range offered {
			if a.Collective == k {
				list = append(list, a)
			}
		}
		rows = append(rows, g.rows(k, list)...)
	}
	rows = append(rows, engine.Row{Collective: collective.Barrier, Algorithm: "signal"})
	return rows, fmt.Sprintf("a model of %d ranks over %s: %v", n, r.How, r.Links)
}

// forecast makes rows.
type forecast struct {
	links   model.Links
	ranks   int
	scratch uint64 // for copies
	slots   Slots
}

// sizeRange is a range of sizes up to bytes with one best algorithm.
type sizeRange struct {
	bytes uint64
	best  *engine.Algorithm
}

// rows are, for one collective, those for buffers that peers reach, those for others, and
// all algorithms in the order of their times for large messages: where a type, or a call
// in place, is not for the one that is best.
func (g *forecast) rows(k collective.Kind, all []*engine.Algorithm) []engine.Row {
	all = slices.DeleteFunc(slices.Clone(all), func(a *engine.Algorithm) bool { return a.ByRow || !g.knows(k, a) })
	all, rows := g.bare(k, all)
	reached := g.sizeRanges(k, all, engine.ReachInputs|engine.ReachOutputs)
	from := slices.IndexFunc(reached, func(s sizeRange) bool { return reachOf(s.best) != 0 })
	for i, s := range reached {
		row := engine.Row{Collective: k, MaxBytes: s.bytes, Algorithm: s.best.Name}
		if from >= 0 && i >= from && mixed(reached[from:]) {
			row.Registered = &yes
		}
		rows = append(rows, row)
	}
	for i, s := range g.sizeRanges(k, all, 0) {
		if i < len(reached) && reached[i] == s {
			continue // the same row for both
		}
		rows = append(rows, engine.Row{Collective: k, MaxBytes: s.bytes, Algorithm: s.best.Name})
	}
	slices.SortStableFunc(all, func(a, b *engine.Algorithm) int {
		return cmp.Compare(g.time(k, a, MostModeled), g.time(k, b, MostModeled))
	})
	for _, a := range all {
		rows = append(rows, engine.Row{Collective: k, Algorithm: a.Name})
	}
	return rows
}

// bare returns the algorithms that are for all types, and rows for those whose packets have no flag: up to the size at which one of
// the others overtakes them. These rows come first. A type without a NaN to spare is not served by them, and goes on to the next.
func (g *forecast) bare(k collective.Kind, all []*engine.Algorithm) (others []*engine.Algorithm, rows []engine.Row) {
	isBare := func(a *engine.Algorithm) bool {
		t := TraitsOf(a.Name, k)
		return t.LL && t.Protocol.Area == kernelargs.LamportArea
	}
	others = slices.DeleteFunc(slices.Clone(all), isBare)
	for _, a := range all {
		if !isBare(a) {
			continue
		}
		most := uint64(0)
		for _, bytes := range modeledSizes() {
			best := g.best(k, others, bytes, engine.ReachInputs|engine.ReachOutputs)
			if best == nil || !g.serves(k, a, bytes, 0) || g.time(k, a, bytes) > g.time(k, best, bytes) {
				break
			}
			most = bytes
		}
		if most != 0 {
			rows = append(rows, engine.Row{Collective: k, MaxBytes: most, Algorithm: a.Name})
		}
	}
	return others, rows
}

// modeledSizes are those that the model is asked for.
func modeledSizes() (sizes []uint64) {
	for power := uint64(LeastModeled); power <= MostModeled; power *= 2 {
		sizes = append(sizes, power)
		if more := power + power/2; more <= MostModeled {
			sizes = append(sizes, more)
		}
	}
	return sizes
}

// mixed reports whether what one of the algorithms reaches is not what the others do: then
// a call that has not all for the first must not meet the next one.
func mixed(list []sizeRange) bool {
	return slices.ContainsFunc(list, func(s sizeRange) bool { return reachOf(s.best) != reachOf(list[0].best) })
}

// sizeRanges asks the model for one size after the other. The last stretch has no end.
func (g *forecast) sizeRanges(k collective.Kind, all []*engine.Algorithm, reached engine.Reach) []sizeRange {
	var out []sizeRange
	for _, bytes := range modeledSizes() {
		best := g.best(k, all, bytes, reached)
		if best == nil {
			continue
		}
		if n := len(out); n > 0 {
			last := &out[n-1]
			if g.serves(k, last.best, bytes, reached) && g.time(k, last.best, bytes) <= staysWithin*g.time(k, best, bytes) {
				best = last.best
			}
			if best == last.best {
				last.bytes = bytes
				continue
			}
		}
		out = append(out, sizeRange{bytes, best})
	}
	if n := len(out); n > 0 {
		out[n-1].bytes = 0
	}
	return out
}

func (g *forecast) best(k collective.Kind, all []*engine.Algorithm, bytes uint64, reached engine.Reach) *engine.Algorithm {
	var serve []*engine.Algorithm
	var costs []*model.Cost
	for _, a := range all {
		if g.serves(k, a, bytes, reached) {
			serve, costs = append(serve, a), append(costs, costOf(a))
		}
	}
	at, _, known := g.links.Best(g.call(k, bytes), costs)
	if !known {
		return nil
	}
	return serve[at]
}

// serves reports whether an algorithm takes messages of a size: what packets have room for,
// and with the buffers of the peers that are reached.
func (g *forecast) serves(k collective.Kind, a *engine.Algorithm, bytes uint64, reached engine.Reach) bool {
	r := engine.Request{Collective: k, Bytes: bytes, Count: bytes, Type: kernel.Uint8, Ranks: g.ranks}
	if k.Wide() {
		r.Count = (bytes + uint64(g.ranks) - 1) / uint64(g.ranks)
	}
	t := TraitsOf(a.Name, k)
	return t.Reach&^reached == 0 && (!t.LL || t.Protocol.Room(&r) <= t.Protocol.Of(g.slots))
}

func (g *forecast) call(k collective.Kind, bytes uint64) model.Call {
	return model.Call{Collective: k, Ranks: g.ranks, Bytes: bytes, CopyScratch: g.scratch}
}

func (g *forecast) time(k collective.Kind, a *engine.Algorithm, bytes uint64) float64 {
	us, _ := g.links.Time(costOf(a), g.call(k, bytes))
	return us
}

func (g *forecast) knows(k collective.Kind, a *engine.Algorithm) bool {
	_, known := g.links.Time(costOf(a), g.call(k, LeastModeled))
	return known
}

func reachOf(a *engine.Algorithm) engine.Reach { return TraitsOf(a.Name, a.Collective).Reach }

func costOf(a *engine.Algorithm) *model.Cost { return TraitsOf(a.Name, a.Collective).Cost }
