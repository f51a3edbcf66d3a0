package simulate

import "slices"

// pipeline is the stages of one piece, for each kind of host, and what it takes to
// send so many pieces through.
type pipeline struct {
	machine *Machine
	pieces  int
	kinds   []kind
	blocks  [][]block // by kind; the same stages for all, with other numbers
}

// newPipeline plans a collective of so many bytes in pieces.
func newPipeline(m *Machine, on Cluster, c Collective, a Algorithm, bytes float64, pieces int) *pipeline {
	p := &pipeline{machine: m, pieces: pieces, kinds: on.kinds()}
	if c == Broadcast { // the path from the root to the hosts with the fewest ranks, whose parts are the largest
		p.kinds = []kind{{on.least(), on.Hosts()}}
	}
	for _, k := range p.kinds {
		p.blocks = append(p.blocks, planner{machine: m, on: on, m: k.ranks, bytes: bytes / float64(pieces)}.blocks(c, a))
	}
	return p
}

// tasks is how many the simulation has.
func (p *pipeline) tasks() int {
	n := 0
	for _, b := range p.blocks[0] {
		for _, s := range b.stages {
			n += b.times * len(s)
		}
	}
	return n * len(p.kinds) * p.pieces
}

// use is when the first piece meets a resource, and how long each piece keeps it.
type use struct {
	from, to float64 // of the first piece: before the first use; after the last, if nobody else were waited for
	busy     float64
	used     bool
}

// formula is the closed form, a bound that no order of pieces can beat: the way of one
// piece through all stages; or, of the resource for which it is the longest, the time
// until the first piece comes, the work of all pieces, and the time from there to the
// end. Kinds of hosts wait for each other where they meet, in the network.
func (p *pipeline) formula() float64 {
	first := make([]float64, len(p.kinds))
	alone := make([]float64, len(p.kinds)) // the same if no other kind were waited for
	uses := make([][resources]use, len(p.kinds))
	var hops []use
	for i, b := range p.blocks[0] {
		for range b.times {
			for j := range b.stages {
				crosses, last := false, 0.0
				for k := range p.kinds {
					longest := 0.0
					for _, w := range p.blocks[k][i].stages[j] {
						occupies, late := p.machine.cost(w, p.kinds[k].ranks)
						longest = max(longest, occupies+late)
						crosses = crosses || w.on == onNetwork
						u := &uses[k][w.on]
						if b.hops {
							hops = append(hops, use{})
							u = &hops[len(hops)-1]
						}
						if occupies > 0 {
							u.add(first[k], alone[k], occupies)
						}
					}
					first[k], alone[k] = first[k]+longest, alone[k]+longest
					last = max(last, first[k])
				}
				for k := range first {
					if crosses {
						first[k] = last
					}
				}
			}
		}
	}
	bound := slices.Max(first)
	for k := range uses {
		for _, u := range uses[k] {
			bound = max(bound, u.bound(p.pieces, alone[k]))
		}
	}
	for _, u := range hops { // of a single kind
		bound = max(bound, u.bound(p.pieces, alone[0]))
	}
	return p.machine.Launch + bound
}

func (u *use) add(at, alone, occupies float64) {
	if !u.used {
		u.used, u.from = true, at
	}
	u.busy += occupies
	u.to = alone + occupies
}

// bound is the time until the last piece has passed, if its way ends at end.
func (u *use) bound(pieces int, end float64) float64 {
	if !u.used {
		return 0
	}
	return u.from + float64(pieces)*u.busy + end - u.to
}

// simulate returns when the last piece is through, and how long each resource of the
// busiest kind of host worked.
func (p *pipeline) simulate() (end float64, busy [resources]float64) {
	hops := 0
	for _, b := range p.blocks[0] {
		if b.hops {
			hops += b.times
		}
	}
	perKind := int(resources) + hops
	sim := newSimulation(perKind * len(p.kinds))
	sim.tasks = make([]task, 0, p.tasks())
	sim.edges = make([]edge, 0, p.tasks()*(len(p.kinds)+1))
	done := make([][]int32, len(p.kinds)) // by kind: the tasks of its last stage
	next := make([][]int32, len(p.kinds))
	var arrived []int32 // of all kinds, where the last stage crossed the network
	for range p.pieces {
		for k := range done {
			done[k] = done[k][:0]
		}
		arrived = arrived[:0]
		hop := 0
		for i, b := range p.blocks[0] {
			for range b.times {
				for j := range b.stages {
					crosses := false
					for k := range p.kinds {
						next[k] = next[k][:0]
						before := done[k]
						if len(arrived) > 0 {
							before = arrived
						}
						for _, w := range p.blocks[k][i].stages[j] {
							on := k*perKind + int(w.on)
							if b.hops && hop > 0 { // the first hop leaves the root's own host
								on = k*perKind + int(resources) + hop
							}
							occupies, late := p.machine.cost(w, p.kinds[k].ranks)
							next[k] = append(next[k], sim.add(on, occupies, late, p.machine.Launch, before...))
							crosses = crosses || w.on == onNetwork
						}
					}
					arrived = arrived[:0]
					for k := range p.kinds {
						done[k], next[k] = next[k], done[k]
						if crosses && len(p.kinds) > 1 {
							arrived = append(arrived, done[k]...)
						}
					}
				}
				if b.hops {
					hop++
				}
			}
		}
	}
	end = sim.run()
	for k := range p.kinds {
		for r := range resources {
			busy[r] = max(busy[r], sim.busy[k*perKind+int(r)])
		}
	}
	return end, busy
}
