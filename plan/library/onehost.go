package library

import "github.com/mscclpp-go/mscclpp/plan/dsl"

// onePhase: every rank sends all of its input to all others as packets, and reduces what it received. It has the fewest
// steps, and sends the most.
func onePhase(s Shape) *dsl.Program {
	p, in, out := begin(s, dsl.AllReduce, s.packets())
	tmp, n := scratch(p, (s.Ranks-1)*s.Ranks), s.Ranks
	on := dsl.Blocks(group(p, s.Blocks))
	for r := range n {
		m := memories(p, r, peers(n, r))
		var received []dsl.Chunk
		for _, peer := range peers(n, r) {
			to, from := slot(r, peer)*n, slot(peer, r)*n
			m[peer].PutPackets(tmp[peer].Slice(to, to+n), in[r].All(), on)
			received = append(received, tmp[r].Slice(from, from+n))
		}
		p.Rank(r).ReducePackets(out[r].All(), in[r].All(), received, on)
	}
	return p
}

// twoPhasePackets: rank r reduces part r of all inputs and sends it to all others, both as packets.
func twoPhasePackets(s Shape) *dsl.Program {
	p, in, out := begin(s, dsl.AllReduce, s.packets())
	tmp, n := scratch(p, 2*(s.Ranks-1)), s.Ranks
	on := dsl.Blocks(group(p, s.Blocks))
	for r := range n {
		m := memories(p, r, peers(n, r))
		var received []dsl.Chunk
		for _, peer := range peers(n, r) {
			m[peer].PutPackets(tmp[peer].At(slot(r, peer)), in[r].At(peer), on)
			received = append(received, tmp[r].At(slot(peer, r)))
		}
		p.Rank(r).ReducePackets(out[r].At(r), in[r].At(r), received, on)
		for _, peer := range peers(n, r) {
			m[peer].PutPackets(tmp[peer].At(n-1+slot(r, peer)), out[r].At(r), on)
		}
		for _, peer := range peers(n, r) {
			p.Rank(r).UnpackPackets(out[r].At(peer), tmp[r].At(n-1+slot(peer, r)), on)
		}
	}
	return p
}

// twoPhaseChunks: rank r reads part r of all inputs, reduces it and writes it to all others. Each block works on its slice
// and meets the same block of the others.
func twoPhaseChunks(s Shape) *dsl.Program {
	p, in, out := begin(s, dsl.AllReduce, s.options())
	all := group(p, s.Blocks)
	for r := range s.Ranks {
		others := peers(s.Ranks, r)
		for b := range s.Blocks {
			m := memories(p, r, others)
			meet(m, others, b, dsl.Relaxed, dsl.Relaxed|dsl.After)
			for _, peer := range others {
				m[peer].Reduce(out[r].At(r), in[r].At(r), []dsl.Chunk{in[peer].At(r)}, dsl.Slice(all, b))
			}
			for _, peer := range others {
				m[peer].Put(out[peer].At(r), out[r].At(r), dsl.Slice(all, b))
			}
			meet(m, others, b, dsl.Before, dsl.After)
		}
	}
	return p
}

// twoPhasePorts: the same exchange by engines beside the blocks. A rank that received all parts knows that all others have
// begun, and writes to their outputs.
func twoPhasePorts(s Shape) *dsl.Program {
	p, in, out := begin(s, dsl.AllReduce, s.replicated())
	tmp := scratch(p, s.Ranks-1)
	for r := range s.Ranks {
		others, m := peers(s.Ranks, r), ports(p, r, peers(s.Ranks, r))
		var received []dsl.Chunk
		for _, peer := range others {
			m[peer].PutWithSignal(tmp[peer].At(slot(r, peer)), in[r].At(peer), 0)
			received = append(received, tmp[r].At(slot(peer, r)))
		}
		await(m, others, 0)
		p.Rank(r).Reduce(out[r].At(r), in[r].At(r), received, dsl.Block(0))
		for _, peer := range others {
			m[peer].PutWithSignal(out[peer].At(r), out[r].At(r), 0)
		}
		await(m, others, 0)
		flush(m, others, 0)
	}
	return p
}

// twoPhaseSwitch: rank r lets the switch reduce part r of all inputs and write it to all of them.
func twoPhaseSwitch(s Shape) *dsl.Program {
	p, in, _ := begin(s, dsl.AllReduce, s.replicated())
	sw := p.SwitchChannel(append([]int{0}, peers(s.Ranks, 0)...), dsl.InputBuffer)
	for r := range s.Ranks {
		others := peers(s.Ranks, r)
		m := memories(p, r, others)
		meet(m, others, 0, dsl.Relaxed, dsl.Relaxed|dsl.After)
		sw.At(r).Reduce(r, 1, in[r].At(r), 0)
		sw.At(r).Broadcast(in[r].At(r), r, 1, 0)
		meet(m, others, 0, dsl.Before, dsl.After)
	}
	return p
}

// pipelined: the two phases in units, by three blocks: while block 0 sends the parts of a unit, block 1 reduces the one
// before and sends the results, and block 2 waits for those of the others.
func pipelined(s Shape) *dsl.Program {
	p, in, out := begin(s, dsl.AllReduce, s.replicated())
	tmp := scratch(p, s.Ranks-1)
	for r := range s.Ranks {
		others := peers(s.Ranks, r)
		parts, results := memories(p, r, others), memories(p, r, others)
		p.Loop(unit, 1, func() {
			var received []dsl.Chunk
			for _, peer := range others {
				parts[peer].Put(tmp[peer].At(slot(r, peer)), in[r].At(peer), dsl.Block(0))
				received = append(received, tmp[r].At(slot(peer, r)))
			}
			for _, peer := range others {
				parts[peer].Signal(0, dsl.Before)
				parts[peer].Wait(1, dsl.After)
			}
			p.Rank(r).Reduce(out[r].At(r), in[r].At(r), received, dsl.Block(1))
			for _, peer := range others {
				results[peer].Put(out[peer].At(r), out[r].At(r), dsl.Block(1))
			}
			for _, peer := range others {
				results[peer].Signal(1, dsl.Before)
				results[peer].Wait(2, dsl.After)
			}
		})
	}
	return p
}

// gatherPackets: every rank sends its part to all others as packets. In place the part is in the output already.
func gatherPackets(s Shape) *dsl.Program {
	p, in, out := gathered(s, s.packets())
	tmp := scratch(p, s.Ranks-1)
	on := dsl.Blocks(group(p, s.Blocks))
	for r := range s.Ranks {
		others := peers(s.Ranks, r)
		m := memories(p, r, others)
		own := in[r]
		for _, peer := range others {
			m[peer].PutPackets(tmp[peer].At(slot(r, peer)), own, on)
		}
		if !s.InPlace {
			p.Rank(r).Copy(out[r].At(r), own, on)
		}
		for _, peer := range others {
			p.Rank(r).UnpackPackets(out[r].At(peer), tmp[r].At(slot(peer, r)), on)
		}
	}
	return p
}

// gatherChunks: every rank writes its part to all others. Each block does its slice and meets the same block of the others.
func gatherChunks(s Shape) *dsl.Program {
	p, in, out := gathered(s, s.options())
	all := group(p, s.Blocks)
	for r := range s.Ranks {
		others := peers(s.Ranks, r)
		own := in[r]
		for b := range s.Blocks {
			m := memories(p, r, others)
			meet(m, others, b, dsl.Relaxed, dsl.Relaxed|dsl.After)
			for _, peer := range others {
				m[peer].Put(out[peer].At(r), own, dsl.Slice(all, b))
			}
			if !s.InPlace {
				p.Rank(r).Copy(out[r].At(r), own, dsl.Slice(all, b))
			}
			meet(m, others, b, dsl.Before, dsl.After)
		}
	}
	return p
}

// unit is how many bytes of a chunk a round of a pipeline does.
const unit = 256 << 10
