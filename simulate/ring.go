package simulate

// A flat ring runs through all ranks, host by host. There are as many rings as the
// smallest host has ranks, each with its share of the data, and each leaves the hosts
// by another rank. So a rank's link carries all rings but its own share of crossings,
// and all adapters are busy.
//
// One ring is simulated, rank by rank: its data crosses a link within a host and the
// network from host to host.
type ring struct {
	hops   []hop // through one repetition of the pattern of hosts
	launch float64
}

// hop is one rank's step to the next rank.
type hop struct {
	occupies, late float64
	crosses        bool
	sent           float64 // bytes of all rings, on the link or the network
	reduces        float64 // time
}

// newRing makes the hops for a share of this many bytes, of all rings together, that
// moves in each step.
func newRing(m *Machine, on Cluster, bytes float64) ring {
	r := ring{launch: m.Launch}
	rings := float64(on.least())
	for _, ranks := range on.pattern {
		for i := range ranks {
			h := hop{crosses: i == ranks-1 && on.Hosts() > 1}
			if h.crosses {
				h.sent = bytes / rings
				h.occupies, h.late = m.cost(work{on: onNetwork, sent: h.sent, messages: 1}, int(rings))
			} else {
				h.sent = bytes // of all rings, but those that leave the host here
				if on.Hosts() > 1 {
					h.sent = bytes * float64(ranks-1) / float64(ranks)
				}
				h.occupies, h.late = m.cost(work{on: onLink, sent: h.sent, messages: 1}, ranks)
			}
			h.reduces, _ = m.cost(work{on: onReducer, sent: 3 * bytes / rings, messages: 1}, ranks)
			r.hops = append(r.hops, h)
		}
	}
	return r
}

// around lets every rank's share go so many hops; in the first of them it is reduced
// with what is there. It returns the end and how long the busiest hop of each kind
// was occupied.
func (r ring) around(reducing, steps int) (end float64, links, network float64) {
	at, free, next := make([]float64, len(r.hops)), make([]float64, len(r.hops)), make([]float64, len(r.hops))
	for i := range at {
		at[i] = r.launch
	}
	for s := range steps {
		for i, h := range r.hops {
			start := max(at[i], free[i])
			free[i] = start + h.occupies
			arrives := start + h.occupies + h.late
			if s < reducing {
				arrives += h.reduces
			}
			to := i + 1
			if to == len(r.hops) {
				to = 0
			}
			next[to] = arrives
			end = max(end, arrives)
		}
		at, next = next, at
	}
	for _, h := range r.hops {
		if h.crosses {
			network = max(network, float64(steps)*h.occupies)
		} else {
			links = max(links, float64(steps)*h.occupies)
		}
	}
	return end, links, network
}

// chain sends pieces from the first rank along so many hops.
func (r ring) chain(hops, pieces int) (end float64, links, network float64) {
	free := make([]float64, hops)
	for range pieces {
		at := r.launch
		for j := range hops {
			h := &r.hops[j%len(r.hops)]
			start := max(at, free[j])
			free[j] = start + h.occupies
			at = start + h.occupies + h.late
		}
		end = max(end, at)
	}
	for _, h := range r.hops[:min(hops, len(r.hops))] {
		if h.crosses {
			network = max(network, float64(pieces)*h.occupies)
		} else {
			links = max(links, float64(pieces)*h.occupies)
		}
	}
	return end, links, network
}

// longest is the time of a share on the way of so many hops that takes longest if
// nothing is in its way: it starts before a hop between hosts, and those are dear.
func (r ring) longest(hops int, reducing int) float64 {
	worst := 0.0
	for first := range r.hops {
		t := 0.0
		for i := range r.hops { // hops / len whole rounds and a rest
			h := r.hops[(first+i)%len(r.hops)]
			visits := func(n int) float64 {
				v := n / len(r.hops)
				if i < n%len(r.hops) {
					v++
				}
				return float64(v)
			}
			t += visits(hops)*(h.occupies+h.late) + visits(reducing)*h.reduces
		}
		worst = max(worst, t)
	}
	return worst
}

// formula is the closed form of around: the longer of a share's way and of the work
// of the busiest rank.
func (r ring) formula(reducing, steps int) float64 {
	busiest := 0.0
	for _, h := range r.hops {
		busiest = max(busiest, float64(steps)*h.occupies+h.late)
	}
	return r.launch + max(r.longest(steps, reducing), busiest)
}

// chainFormula is the closed form of chain: the way of the first piece, and for each
// further one the busiest hop.
func (r ring) chainFormula(hops, pieces int) float64 {
	path, busiest := 0.0, 0.0
	for i, h := range r.hops {
		visits := float64(hops / len(r.hops))
		if i < hops%len(r.hops) {
			visits++
		}
		if visits > 0 {
			path += visits * (h.occupies + h.late)
			busiest = max(busiest, h.occupies)
		}
	}
	return r.launch + path + float64(pieces-1)*busiest
}
