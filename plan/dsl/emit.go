package dsl

import (
	"slices"

	"github.com/mscclpp-go/mscclpp/plan/schema"
)

// Compile makes the plan of the program. It leaves the program as it is: the same calls give the same plan, and more may
// follow.
//
// With Options.Upstream the plan is, byte for byte, the one that MSCCL++ makes of the same program. Otherwise two of its
// mistakes are mended: instances of a fused reduction keep their packets apart, where those of MSCCL++ hang or race, and a
// fused reduce and broadcast over a switch may write elsewhere than it reads.
func (p *Program) Compile() (*schema.Plan, error) {
	if p.err != nil {
		return nil, p.err
	}
	if p.loop != nil {
		return nil, here().fault(RuntimeError, "A loop is open. Every loop must end before the plan is made.")
	}
	if err := p.pairs.check(); err != nil {
		return nil, err
	}
	plan := &schema.Plan{
		Name: p.opt.Name, Collective: p.collective.Name, Protocol: p.opt.Protocol, InPlace: p.collective.InPlace,
		ReuseResources: p.opt.ReuseResources, ThreadsPerBlock: p.opt.ThreadsPerBlock, DoubleScratch: p.opt.DoubleScratch,
		Alignment: p.opt.Alignment, MinSize: p.opt.MinSize, MaxSize: p.opt.MaxSize,
	}
	for rank, g := range p.gpus {
		e := emitter{p: p}
		plan.GPUs = append(plan.GPUs, e.gpu(rank, p.compiled(g)))
		if e.err != nil {
			return nil, e.err
		}
	}
	return plan, nil
}

// emitter writes a rank's program in the words of the schema.
type emitter struct {
	p   *Program
	err *Error
}

func (e *emitter) gpu(rank int, g *gpu) schema.GPU {
	out := schema.GPU{ID: rank, InputChunks: g.input, OutputChunks: g.output, ScratchChunks: g.scratch}
	for i, b := range g.blocks {
		out.Blocks = append(out.Blocks, e.block(i, b))
	}
	for _, t := range g.types {
		peers := g.memory
		if t == schema.Port {
			peers = g.port
		}
		out.Channels = append(out.Channels, schema.Channels{Type: t, Peers: peers})
	}
	for _, s := range g.switches {
		out.Channels = append(out.Channels, schema.Channels{
			Type: schema.Switch, Buffer: s.typ, Groups: []schema.RankGroup{{Size: len(s.ranks), Ranks: s.ranks}},
		})
	}
	for _, r := range g.remotes {
		out.RemoteBuffers = append(out.RemoteBuffers, schema.RemoteBuffer{Rank: r.rank, Type: r.typ, Access: r.access})
	}
	for _, initial := range g.semaphores {
		out.Semaphores = append(out.Semaphores, schema.Semaphore{Init: initial})
	}
	return out
}

func (e *emitter) block(id int, b *block) schema.Block {
	out := schema.Block{ID: id, Ops: e.ops(b.ops)}
	for _, t := range b.channels {
		out.Channels = append(out.Channels, schema.ChannelRefs{Type: t.channel, IDs: t.ids})
	}
	for _, t := range b.remotes {
		out.RemoteRefs = append(out.RemoteRefs, schema.RemoteRefs{Type: t.channel, IDs: t.ids})
	}
	return out
}

func (e *emitter) ops(ops []*op) []schema.Op {
	var out []schema.Op
	for _, o := range ops {
		out = append(out, e.op(o))
	}
	return out
}

func (e *emitter) op(o *op) schema.Op {
	out := schema.Op{Name: o.name, ChannelType: o.channel}
	switch o.kind {
	case kNop:
		return out
	case kBarrier:
		out.Barrier, out.Blocks = o.barrier, o.parties
		return out
	case kAcquire, kRelease:
		out.Semaphores = o.ids
		return out
	case kPipeline:
		out.Iter, out.Ops = &schema.Iteration{Unit: o.unit, NumChunks: o.chunks}, e.ops(o.body)
		return out
	case kLoadReduce:
		from, to := o.rsrc[0], o.dst[0]
		out.ChannelIDs, out.Reduce = o.ids, o.reduce
		out.Load = &schema.GroupLoad{
			Buffer: from.typ, Offset: from.index, Size: from.size,
			Dst: schema.Chunk{Rank: to.rank, Buffer: to.typ, Index: to.index, Size: to.size},
		}
		return out
	case kSignal, kWait, kFlush:
		out.ChannelIDs = e.set(o.ids)
	case kGet:
		out.ChannelIDs = o.ids
	case kPut:
		if o.channel == schema.Port {
			out.ChannelIDs = o.ids
		}
	case kStore:
		if o.foreign != nil && e.err == nil {
			e.err = o.foreign
		}
	}
	e.operands(&out, o)
	return out
}

// set returns channels without repetitions, ascending if upstream does not say otherwise.
func (e *emitter) set(ids []int) []int {
	if e.p.opt.Upstream {
		return pythonOrder(ids)
	}
	out := slices.Clone(ids)
	slices.Sort(out)
	return slices.Compact(out)
}

func (e *emitter) operands(out *schema.Op, o *op) {
	out.Reduce = o.reduce
	if o.share != nil {
		out.Group = &schema.GroupSlice{ID: o.share.id, Size: o.share.of}
	}
	far := schema.Remote
	if o.channel == schema.Switch {
		far = schema.Multicast
	}
	out.Src = operands(operands(nil, schema.Local, o.src), far, o.rsrc)
	out.Dst = operands(operands(operands(nil, schema.Local, o.dst), schema.Local, o.packet), far, o.rdst)
	if o.kind == kLoadReduceStore && e.p.opt.Upstream {
		out.Dst[0].Index = out.Src[0].Index
	}
}

func operands(list []schema.Operand, kind schema.OperandKind, from []operand) []schema.Operand {
	for _, x := range from {
		o := schema.Operand{Kind: kind, ID: x.id, Index: x.index, Size: x.size}
		if kind == schema.Local {
			o.Buffer, o.ID = x.typ, 0
		}
		list = append(list, o)
	}
	return list
}
