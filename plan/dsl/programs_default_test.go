package dsl_test

import "github.com/mscclpp-go/mscclpp/plan/dsl"

// Programs of the plans that MSCCL++ installs.

func (h hosts) defaultAllGather(inPlace bool) func(*dsl.Program) {
	return func(p *dsl.Program) {
		g, nodes := int(h), p.Ranks()/int(h)
		s := scratches(p, g-1+2*(nodes-1)+(g-1)*(nodes-1))
		received, packed, spread := g-1, g-1+nodes-1, g-1+2*(nodes-1)
		m, ports := map[[2]int]dsl.MemoryChannel{}, map[[2]int]dsl.PortChannel{}
		for r := range p.Ranks() {
			for _, peer := range h.inside(r) {
				m[[2]int{r, peer}] = p.MemoryChannel(peer, r)
			}
			for _, peer := range h.across(p, r) {
				ports[[2]int{r, peer}] = p.PortChannel(peer, r)
			}
		}
		for r := range p.Ranks() {
			rank, out, own, node := p.Rank(r), p.Output(r), r%g, r/g
			source := out.At(r)
			if !inPlace {
				source = p.Input(r).At(0)
				rank.Copy(out.At(r), source, dsl.Block(0))
			}
			for _, peer := range h.inside(r) {
				slot := without(peer%g, own)
				m[[2]int{r, peer}].PutPackets(s[peer].At(without(own, peer%g)), source, dsl.Block(slot))
				rank.UnpackPackets(out.At(peer), s[r].At(slot), dsl.Block(g-1+slot))
			}
			first := 2 * (g - 1) // block
			for _, peer := range h.across(p, r) {
				slot := without(peer/g, node)
				rank.CopyPackets(s[r].At(packed+slot), source, dsl.Block(first+slot))
				ports[[2]int{r, peer}].ReadPutPackets(s[peer].At(received+without(node, peer/g)), s[r].At(packed+slot), dsl.Block(first+slot))
				rank.UnpackPackets(out.At(peer), s[r].At(received+slot), dsl.Block(first+nodes-1+slot))
			}
			first += 2 * (nodes - 1)
			for _, far := range h.across(p, r) {
				slot := without(far/g, node)
				for _, peer := range h.inside(r) {
					theirs, mine := without(own, peer%g)+(g-1)*slot, without(peer%g, own)+(g-1)*slot
					m[[2]int{r, peer}].ReadPutPackets(s[peer].At(spread+theirs), s[r].At(received+slot), dsl.Block(first+mine))
					rank.UnpackPackets(out.At(peer%g+far/g*g), s[r].At(spread+mine), dsl.Block(first+(nodes-1)*(g-1)+mine))
				}
			}
		}
	}
}

// groupsOf makes groups of consecutive blocks, and one of all of them.
func groupsOf(p *dsl.Program, first, count, size int) (groups []*dsl.Group, all *dsl.Group, blocks []int) {
	for i := range count {
		var g []int
		for b := range size {
			g = append(g, first+i*size+b)
		}
		groups = append(groups, p.Group(g...))
		blocks = append(blocks, g...)
	}
	return groups, p.Group(blocks...), blocks
}

func (h hosts) defaultAllReduce(size int) func(*dsl.Program) {
	return func(p *dsl.Program) {
		g, n, nodes := int(h), p.Ranks(), p.Ranks()/int(h)
		groups, all, blocks := groupsOf(p, 1, g-1, size)
		s, spread := scratches(p, 2*n+nodes*nodes), n+nodes*nodes
		run := func(r, from, i int) dsl.Chunk { return s[r].Slice(from+i*nodes, from+i*nodes+nodes) }
		for r := range n {
			rank, own, node := p.Rank(r), r%g, r/g
			in := func(i int) dsl.Chunk { return p.Input(r).Slice(i*nodes, i*nodes+nodes) }
			m := map[int]dsl.MemoryChannel{}
			var inner, far []dsl.Chunk
			for _, peer := range h.inside(r) {
				m[peer] = p.MemoryChannel(peer, r)
				m[peer].PutPackets(run(peer, 0, own), in(peer%g), dsl.Blocks(groups[without(peer%g, own)]))
				inner = append(inner, run(r, 0, peer%g))
			}
			rank.ReducePackets(in(own), in(own), inner, dsl.Blocks(all))
			rank.CopyPackets(run(r, 0, own), in(own), dsl.Blocks(all))
			rank.Barrier(append([]int{0}, blocks...)...)
			for _, peer := range h.across(p, r) {
				p.PortChannel(peer, r).PutPackets(run(peer, n, node), run(r, 0, own), 0)
				far = append(far, run(r, n, peer/g))
			}
			rank.ReducePackets(in(own), in(own), far, dsl.Blocks(all))
			rank.CopyPackets(run(r, n, node), in(own), dsl.Blocks(all))
			for _, peer := range h.inside(r) {
				m[peer].ReadPutPackets(run(peer, spread, own), run(r, n, node), dsl.Blocks(groups[without(peer%g, own)]))
			}
			for _, peer := range h.inside(r) {
				rank.UnpackPackets(in(peer%g), run(r, spread, peer%g), dsl.Blocks(groups[without(peer%g, own)]))
			}
		}
	}
}

func (h hosts) defaultReduceScatter(size int) func(*dsl.Program) {
	return func(p *dsl.Program) {
		g, n, nodes := int(h), p.Ranks(), p.Ranks()/int(h)
		groups, all, _ := groupsOf(p, 0, g-1+nodes, size)
		sent, received := (g-1)*nodes, (g-1)*nodes+nodes
		s := scratches(p, received+nodes-1)
		for r := range n {
			rank, in, own, node := p.Rank(r), p.Input(r), r%g, r/g
			for _, peer := range h.inside(r) {
				ch := p.MemoryChannel(peer, r)
				for owner := range nodes {
					block := without(peer%g, own)*size + owner%size
					ch.PutPackets(s[peer].At(without(own, peer%g)*nodes+owner), in.At(peer%g+owner*g), dsl.Block(block))
				}
			}
			for owner := range nodes {
				part, on := own+owner*g, dsl.Blocks(groups[g-1+owner])
				var inner []dsl.Chunk
				for _, peer := range h.inside(r) {
					inner = append(inner, s[r].At(without(peer%g, own)*nodes+owner))
				}
				rank.ReducePackets(in.At(part), in.At(part), inner, on)
				if nodes == 1 {
					continue
				}
				rank.CopyPackets(s[r].At(sent+owner), in.At(part), on)
				if owner != node {
					p.PortChannel(part, r).ReadPutPackets(s[part].At(received+without(node, owner)), s[r].At(sent+owner), on)
				}
			}
			if nodes == 1 {
				continue
			}
			var far []dsl.Chunk
			for i := range nodes - 1 {
				far = append(far, s[r].At(received+i))
			}
			rank.UnpackPackets(in.At(r), s[r].At(sent+node), dsl.Blocks(all))
			rank.ReducePackets(in.At(r), in.At(r), far, dsl.Blocks(all))
		}
	}
}
