package library

import "github.com/mscclpp-go/mscclpp/plan/dsl"

// hierarchicalPackets: GPUs reduce their part inside of each host, exchange it with the same GPU of the other hosts, and
// share the result inside of the host; all as packets. Each part has a chunk for every host.
func hierarchicalPackets(s Shape) *dsl.Program {
	p, in, out := begin(s, dsl.AllReduce, s.packets())
	n, h := s.PerHost-1, s.hosts()
	tmp, on := scratch(p, (2*n+h)*h), dsl.Blocks(group(p, s.Blocks))
	part := func(b dsl.Buffer, i int) dsl.Chunk { return b.Slice(i*h, i*h+h) }
	for r := range s.Ranks {
		rank, own, local, far := p.Rank(r), r%s.PerHost, memories(p, r, s.inside(r)), ports(p, r, s.across(r))
		sum, result, packed, received := part(in[r], own), part(out[r], own), part(tmp[r], 2*n), []dsl.Chunk{}
		for _, peer := range s.inside(r) {
			local[peer].PutPackets(part(tmp[peer], slot(own, peer%s.PerHost)), part(in[r], peer%s.PerHost), on)
			received = append(received, part(tmp[r], slot(peer%s.PerHost, own)))
		}
		rank.ReducePackets(result, sum, received, on)
		rank.CopyPackets(packed, result, on)
		received = nil
		for _, peer := range s.across(r) {
			far[peer].ReadPutPackets(part(tmp[peer], 2*n+1+slot(r/s.PerHost, peer/s.PerHost)), packed, on)
			received = append(received, part(tmp[r], 2*n+1+slot(peer/s.PerHost, r/s.PerHost)))
		}
		rank.ReducePackets(result, result, received, on)
		for _, peer := range s.inside(r) {
			local[peer].PutPackets(part(tmp[peer], n+slot(own, peer%s.PerHost)), result, on)
		}
		for _, peer := range s.inside(r) {
			rank.UnpackPackets(part(out[r], peer%s.PerHost), part(tmp[r], n+slot(peer%s.PerHost, own)), on)
		}
	}
	return p
}

// hierarchicalChunks: GPUs reduce their part by reads inside of each host. Of that part, host k reduces chunk k, and sends
// it to the other hosts; chunks go one by one, so that instances keep apart. At last each GPU writes its part to the others of its host.
func hierarchicalChunks(s Shape) *dsl.Program {
	p, in, out := begin(s, dsl.AllReduce, s.replicated())
	h, tmp := s.hosts(), scratch(p, s.hosts()-1)
	for r := range s.Ranks {
		local, far, hosts := memories(p, r, s.inside(r)), ports(p, r, s.across(r)), s.across(r)
		first, host, received := r%s.PerHost*h, r/s.PerHost, []dsl.Chunk{}
		mine := out[r].At(first + host)
		meet(local, s.inside(r), 0, dsl.Relaxed, dsl.Relaxed|dsl.After)
		each(first, h, s.inside(r), func(c, peer int) {
			local[peer].Reduce(out[r].At(c), in[r].At(c), []dsl.Chunk{in[peer].At(c)}, dsl.Block(0))
		})
		for _, peer := range hosts {
			far[peer].PutWithSignal(tmp[peer].At(slot(host, peer/s.PerHost)), out[r].At(first+peer/s.PerHost), 0)
			received = append(received, tmp[r].At(slot(peer/s.PerHost, host)))
		}
		await(far, hosts, 0)
		p.Rank(r).Reduce(mine, mine, received, dsl.Block(0))
		for _, peer := range hosts {
			far[peer].PutWithSignal(out[peer].At(first+host), mine, 0)
		}
		await(far, hosts, 0)
		each(first, h, s.inside(r), func(c, peer int) { local[peer].Put(out[peer].At(c), out[r].At(c), dsl.Block(0)) })
		meet(local, s.inside(r), 0, dsl.Before, dsl.After)
		flush(far, hosts, 0)
	}
	return p
}

// allToAll: every rank writes its part for a peer to the peer, through memory inside of a host and a port across. In place
// the parts go to scratch first, from where the peer copies them when it has sent its own.
func allToAll(s Shape) *dsl.Program {
	p, in, out := begin(s, dsl.AllToAll, s.replicated())
	land, at := out, func(from, _ int) int { return from }
	if s.InPlace {
		land, at = scratch(p, s.Ranks-1), slot
	}
	for r := range s.Ranks {
		local, far, hosts := memories(p, r, s.inside(r)), ports(p, r, s.outside(r)), s.outside(r)
		meet(local, s.inside(r), 0, dsl.Relaxed, dsl.Relaxed|dsl.After)
		meet(far, hosts, 0, dsl.Both, dsl.After)
		for _, peer := range hosts {
			far[peer].PutWithSignal(land[peer].At(at(r, peer)), in[r].At(peer), 0)
		}
		for _, peer := range s.inside(r) {
			local[peer].Put(land[peer].At(at(r, peer)), in[r].At(peer), dsl.Block(0))
		}
		meet(local, s.inside(r), 0, dsl.Before, dsl.After)
		await(far, hosts, 0)
		flush(far, hosts, 0)
		if !s.InPlace {
			p.Rank(r).Copy(out[r].At(r), in[r].At(r), dsl.Block(0))
			continue
		}
		for _, peer := range peers(s.Ranks, r) {
			p.Rank(r).Copy(in[r].At(peer), land[r].At(slot(peer, r)), dsl.Block(0))
		}
	}
	return p
}
