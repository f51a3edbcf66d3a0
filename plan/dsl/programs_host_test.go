package dsl_test

import "github.com/mscclpp-go/mscclpp/plan/dsl"

// Programs for the GPUs of one host.

// mesh is a memory channel of every rank to every other, by rank and peer.
func mesh(p *dsl.Program) map[[2]int]dsl.MemoryChannel {
	m := map[[2]int]dsl.MemoryChannel{}
	for r := range p.Ranks() {
		for _, peer := range others(p, r) {
			m[[2]int{r, peer}] = p.MemoryChannel(peer, r)
		}
	}
	return m
}

// others are the ranks beside one, ascending.
func others(p *dsl.Program, r int) []int {
	var out []int
	for peer := range p.Ranks() {
		if peer != r {
			out = append(out, peer)
		}
	}
	return out
}

// without is the place of x among all numbers but y.
func without(x, y int) int {
	if x < y {
		return x
	}
	return x - 1
}

func scratches(p *dsl.Program, chunks int) []dsl.Buffer {
	var out []dsl.Buffer
	for r := range p.Ranks() {
		out = append(out, p.Scratch(r, chunks))
	}
	return out
}

// meet has block 0 of each rank signal all others and wait for them.
func meet(p *dsl.Program, m map[[2]int]dsl.MemoryChannel, signal, wait dsl.Sync) {
	for r := range p.Ranks() {
		for _, peer := range others(p, r) {
			m[[2]int{r, peer}].Signal(0, signal)
		}
		for _, peer := range others(p, r) {
			m[[2]int{r, peer}].Wait(0, wait)
		}
	}
}

func allGather(p *dsl.Program) {
	for r := range p.Ranks() {
		for _, peer := range others(p, r) {
			ch := p.MemoryChannel(peer, r)
			ch.Signal(0, dsl.Relaxed)
			ch.Wait(0, dsl.After|dsl.Relaxed)
			ch.Put(p.Output(peer).At(r), p.Output(r).At(r), dsl.Block(0))
			ch.Signal(0, dsl.Before)
			ch.Wait(0, dsl.After)
		}
	}
}

func allGatherGroup(p *dsl.Program) {
	for r := range p.Ranks() {
		for _, peer := range others(p, r) {
			ch, g := p.MemoryChannel(peer, r), p.Group(0, 1, 2, 3)
			ch.Signal(0, dsl.Relaxed)
			ch.Wait(0, dsl.After|dsl.Relaxed)
			p.Rank(r).Barrier(0, 1, 2, 3)
			ch.Put(p.Output(peer).At(r), p.Output(r).At(r), dsl.Blocks(g))
			p.Rank(r).Barrier(0, 1, 2, 3)
			ch.Signal(0, dsl.Before)
			ch.Wait(0, dsl.After)
		}
	}
}

func allGatherPackets(p *dsl.Program) {
	n, s := p.Ranks(), scratches(p, p.Ranks())
	for r := range n {
		for i := 1; i < n; i++ {
			to := (r + i) % n
			p.MemoryChannel(to, r).PutPackets(s[to].At(r), p.Output(r).At(r), dsl.Block(i-1))
			p.Rank(r).UnpackPackets(p.Output(r).At(to), s[r].At(to), dsl.Block(n+i-2))
		}
	}
}

func allGatherForwarded(p *dsl.Program) {
	n, s := p.Ranks(), scratches(p, 2*p.Ranks())
	for r := range n {
		p.Rank(r).CopyPackets(s[r].At(n+r), p.Input(r).At(0), dsl.Block(0))
		for i := 1; i < n; i++ {
			to := (r + i) % n
			p.MemoryChannel(to, r).ReadPutPackets(s[to].At(r), s[r].At(n+r), dsl.Block(0))
		}
		for i := 1; i < n; i++ {
			from := (r + i) % n
			p.Rank(r).UnpackPackets(p.Output(r).At(from), s[r].At(from), dsl.Block(0))
		}
	}
}

func everyRank(p *dsl.Program) []int { return append([]int{0}, others(p, 0)...) }

func allGatherSwitch(p *dsl.Program) {
	sw, m := p.SwitchChannel(everyRank(p), dsl.OutputBuffer), mesh(p)
	meet(p, m, dsl.Relaxed, dsl.Relaxed|dsl.After)
	for r := range p.Ranks() {
		sw.At(r).Broadcast(p.Output(r).At(r), r, 1, 0)
	}
	meet(p, m, dsl.Relaxed|dsl.Before, dsl.Relaxed)
}

func allGatherSwitchPackets(p *dsl.Program) {
	s := scratches(p, p.Ranks())
	sw := p.SwitchChannel(everyRank(p), dsl.ScratchBuffer)
	for r := range p.Ranks() {
		p.Rank(r).CopyPackets(s[r].At(r), p.Output(r).At(r), dsl.Block(0))
		sw.At(r).BroadcastPackets(s[r].At(r), r, 1, 0)
		for i := range p.Ranks() {
			p.Rank(r).UnpackPackets(p.Output(r).At(i), s[r].At(i), dsl.Block(i))
		}
	}
}

func allReduce(p *dsl.Program) {
	const blocks = 8
	for r := range p.Ranks() {
		for b := range blocks {
			ch := map[int]dsl.MemoryChannel{}
			for _, peer := range others(p, r) {
				ch[peer] = p.MemoryChannel(peer, r)
				ch[peer].Signal(b, dsl.Relaxed)
			}
			own, i := p.Input(r).At(r*blocks+b), r*blocks+b
			for _, peer := range others(p, r) {
				ch[peer].Wait(b, dsl.Relaxed|dsl.After)
			}
			for _, peer := range others(p, r) {
				ch[peer].Reduce(own, own, []dsl.Chunk{p.Input(peer).At(i)}, dsl.Block(b))
			}
			for _, peer := range others(p, r) {
				ch[peer].Put(p.Input(peer).At(i), own, dsl.Block(b))
			}
			for _, peer := range others(p, r) {
				ch[peer].Signal(b, dsl.Before)
			}
			for _, peer := range others(p, r) {
				ch[peer].Wait(b)
			}
		}
	}
}

func allReduceOneBlock(p *dsl.Program) {
	n, s, m := p.Ranks(), scratches(p, 2*p.Ranks()), mesh(p)
	for r := range n {
		in, rank := p.Input(r), p.Rank(r)
		var parts []dsl.Chunk
		for _, peer := range others(p, r) {
			m[[2]int{r, peer}].PutPackets(s[peer].At(r), in.At(peer), dsl.Block(0))
			parts = append(parts, s[r].At(peer))
		}
		rank.ReducePackets(in.At(r), in.At(r), parts, dsl.Block(0))
		for _, peer := range others(p, r) {
			m[[2]int{r, peer}].PutPackets(s[peer].At(n+r), in.At(r), dsl.Block(0))
		}
		for _, peer := range others(p, r) {
			rank.UnpackPackets(in.At(peer), s[r].At(n+peer), dsl.Block(0))
		}
	}
}

func allReducePackets(p *dsl.Program) {
	n, m := p.Ranks(), mesh(p)
	s, half := scratches(p, 2*(n-1)*n), (n-1)*n
	for r := range n {
		in, rank := p.Input(r), p.Rank(r)
		for _, peer := range others(p, r) {
			at := without(r, peer) * n
			m[[2]int{r, peer}].PutPackets(s[peer].Slice(at, at+n), in.Slice(peer*n, peer*n+n), dsl.Block(without(peer, r)))
		}
		for i := range n {
			var parts []dsl.Chunk
			for _, peer := range others(p, r) {
				parts = append(parts, s[r].At(without(peer, r)*n+i))
			}
			rank.ReducePackets(in.At(r*n+i), in.At(r*n+i), parts, dsl.Block(i))
			for _, peer := range others(p, r) {
				m[[2]int{r, peer}].PutPackets(s[peer].At(half+without(r, peer)*n+i), in.At(r*n+i), dsl.Block(i))
			}
		}
		for _, peer := range others(p, r) {
			at := half + without(peer, r)*n
			rank.UnpackPackets(in.Slice(peer*n, peer*n+n), s[r].Slice(at, at+n), dsl.Block(peer))
		}
	}
}

func allReduceSwitch(p *dsl.Program) { switchReduce(p, func(body func()) { body() }) }
func allReduceSwitchLoop(p *dsl.Program) {
	switchReduce(p, func(body func()) { p.Loop(1<<20, 1, body) })
}

func switchReduce(p *dsl.Program, around func(func())) {
	sw, m := p.SwitchChannel(everyRank(p), dsl.InputBuffer), mesh(p)
	meet(p, m, dsl.Relaxed, dsl.Relaxed|dsl.After)
	around(func() {
		for r := range p.Ranks() {
			sw.At(r).Reduce(r, 1, p.Input(r).At(r), 0)
			sw.At(r).Broadcast(p.Input(r).At(r), r, 1, 0)
		}
	})
	meet(p, m, dsl.Relaxed|dsl.Before, dsl.Relaxed)
}

func allReducePipeline(p *dsl.Program) {
	n := p.Ranks()
	sw, s := p.SwitchChannel(everyRank(p), dsl.ScratchBuffer), scratches(p, n)
	for r := range n {
		peer, rank, in, out := (r+1)%n, p.Rank(r), p.Input(r), p.Output(r)
		ready, done := p.MemoryChannel(peer, r), p.MemoryChannel(peer, r)
		copied, reduced := p.Semaphore(r, 0), p.Semaphore(r, 0)
		p.Loop(1<<20, 1, func() {
			for i := range n {
				rank.Copy(s[r].At(i), in.At(i), dsl.Block(0))
			}
			ready.Signal(0, dsl.Before)
			ready.Wait(0, dsl.After)
			copied.Release(0)
			copied.Acquire(1, dsl.After)
			sw.At(r).Reduce(r, 1, s[r].At(r), 1)
			sw.At(r).Broadcast(s[r].At(r), r, 1, 1)
			done.Signal(1, dsl.Before)
			reduced.Release(1)
			reduced.Acquire(2)
			done.Wait(2, dsl.After)
			for i := range n {
				rank.Copy(out.At(i), s[r].At(i), dsl.Block(2))
			}
		})
	}
}

func allToAll(p *dsl.Program) {
	s, m := scratches(p, p.Ranks()-1), mesh(p)
	for r := range p.Ranks() {
		for _, peer := range others(p, r) {
			ch, b := m[[2]int{r, peer}], without(peer, r)
			ch.Signal(b, dsl.Relaxed)
			ch.Wait(b, dsl.Relaxed|dsl.After)
			ch.Put(s[peer].At(without(r, peer)), p.Input(r).At(peer), dsl.Block(b))
			ch.Signal(b, dsl.Before)
			ch.Wait(b, dsl.After)
			p.Rank(r).Copy(p.Input(r).At(peer), s[r].At(b), dsl.Block(b))
		}
	}
}

// twoMeshes makes a channel for data and one for the opening handshake to each peer.
func twoMeshes(p *dsl.Program) (data, open map[[2]int]dsl.MemoryChannel) {
	data, open = map[[2]int]dsl.MemoryChannel{}, map[[2]int]dsl.MemoryChannel{}
	for r := range p.Ranks() {
		for _, peer := range others(p, r) {
			data[[2]int{r, peer}] = p.MemoryChannel(peer, r)
			open[[2]int{r, peer}] = p.MemoryChannel(peer, r)
		}
	}
	return data, open
}

func allToAllPipeline(p *dsl.Program) {
	n, s := p.Ranks(), scratches(p, p.Ranks()-1)
	data, open := twoMeshes(p)
	for r := range n {
		var sent []dsl.Semaphore
		for range n {
			sent = append(sent, p.Semaphore(r, 0))
		}
		for _, peer := range others(p, r) {
			ch, b := open[[2]int{r, peer}], without(peer, r)
			ch.Signal(b, dsl.Relaxed)
			ch.Wait(b, dsl.Relaxed|dsl.After)
		}
		p.Loop(1<<19, 1, func() {
			for _, peer := range others(p, r) {
				ch, b := data[[2]int{r, peer}], without(peer, r)
				ch.Put(s[peer].At(without(r, peer)), p.Input(r).At(peer), dsl.Block(b))
				ch.Signal(b, dsl.Before)
				sent[b].Release(b)
				sent[b].Acquire(n - 1 + b)
				ch.Wait(n-1+b, dsl.After)
				p.Rank(r).Copy(p.Input(r).At(peer), s[r].At(b), dsl.Block(n-1+b))
			}
		})
	}
}

func allToAllRing(p *dsl.Program) {
	n, s := p.Ranks(), scratches(p, p.Ranks()-1)
	data, open := twoMeshes(p)
	meet(p, open, dsl.Relaxed, dsl.Relaxed|dsl.After)
	for r := range n {
		sent := map[int]dsl.Semaphore{}
		for _, peer := range others(p, r) {
			sent[peer] = p.Semaphore(r, 0)
		}
		ringPut(p, r, s, data, func(to int) { sent[to].Release(0) })
		for i := 1; i < n; i++ {
			from := (r + n - i) % n
			sent[from].Acquire(1)
			data[[2]int{r, from}].Wait(1, dsl.After)
			p.Rank(r).Copy(p.Input(r).At(from), s[r].At(without(from, r)), dsl.Block(1))
		}
	}
}

func ringPut(p *dsl.Program, r int, s []dsl.Buffer, data map[[2]int]dsl.MemoryChannel, then func(to int)) {
	n := p.Ranks()
	for i := 1; i < n; i++ {
		to := (r + i) % n
		data[[2]int{r, to}].Put(s[to].At(without(r, to)), p.Input(r).At(to), dsl.Block(0))
		data[[2]int{r, to}].Signal(0, dsl.Before)
		then(to)
	}
}

func allToAllRingCopy(p *dsl.Program) {
	n, s := p.Ranks(), scratches(p, p.Ranks()-1)
	data, open := twoMeshes(p)
	meet(p, open, dsl.Relaxed, dsl.Relaxed|dsl.After)
	for r := range n {
		ringPut(p, r, s, data, func(int) {})
		p.Rank(r).Copy(p.Output(r).At(r), p.Input(r).At(r), dsl.Block(0))
		for i := 1; i < n; i++ {
			from := (r + n - i) % n
			data[[2]int{r, from}].Wait(1, dsl.After)
			p.Rank(r).Copy(p.Output(r).At(from), s[r].At(without(from, r)), dsl.Block(1))
		}
	}
}
