package simulate

// planner writes down the stages of a collective of bytes, which is the larger
// buffer, for a rank of a host with m ranks.
type planner struct {
	machine *Machine
	on      Cluster
	m       int
	bytes   float64
}

func (p planner) n() float64     { return float64(p.on.Ranks()) }
func (p planner) h() float64     { return float64(p.on.Hosts()) }
func (p planner) ranks() float64 { return float64(p.m) }

// part is the share of a rank in what its host has.
func (p planner) part() float64 { return p.bytes / p.ranks() }

// block is the share of a rank in what all have.
func (p planner) block() float64 { return p.bytes / p.n() }

// remote is the share of a rank's buffer that belongs to ranks of other hosts.
func (p planner) remote() float64 { return p.bytes * (p.n() - p.ranks()) / p.n() }

// blocks returns the stages of the algorithm.
func (p planner) blocks(c Collective, a Algorithm) []block {
	switch a {
	case FlatDirect:
		return p.flat(c)
	case SmallWhole:
		return p.whole(c)
	case Small:
		return p.small(c)
	default:
		return p.large(c, a)
	}
}

// spread is the stage in which a rank sends its share of the host's data to every peer of the host,
// or gets the shares of all of its own part.
func (p planner) spread() stage { return link(p.part()*(p.ranks()-1), p.m-1) }

// spreadOwn is the part of an all-gather's spread that needs no other host, and
// spreadRest what does.
func (p planner) spreadOwn() stage { return link(p.block()*(p.ranks()-1), p.m-1) }

func (p planner) spreadRest() stage {
	return link((p.part()-p.block())*(p.ranks()-1), p.m-1)
}

// beside adds work to the first stage of blocks, at the same time.
func beside(blocks []block, s stage) []block {
	first := blocks[0]
	head := append([]stage{append(append(stage(nil), first.stages[0]...), s...)}, first.stages[1:]...)
	out := []block{once(head...)}
	if first.times--; first.times > 0 {
		out = append(out, first)
	}
	return append(out, blocks[1:]...)
}

// everyone is the stage in which a rank sends a block to every other rank.
func (p planner) everyone() stage {
	out := p.block() * (p.n() - p.ranks())
	return append(link(p.block()*(p.ranks()-1), p.m-1), network(out, out, p.n()-p.ranks())...)
}

func (p planner) flat(c Collective) []block {
	n := p.on.Ranks()
	switch c {
	case AllReduce:
		return []block{once(p.everyone(), reduce(n, p.block()), p.everyone())}
	case ReduceScatter:
		return []block{once(p.everyone(), reduce(n, p.block()))}
	case Broadcast: // the root's scatter, then the gather of all
		return []block{once(p.everyone(), p.everyone())}
	default:
		return []block{once(p.everyone())}
	}
}

// small has one exchange between hosts, in which every host gets all of what it
// needs from every other at once, and packets everywhere.
func (p planner) small(c Collective) []block {
	var stages []stage
	hosts, part, others := p.on.Hosts(), p.part(), p.h()-1
	messages := p.on.toAll(p.m)
	switch c {
	case AllReduce:
		stages = []stage{p.spread(), reduce(p.m, part), network(others*part, others*part, messages), reduce(hosts, part), p.spread()}
	case AllGather:
		stages = []stage{p.spread()}
		if hosts > 1 {
			stages = []stage{append(p.gatherHosts(messages), p.spreadOwn()...), p.spreadRest()}
		}
	case ReduceScatter:
		stages = []stage{p.spread(), reduce(p.m, part), p.scatterHosts(messages), reduce(hosts, p.block())}
	case Broadcast:
		stages = []stage{p.spread(), network(others*part, part*min(1, others), messages), p.spread()}
	case AllToAll:
		stages = p.bundles()
	}
	return p.packets(stages)
}

func (p planner) packets(stages []stage) []block {
	for i := range stages {
		stages[i] = p.machine.inPackets(stages[i])
	}
	return []block{once(stages...)}
}

// whole has one step inside, after which all ranks of a host have what it has, and one
// between hosts, behind which nothing is passed on. A rank of every other host needs
// its own copy, so those of a small host may have to send several.
func (p planner) whole(c Collective) []block {
	hosts, others := p.on.Hosts(), p.h()-1
	copies := p.on.copies(p.m)
	everything := link(p.bytes*(p.ranks()-1), p.m-1)
	switch c {
	case AllReduce:
		return p.packets([]stage{everything, reduce(p.m, p.bytes), network(copies*p.bytes, others*p.bytes, copies), reduce(hosts, p.bytes)})
	case ReduceScatter:
		return p.packets([]stage{everything, reduce(p.m, p.bytes), network(copies*p.block(), others*p.block(), copies), reduce(hosts, p.block())})
	case AllGather:
		return p.packets([]stage{p.spreadOwn(), network(copies*p.block()*p.ranks(), p.remote(), copies)})
	default: // the root's, and those of its host
		return p.packets([]stage{everything, network(copies*p.bytes, p.bytes*min(1, others), copies)})
	}
}

// gatherHosts sends the own block to every other host. The blocks of the others arrive, shared by the ranks of this host.
func (p planner) gatherHosts(messages float64) stage {
	return network((p.h()-1)*p.block(), p.remote()/p.ranks(), messages)
}

// scatterHosts is the mirror image.
func (p planner) scatterHosts(messages float64) stage {
	return network(p.remote()/p.ranks(), (p.h()-1)*p.block(), messages)
}

// bundles is the all-to-all in which each rank elsewhere gets one message from a host,
// with all that the ranks of that have for it. Inside the host, its sender collects
// that, with what is for itself; where hosts differ all get as much as the one with the
// most to send. Nothing is left to be shared out.
func (p planner) bundles() []stage {
	copies := p.on.copies(p.m)
	inside := link(p.block()*(1+copies)*(p.ranks()-1), p.m-1)
	return []stage{inside, network(copies*p.ranks()*p.block(), p.remote(), copies)}
}

// transpose is the all-to-all whose messages are as large as they can be. Inside the
// host, a rank collects what all have for its counterparts; between hosts it goes there
// in one message each. If hosts differ, it arrives at a rank that shares it out.
func (p planner) transpose(messages float64) []stage {
	stages := []stage{p.spread(), network(p.remote(), p.remote(), messages)}
	if !p.on.Even() {
		stages = append(stages, link(p.remote()*(p.ranks()-1)/p.ranks(), p.m-1))
	}
	return stages
}

func (p planner) large(c Collective, a Algorithm) []block {
	inside := []block{once(p.spread(), reduce(p.m, p.part()))}
	outside := []block{once(p.spread())}
	switch c {
	case AllReduce:
		if a == LargeDirect && p.on.Hosts() == 2 {
			return append(append(inside, p.exchange()...), outside...)
		}
		return append(append(append(inside, p.reduceHosts(a)...), p.gatherAll(a)...), outside...)
	case ReduceScatter:
		return append(inside, p.reduceHosts(a)...)
	case AllGather:
		if p.on.Hosts() == 1 {
			return outside
		}
		return append(beside(p.gatherAll(a), p.spreadOwn()), once(p.spreadRest()))
	case Broadcast:
		return append(append([]block{once(p.spread())}, p.away(a)...), outside...)
	default:
		if a == LargeDoubling {
			return append([]block{once(p.spread())}, p.bruck()...)
		}
		return []block{once(p.transpose(p.on.toAll(p.m))...)}
	}
}

// exchange gives all of a part to the only other host, and both add up: the bytes of a
// reduce-scatter and an all-gather between two hosts, in one step.
func (p planner) exchange() []block {
	return []block{once(network(p.part(), p.part(), p.on.toAll(p.m)), reduce(2, p.part()))}
}

// reduceHosts has every host end with its share of the sum of all hosts' parts.
func (p planner) reduceHosts(a Algorithm) []block {
	hosts, share := p.on.Hosts(), p.part()/p.h()
	switch {
	case hosts == 1:
		return nil
	case a == LargeRing:
		return []block{{times: hosts - 1, stages: []stage{network(share, share, p.on.toOne(p.m)), reduce(2, share)}}}
	case a == LargeDoubling:
		var all []block
		steps := p.doublings()
		for i := len(steps) - 1; i >= 0; i-- {
			bytes := float64(steps[i]) * share
			all = append(all, once(network(bytes, bytes, p.on.toOne(p.m)), reduce(2, bytes)))
		}
		return all
	}
	return []block{once(p.scatterHosts(p.on.toAll(p.m)), reduce(hosts, p.block()))}
}

// gatherAll has every host end with the shares of all hosts.
func (p planner) gatherAll(a Algorithm) []block {
	hosts, share := p.on.Hosts(), p.part()/p.h()
	switch {
	case hosts == 1:
		return nil
	case a == LargeRing:
		return []block{{times: hosts - 1, stages: []stage{network(share, share, p.on.toOne(p.m))}}}
	case a == LargeDoubling:
		var all []block
		for _, blocks := range p.doublings() {
			bytes := float64(blocks) * share
			all = append(all, once(network(bytes, bytes, p.on.toOne(p.m))))
		}
		return all
	}
	return []block{once(p.gatherHosts(p.on.toAll(p.m)))}
}

// doublings are the shares sent in each step to the host at distance 1, 2, 4, …:
// all that are known, or those that are left. It works for any number of hosts.
func (p planner) doublings() []int {
	var all []int
	for known := 1; known < p.on.Hosts(); known *= 2 {
		all = append(all, min(known, p.on.Hosts()-known))
	}
	return all
}

// bruck is the all-to-all in steps of distance 1, 2, 4, …: in each goes all whose way
// has that bit.
func (p planner) bruck() []block {
	var all []block
	for bit := 1; bit < p.on.Hosts(); bit *= 2 {
		paths := 0
		for path := 1; path < p.on.Hosts(); path++ {
			if path&bit != 0 {
				paths++
			}
		}
		bytes := float64(paths) * p.bytes / p.h()
		all = append(all, once(network(bytes, bytes, 1)))
	}
	return all
}

// away carries the root's parts to all hosts.
func (p planner) away(a Algorithm) []block {
	hosts, part := p.on.Hosts(), p.part()
	switch {
	case hosts == 1:
		return nil
	case a == LargeRing: // a chain from the root's host to the last
		return []block{{times: hosts - 1, hops: true, stages: []stage{network(part, part, p.on.toOne(p.m))}}}
	case a == LargeDoubling: // a tree; the root's host sends in every step
		return []block{{times: log2(hosts), stages: []stage{network(part, part, p.on.toOne(p.m))}}}
	}
	// Each other host gets a slice, and gives it to the rest of them: all leaves the root's host once.
	slice, messages := part/(p.h()-1), p.on.toAll(p.m)
	first := block{times: 1, hops: true, stages: []stage{network(part, slice, messages)}}
	if hosts == 2 {
		return []block{first}
	}
	rest := (p.h() - 2) / (p.h() - 1)
	return []block{first, {times: 1, hops: true, stages: []stage{network(part*rest, part*rest, messages*rest)}}}
}
