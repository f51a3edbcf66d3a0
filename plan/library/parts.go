package library

import "github.com/mscclpp-go/mscclpp/plan/dsl"

// begin makes a program and returns, by rank, the buffers that it reads and writes.
func begin(s Shape, of func(ranks, factor int, inPlace bool) dsl.Collective, o dsl.Options) (p *dsl.Program, in, out []dsl.Buffer) {
	p = dsl.New(of(s.Ranks, 1, s.InPlace), o)
	for r := range s.Ranks {
		in = append(in, p.Input(r))
		out = append(out, p.Output(r))
	}
	if s.InPlace {
		out = in
	}
	return p, in, out
}

// gathered makes a program of an all-gather and returns, by rank, its part and the output. In place the part is one of the
// output.
func gathered(s Shape, o dsl.Options) (p *dsl.Program, in []dsl.Chunk, out []dsl.Buffer) {
	p = dsl.New(dsl.AllGather(s.Ranks, 1, s.InPlace), o)
	for r := range s.Ranks {
		out = append(out, p.Output(r))
		if in = append(in, p.Input(r).At(0)); s.InPlace {
			in[r] = out[r].At(r)
		}
	}
	return p, in, out
}

// scratch allocates chunks of every rank.
func scratch(p *dsl.Program, chunks int) []dsl.Buffer {
	var out []dsl.Buffer
	for r := range p.Ranks() {
		out = append(out, p.Scratch(r, chunks))
	}
	return out
}

// group is the thread blocks 0 to n-1, which share every operation.
func group(p *dsl.Program, n int) *dsl.Group {
	var blocks []int
	for b := range n {
		blocks = append(blocks, b)
	}
	return p.Group(blocks...)
}

// peers are all ranks but r, in the order in which r is to reach them: every rank begins with another one.
func peers(ranks, r int) []int {
	var out []int
	for i := 1; i < ranks; i++ {
		out = append(out, (r+i)%ranks)
	}
	return out
}

// inside are the other ranks of r's host.
func (s Shape) inside(r int) []int {
	var out []int
	for _, g := range peers(s.PerHost, r%s.PerHost) {
		out = append(out, r-r%s.PerHost+g)
	}
	return out
}

// across are the ranks of other hosts with the same place.
func (s Shape) across(r int) []int {
	var out []int
	for _, h := range peers(s.hosts(), r/s.PerHost) {
		out = append(out, h*s.PerHost+r%s.PerHost)
	}
	return out
}

// outside are all ranks of other hosts.
func (s Shape) outside(r int) []int {
	var out []int
	for _, peer := range peers(s.Ranks, r) {
		if peer/s.PerHost != r/s.PerHost {
			out = append(out, peer)
		}
	}
	return out
}

// slot is the place of x among all numbers but y.
func slot(x, y int) int {
	if x < y {
		return x
	}
	return x - 1
}

// memories and ports make a channel from r to each of the ranks of a list.
func memories(p *dsl.Program, r int, to []int) map[int]dsl.MemoryChannel {
	m := map[int]dsl.MemoryChannel{}
	for _, peer := range to {
		m[peer] = p.MemoryChannel(peer, r)
	}
	return m
}

func ports(p *dsl.Program, r int, to []int) map[int]dsl.PortChannel {
	m := map[int]dsl.PortChannel{}
	for _, peer := range to {
		m[peer] = p.PortChannel(peer, r)
	}
	return m
}

// each calls f for some chunks and, of each, all ranks of a list.
func each(first, chunks int, ranks []int, f func(c, peer int)) {
	for c := first; c < first+chunks; c++ {
		for _, peer := range ranks {
			f(c, peer)
		}
	}
}

// channel is what memory channels and ports have in common.
type channel interface {
	Signal(block int, sync ...dsl.Sync)
	Wait(block int, sync ...dsl.Sync)
}

// meet has a block signal the ranks of a list and wait for them.
func meet[C channel](m map[int]C, to []int, block int, signal, wait dsl.Sync) {
	for _, peer := range to {
		m[peer].Signal(block, signal)
	}
	for _, peer := range to {
		m[peer].Wait(block, wait)
	}
}

// await has a block wait for the ranks of a list.
func await[C channel](m map[int]C, from []int, block int) {
	for _, peer := range from {
		m[peer].Wait(block, dsl.After)
	}
}

// flush has a block wait until the ports to the ranks of a list have read all sources.
func flush(m map[int]dsl.PortChannel, to []int, block int) {
	for _, peer := range to {
		m[peer].Flush(block, dsl.After)
	}
}
