package dsl

import (
	"fmt"
	"slices"
	"strings"

	"github.com/mscclpp-go/mscclpp/plan/schema"
)

// SwitchChannel connects a group of ranks by a switch that reduces and multiplies what passes it: one address stands for
// the same place in a buffer of every rank of the group.
type SwitchChannel struct {
	ids   map[int]int
	group *switchGroup
	p     *Program
}

// SwitchChannel makes a channel over one buffer of every rank of a group.
func (p *Program) SwitchChannel(ranks []int, typ BufferType) SwitchChannel {
	c := SwitchChannel{ids: map[int]int{}, group: &switchGroup{typ, slices.Clone(ranks)}, p: p}
	for _, r := range ranks {
		if !p.hasRank(r) {
			p.fail(RuntimeError, "One or more ranks in %s are out of bounds. Number of ranks: %d", list(ranks), len(p.gpus))
		}
	}
	if p.err != nil {
		return c
	}
	for _, r := range ranks {
		g := p.gpus[r]
		c.ids[r] = len(g.switches)
		g.switches = append(g.switches, c.group)
	}
	return c
}

// list writes ranks as programs write them.
func list(ranks []int) string {
	return strings.ReplaceAll(fmt.Sprint(ranks), " ", ", ")
}

// ID returns the number of the channel among the switch channels of a rank.
func (c SwitchChannel) ID(rank int) int { return c.ids[rank] }

// SwitchView is a switch channel as one rank of its group uses it.
type SwitchView struct {
	rank int
	c    SwitchChannel
}

// At returns the channel as a rank of its group uses it.
func (c SwitchChannel) At(rank int) SwitchView {
	if !slices.Contains(c.group.ranks, rank) {
		c.p.fail(RuntimeError, "Rank %d is not part of this SwitchChannel's rank group.", rank)
	}
	return SwitchView{rank, c}
}

// Reduce writes the reduction, over the group, of size chunks at offset to dst.
func (v SwitchView) Reduce(offset, size int, dst Chunk, block int, o ...ReduceOp) {
	if !v.fits("Destination", dst, offset, size, block) {
		return
	}
	r := v.op(kLoadReduce, schema.GroupReduce, block)
	r.reduce = theOp(o)
	r.dst = []operand{member(dst)}
	r.rsrc = []operand{{typ: v.c.group.typ, index: offset, size: size, id: r.ids[0]}}
	v.c.p.add(v.rank, block, r)
}

// Broadcast copies src to size chunks at offset of every rank of the group.
func (v SwitchView) Broadcast(src Chunk, offset, size, block int) {
	if v.fits("Destination", src, offset, size, block) {
		v.store(schema.GroupStore, src, offset, size, block)
	}
}

// BroadcastPackets waits for the packets in src, scratch of the rank, and copies them to size chunks at offset of the
// scratch of every rank of the group.
func (v SwitchView) BroadcastPackets(src Chunk, offset, size, block int) {
	p := v.c.p
	switch {
	case p.err != nil:
	case !slices.Contains(v.c.group.ranks, src.Rank):
		p.fail(RuntimeError, "Source chunk rank %d is not part of the rank group %s.", src.Rank, list(v.c.group.ranks))
	case src.Type != ScratchBuffer:
		p.fail(RuntimeError, "Source chunk must be of type scratch for the packet broadcast.")
	case v.c.group.typ != ScratchBuffer:
		p.fail(RuntimeError, "Destination buffer must be of type scratch for the packet broadcast.")
	}
	if v.fits("Source", src, offset, size, block) {
		v.store(schema.GroupStorePkt, src, offset, size, block)
	}
}

func (v SwitchView) store(name schema.OpName, src Chunk, offset, size, block int) {
	s := v.op(kStore, name, block)
	s.src = []operand{member(src)}
	s.rdst = []operand{{typ: v.c.group.typ, index: offset, size: size, id: s.ids[0]}}
	if src.Rank != v.rank {
		s.foreign = here().fault(RuntimeError, "Source chunk rank %d does not match current rank %d.", src.Rank, v.rank)
	}
	v.c.p.add(v.rank, block, s)
}

func (v SwitchView) op(k kind, name schema.OpName, block int) *op {
	id := v.c.p.gpus[v.rank].channel(block, schema.Switch, v.c.ids[v.rank])
	return &op{kind: k, name: name, channel: schema.Switch, ids: []int{id}}
}

// member is the operand of a switch operation that names its rank.
func member(c Chunk) operand {
	o := local(c)
	o.rank = c.Rank
	return o
}

func (v SwitchView) fits(what string, chunk Chunk, offset, size, block int) bool {
	p, g := v.c.p, v.c.group
	switch {
	case p.err != nil:
		return false
	case !slices.Contains(g.ranks, v.rank):
		p.fail(RuntimeError, "Rank %d is not part of this SwitchChannel's rank group.", v.rank)
	case !slices.Contains(g.ranks, chunk.Rank):
		p.fail(RuntimeError, "%s chunk rank %d is not part of the rank group %s.", what, chunk.Rank, list(g.ranks))
	case chunk.Size != size:
		p.fail(RuntimeError, "%s chunk size %d does not match the required size %d.", what, chunk.Size, size)
	case offset < 0:
		p.fail(ValueError, "Buffer offset must not be negative (got %d)", offset)
	}
	for _, r := range g.ranks {
		if has := p.gpus[r].chunks(g.typ); has < offset+size {
			p.fail(RuntimeError, "Buffer size %d is smaller than required size %d for rank %d.", has, offset+size, r)
		}
	}
	return p.err == nil && p.legal(block)
}

func (g *gpu) chunks(t BufferType) int {
	switch t {
	case InputBuffer:
		return g.input
	case OutputBuffer:
		return g.output
	}
	return g.scratch
}
