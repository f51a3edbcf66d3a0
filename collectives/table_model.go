package collectives

import (
	"cmp"
	"fmt"
	"slices"

	"github.com/mscclpp-go/mscclpp/collectives/model"
	"github.com/mscclpp-go/mscclpp/framework/kernel"
)

// Sizes for which the model is asked: from the smallest to the largest, in steps of a half
// and a third. What is between two of them is treated as the larger one.
const (
	leastModeled = 1 << 10
	mostModeled  = mostInPieces
	// What was fastest for the size before stays if it takes at most so many times as long:
	// the model is not that exact.
	staysWithin = 1.02
)

// useBuiltin picks the rows for this communicator: those that were measured, or, for numbers of
// ranks and links that nobody has measured, those of the model.
func (c *Comm) useBuiltin(r route, n int) {
	c.basis = fmt.Sprintf("rows measured on H200s, for %d ranks over %s", n, r.how)
	c.builtin = deviceTable
	if n < 2 || r.measured {
		return
	}
	c.basis = fmt.Sprintf("a model of %d ranks over %s: %v", n, r.how, r.links)
	c.builtin = c.modeled(r.links, n)
}

// modeled are the rows of the model for the algorithms that there are.
func (c *Comm) modeled(l model.Links, ranks int) []Row {
	g := forecast{links: l, ranks: ranks, scratch: c.opts.CopyScratch}
	_, _, g.slot = c.geometry.LLArea(false, ranks)
	_, _, g.lineSlot = c.geometry.LLArea(true, ranks)
	var rows []Row
	for k := AllReduce; k < Barrier; k++ {
		rows = append(rows, g.rows(k, c.algorithms[k])...)
	}
	return append(rows, Row{Collective: Barrier, Algorithm: "signal"})
}

// forecast makes rows.
type forecast struct {
	links          model.Links
	ranks          int
	scratch        uint64 // for copies
	slot, lineSlot uint64
}

// stretch is a range of sizes up to bytes with one best algorithm.
type stretch struct {
	bytes uint64
	best  *algorithm
}

// rows are, for one collective, those for buffers that peers reach, those for others, and
// all algorithms in the order of their times for large messages: where a type, or a call
// in place, is not for the one that is best.
func (g *forecast) rows(k Collective, all []*algorithm) []Row {
	all = slices.DeleteFunc(slices.Clone(all), func(a *algorithm) bool { return a.own != nil || a.window || !g.knows(k, a) })
	var rows []Row
	reached := g.stretches(k, all, reachInputs|reachOutputs)
	from := slices.IndexFunc(reached, func(s stretch) bool { return s.best.reach != 0 })
	for i, s := range reached {
		row := Row{Collective: k, MaxBytes: s.bytes, Algorithm: s.best.name}
		if from >= 0 && i >= from && mixed(reached[from:]) {
			row.Registered = &yes
		}
		rows = append(rows, row)
	}
	for i, s := range g.stretches(k, all, 0) {
		if i < len(reached) && reached[i] == s {
			continue // the same row for both
		}
		rows = append(rows, Row{Collective: k, MaxBytes: s.bytes, Algorithm: s.best.name})
	}
	slices.SortStableFunc(all, func(a, b *algorithm) int { return cmp.Compare(g.time(k, a, mostModeled), g.time(k, b, mostModeled)) })
	for _, a := range all {
		rows = append(rows, Row{Collective: k, Algorithm: a.name})
	}
	return rows
}

// mixed reports whether what one of the algorithms reaches is not what the others do: then
// a call that has not all for the first must not meet the next one.
func mixed(list []stretch) bool {
	return slices.ContainsFunc(list, func(s stretch) bool { return s.best.reach != list[0].best.reach })
}

// stretches asks the model for one size after the other. The last stretch has no end.
func (g *forecast) stretches(k Collective, all []*algorithm, reached reach) []stretch {
	var out []stretch
	for power := uint64(leastModeled); power <= mostModeled; power *= 2 {
		for _, bytes := range []uint64{power, power + power/2} {
			best := g.best(k, all, bytes, reached)
			if best == nil || bytes > mostModeled {
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
			out = append(out, stretch{bytes, best})
		}
	}
	if n := len(out); n > 0 {
		out[n-1].bytes = 0
	}
	return out
}

func (g *forecast) best(k Collective, all []*algorithm, bytes uint64, reached reach) *algorithm {
	var names []string
	for _, a := range all {
		if g.serves(k, a, bytes, reached) {
			names = append(names, a.name)
		}
	}
	name, _, _ := g.links.Best(g.call(k, bytes), names)
	return find(all, name)
}

// serves reports whether an algorithm takes messages of a size: what packets have room for,
// and with the buffers of the peers that are reached.
func (g *forecast) serves(k Collective, a *algorithm, bytes uint64, reached reach) bool {
	r := Request{Collective: k, Bytes: bytes, Count: bytes, Type: kernel.Uint8, Ranks: g.ranks, slot: g.slot, lineSlot: g.lineSlot}
	if k.Wide() {
		r.Count = (bytes + uint64(g.ranks) - 1) / uint64(g.ranks)
	}
	return a.reach&^reached == 0 && (!a.isNear || a.near.room(&r) <= a.near.of(&r))
}

func (g *forecast) call(k Collective, bytes uint64) model.Call {
	return model.Call{Collective: k, Ranks: g.ranks, Bytes: bytes, CopyScratch: g.scratch}
}

func (g *forecast) time(k Collective, a *algorithm, bytes uint64) float64 {
	c := g.call(k, bytes)
	c.Algorithm = a.name
	us, _ := g.links.Time(c)
	return us
}

func (g *forecast) knows(k Collective, a *algorithm) bool {
	c := g.call(k, leastModeled)
	c.Algorithm = a.name
	_, known := g.links.Time(c)
	return known
}
