package scaling

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

// formula is the closed form: the first piece through all stages, and for each
// further one the busiest resource.
func (p *pipeline) formula() float64 {
	first, busiest := 0.0, 0.0
	busy := make([][resources]float64, len(p.kinds))
	for i, b := range p.blocks[0] {
		for j := range b.stages {
			longest := 0.0
			for k := range p.kinds {
				for _, w := range p.blocks[k][i].stages[j] {
					occupies, late := p.machine.cost(w, p.kinds[k].ranks)
					longest = max(longest, occupies+late)
					if times := float64(b.times); b.hops {
						busiest = max(busiest, occupies)
					} else {
						busy[k][w.on] += times * occupies
					}
				}
			}
			first += float64(b.times) * longest
		}
	}
	for _, b := range busy {
		for _, t := range b {
			busiest = max(busiest, t)
		}
	}
	return p.machine.Launch + first + float64(p.pieces-1)*busiest
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
			for t := range b.times {
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
							if b.hops && t > 0 { // the first hop leaves the root's own host
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
