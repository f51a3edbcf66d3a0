package dsl_test

import "github.com/mscclpp-go/mscclpp/plan/dsl"

// Programs for the GPUs of several hosts.

// hosts is the number of GPUs of each host.
type hosts int

// inside are the other ranks of a rank's host.
func (h hosts) inside(r int) []int {
	var out []int
	for g := range int(h) {
		if peer := r - r%int(h) + g; peer != r {
			out = append(out, peer)
		}
	}
	return out
}

// across are the ranks of other hosts with the same place as r, by host.
func (h hosts) across(p *dsl.Program, r int) []int {
	var out []int
	for node := range p.Ranks() / int(h) {
		if node != r/int(h) {
			out = append(out, node*int(h)+r%int(h))
		}
	}
	return out
}

// next is the rank with the same place on the next host, and previous that on the one before.
func (h hosts) next(p *dsl.Program, r int) int     { return (r + int(h)) % p.Ranks() }
func (h hosts) previous(p *dsl.Program, r int) int { return (r + p.Ranks() - int(h)) % p.Ranks() }

// channels are memory channels to the ranks of the host, and a port to the next host.
func (h hosts) channels(p *dsl.Program) (map[[2]int]dsl.MemoryChannel, []dsl.PortChannel) {
	m, ports := map[[2]int]dsl.MemoryChannel{}, []dsl.PortChannel{}
	for r := range p.Ranks() {
		for _, peer := range h.inside(r) {
			m[[2]int{r, peer}] = p.MemoryChannel(peer, r)
		}
		ports = append(ports, p.PortChannel(h.next(p, r), r))
	}
	return m, ports
}

func (h hosts) meet(m map[[2]int]dsl.MemoryChannel, r int, signal, wait dsl.Sync) {
	for _, peer := range h.inside(r) {
		m[[2]int{r, peer}].Signal(0, signal)
	}
	for _, peer := range h.inside(r) {
		m[[2]int{r, peer}].Wait(0, wait)
	}
}

func (h hosts) allGather(p *dsl.Program) {
	m, ports := h.channels(p)
	for r := range p.Ranks() {
		put := func(part int) {
			for _, peer := range h.inside(r) {
				m[[2]int{r, peer}].Put(p.Output(peer).At(part), p.Output(r).At(part), dsl.Block(0))
			}
		}
		h.meet(m, r, dsl.Relaxed, dsl.Relaxed|dsl.After)
		put(r)
		ports[r].Signal(0)
		ports[r].Wait(0, dsl.After)
		ports[r].PutWithSignalAndFlush(p.Output(h.next(p, r)).At(r), p.Output(r).At(r), 0)
		ports[r].Wait(0, dsl.After)
		put(h.next(p, r))
		h.meet(m, r, dsl.Before, dsl.Both)
	}
}

func (h hosts) allGatherPackets(p *dsl.Program) {
	n, s := p.Ranks(), scratches(p, p.Ranks())
	for r := range n {
		p.Rank(r).CopyPackets(s[r].At(r), p.Output(r).At(r), dsl.Block(r))
	}
	share := func(r, part int) {
		for _, peer := range h.inside(r) {
			p.MemoryChannel(peer, r).ReadPutPackets(s[peer].At(part), s[r].At(part), dsl.Block(peer%int(h)))
		}
	}
	for r := range n {
		share(r, r)
		p.PortChannel(h.next(p, r), r).ReadPutPackets(s[h.next(p, r)].At(r), s[r].At(r), dsl.Block(r%int(h)))
		share(r, h.next(p, r))
		for i := 1; i < n; i++ {
			from := (r + i) % n
			p.Rank(r).UnpackPackets(p.Output(r).At(from), s[r].At(from), dsl.Block(i))
		}
	}
}

// allGatherGroups passes the parts from host to host and spreads each over a host as it comes, with two blocks a peer.
func (h hosts) allGatherGroups(p *dsl.Program) {
	const two = 2
	n, s, nodes := p.Ranks(), scratches(p, p.Ranks()), p.Ranks()/int(h)
	var groups []*dsl.Group
	for g := range int(h) {
		groups = append(groups, p.Group(1+two*g, 2+two*g))
	}
	var all []int
	for b := range 1 + two*int(h) {
		all = append(all, b)
	}
	for r := range n {
		rank, in, out := p.Rank(r), p.Input(r), p.Output(r)
		ch := map[[2]int]dsl.MemoryChannel{}
		each := func(f func(peer, i, block int)) {
			for _, peer := range h.inside(r) {
				for i := range two {
					f(peer, i, 1+two*without(peer%int(h), r%int(h))+i)
				}
			}
		}
		each(func(peer, i, _ int) { ch[[2]int{peer, i}] = p.MemoryChannel(peer, r) })
		to := p.PortChannel(h.next(p, r), r)
		from := to
		if nodes != 2 {
			from = p.PortChannel(h.previous(p, r), r)
		}
		each(func(peer, i, block int) { ch[[2]int{peer, i}].Signal(block, dsl.None|dsl.Relaxed) })
		each(func(peer, i, block int) { ch[[2]int{peer, i}].Wait(block, dsl.After|dsl.Relaxed) })
		from.Signal(0, dsl.None)
		to.Wait(0, dsl.After)
		for step := range nodes {
			part := (r + (nodes-step)*int(h)) % n
			source := s[r].At(part)
			if step == 0 {
				source = in.At(0)
			} else {
				from.Wait(0)
				rank.Barrier(all...)
			}
			if step != nodes-1 {
				to.PutWithSignalAndFlush(s[h.next(p, r)].At(part), source, 0)
			}
			for _, peer := range h.inside(r) {
				g := without(peer%int(h), r%int(h))
				ch[[2]int{peer, 0}].Put(s[peer].At(part), source, dsl.Blocks(groups[g]))
				for i := range two {
					ch[[2]int{peer, i}].Signal(1+two*g+i, dsl.Before)
					ch[[2]int{peer, i}].Wait(1+two*g+i, dsl.After)
				}
				theirs := (peer + (nodes-step)*int(h)) % n
				rank.Copy(out.At(theirs), s[r].At(theirs), dsl.Blocks(groups[g]))
			}
			rank.Copy(out.At(part), source, dsl.Blocks(groups[int(h)-1]))
		}
	}
}

func (h hosts) reduceScatter(p *dsl.Program) {
	s := scratches(p, 1)
	m, ports := h.channels(p)
	for r := range p.Ranks() {
		in, far := p.Input(r), h.next(p, r)
		h.meet(m, r, dsl.Relaxed, dsl.Relaxed|dsl.After)
		for _, part := range []int{r, far} {
			for _, peer := range h.inside(r) {
				m[[2]int{r, peer}].Reduce(in.At(part), in.At(part), []dsl.Chunk{p.Input(peer).At(part)}, dsl.Block(0))
			}
		}
		ports[r].Signal(0)
		ports[r].Wait(0, dsl.After)
		ports[r].PutWithSignal(s[far].At(0), in.At(far), 0)
		ports[r].Wait(0, dsl.After)
		p.Rank(r).Reduce(in.At(r), in.At(r), []dsl.Chunk{s[r].At(0)}, dsl.Block(0))
		h.meet(m, r, dsl.Before|dsl.Relaxed, dsl.Relaxed)
	}
}

func (h hosts) reduceScatterPackets(p *dsl.Program) {
	n := p.Ranks()
	s := scratches(p, n)
	m, ports := h.channels(p)
	for r := range n {
		in, rank, far, own, one := p.Input(r), p.Rank(r), h.next(p, r), r%int(h), dsl.Block(0)
		inner, outer := []dsl.Chunk{s[r].At(n - 1)}, []dsl.Chunk(nil)
		for _, peer := range h.inside(r) {
			g := peer % int(h)
			m[[2]int{r, peer}].PutPackets(s[peer].At(own), in.At(peer), one)
			m[[2]int{r, peer}].PutPackets(s[peer].At(n/2+without(own, g)), in.At(h.next(p, peer)), one)
			inner = append(inner, s[r].At(g))
			outer = append(outer, s[r].At(n/2+without(g, own)))
		}
		rank.ReducePackets(in.At(far), in.At(far), outer, one)
		rank.CopyPackets(s[r].At(own), in.At(far), one)
		ports[r].ReadPutPackets(s[far].At(n-1), s[r].At(own), one)
		rank.ReducePackets(in.At(r), in.At(r), inner, one)
	}
}

// sendRecv sends to the next group of ranks. Of two groups, both channels lead to one peer; then the order in which they
// are made decides which is whose.
func sendRecv(group int) func(*dsl.Program) {
	return func(p *dsl.Program) {
		n := p.Ranks()
		for r := range n {
			next, previous := (r+group)%n, (r+n-group)%n
			var to, from dsl.PortChannel
			if next == previous && r > next {
				from = p.PortChannel(previous, r)
				to = p.PortChannel(next, r)
			} else {
				to = p.PortChannel(next, r)
				from = p.PortChannel(previous, r)
			}
			from.Signal(0, dsl.None)
			to.Wait(0, dsl.After)
			to.PutWithSignal(p.Output(next).All(), p.Input(r).All(), 0)
			from.Wait(0, dsl.None)
		}
	}
}
