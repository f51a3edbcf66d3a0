package dsl

import "slices"

// compiled is a rank's program as the plan will say it. The program itself stays as it is, so that it can be compiled
// again, or go on.
func (p *Program) compiled(g *gpu) *gpu {
	c := &gpu{
		input: g.input, output: g.output, scratch: g.scratch,
		types: g.types, memory: g.memory, port: g.port, switches: g.switches, remotes: g.remotes, semaphores: g.semaphores,
	}
	for _, b := range g.blocks {
		ops := cloned(b.ops)
		if !p.opt.NoFusion {
			ops = fuse(ops)
		}
		ops = joined(ops)
		if !p.opt.NoAutoSync {
			ops = ordered(ops)
		}
		c.blocks = append(c.blocks, &block{ops: ops, channels: b.channels, remotes: b.remotes})
	}
	if p.opt.Instances > 1 {
		p.replicate(c)
	}
	return c
}

// replicate makes n instances of everything. Instance k of block b is block b·n+k, and likewise for channels, semaphores
// and barriers; it works on its share of every operand's chunks.
func (p *Program) replicate(g *gpu) {
	n := p.opt.Instances
	g.input, g.output, g.scratch = g.input*n, g.output*n, g.scratch*n
	g.memory, g.port = times(g.memory, n), times(g.port, n)
	g.switches, g.semaphores = times(g.switches, n), times(g.semaphores, n)
	var blocks []*block
	for _, b := range g.blocks {
		for k := range n {
			i := &block{ops: cloned(b.ops), remotes: b.remotes}
			for _, t := range b.channels {
				i.channels = append(i.channels, table{t.channel, shifted(t.ids, n, k)})
			}
			for _, o := range i.ops {
				p.shift(o, n, k)
			}
			blocks = append(blocks, i)
		}
	}
	g.blocks = blocks
}

func times[T any](list []T, n int) []T {
	var out []T
	for _, x := range list {
		out = append(out, slices.Repeat([]T{x}, n)...)
	}
	return out
}

func shifted(ids []int, n, k int) []int {
	var out []int
	for _, id := range ids {
		out = append(out, id*n+k)
	}
	return out
}

func (p *Program) shift(o *op, n, k int) {
	for _, inner := range o.body {
		p.shift(inner, n, k)
	}
	switch o.kind {
	case kBarrier:
		o.barrier = o.barrier*n + k
	case kAcquire, kRelease:
		o.ids = shifted(o.ids, n, k)
	}
	if p.opt.NoInterleaving {
		return
	}
	lists := []*[]operand{&o.src, &o.dst, &o.rsrc, &o.rdst}
	if !p.opt.Upstream {
		lists = append(lists, &o.packet)
	}
	for _, list := range lists {
		out := slices.Clone(*list)
		for i, x := range out {
			out[i].index = x.index*n + k*x.size
		}
		*list = out
	}
}
