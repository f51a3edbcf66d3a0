package verify

import (
	"math"

	"github.com/mscclpp-go/mscclpp/plan/schema"
)

// step is one operation as a block runs it once: operands are resolved to pieces of buffers.
type step struct {
	op    *schema.Op
	rank  int
	block int
	index int // in the block's list
	inner int // in the pipeline's list, -1 outside
	turn  int // of the pipeline

	src, dst []piece
	ends     []end      // of channel_ids
	engines  []int      // of channel_ids of port channels: the rank's numbers
	counters []*counter // of a wait or an acquire
}

// signals reports whether the step tells another thread what its block knows.
func (s *step) signals() bool {
	switch s.op.Name {
	case schema.Signal, schema.RlxSignal, schema.SemRelease, schema.Pws, schema.Pwsf:
		return true
	}
	return s.op.Channel() == schema.Port
}

// piece is a range of bytes at one place of a buffer of a rank, or of several: members of a switch channel.
type piece struct {
	ranks  []int
	buffer schema.Buffer
	off, n int64 // of payload: packets take twice the room
	packet bool
}

// program flattens the operations of blocks for one size of chunk.
type program struct {
	plan  *schema.Plan
	chunk int64 // bytes
	ends  map[schema.ChannelType][][]end
	sw    [][]schema.SwitchChannel
}

func newProgram(p *schema.Plan, chunk int64) *program {
	x := &program{plan: p, chunk: chunk, ends: map[schema.ChannelType][][]end{}}
	for _, t := range []schema.ChannelType{schema.Memory, schema.Port} {
		for r := range p.GPUs {
			x.ends[t] = append(x.ends[t], endsOf(&p.GPUs[r], t))
		}
	}
	for r := range p.GPUs {
		x.sw = append(x.sw, p.GPUs[r].Switches())
	}
	return x
}

// endsOf numbers the channels of a rank by peer: the i-th one to a peer belongs to that peer's i-th one to the rank.
func endsOf(g *schema.GPU, t schema.ChannelType) []end {
	count := map[int]int{}
	var out []end
	for _, peer := range g.Peers(t) {
		out = append(out, end{g.ID, peer, t, count[peer]})
		count[peer]++
	}
	return out
}

// steps returns what block b of rank r runs in a launch.
func (x *program) steps(r, b int) []*step {
	f := &flattener{program: x, gpu: &x.plan.GPUs[r], block: &x.plan.GPUs[r].Blocks[b]}
	for i := range f.block.Ops {
		o := &f.block.Ops[i]
		if o.Name != schema.Pipeline {
			f.add(o, i, -1, 0, 0, -1)
			continue
		}
		unit := int64(o.Iter.Unit)
		for turn := range turns(o.Iter, x.chunk) {
			for k := range o.Ops {
				f.add(&o.Ops[k], i, k, int(turn), turn*unit, unit)
			}
		}
	}
	return f.out
}

// turns is how often a pipeline runs its operations.
func turns(it *schema.Iteration, chunk int64) int64 {
	n := int64(it.NumChunks)
	if n == 0 {
		return 0
	}
	return (min(n, math.MaxInt64/chunk)*chunk-1)/int64(it.Unit) + 1
}

type flattener struct {
	*program
	gpu   *schema.GPU
	block *schema.Block
	out   []*step
}

func (f *flattener) add(o *schema.Op, index, inner, turn int, offset, unit int64) {
	s := &step{op: o, rank: f.gpu.ID, block: f.block.ID, index: index, inner: inner, turn: turn}
	if t := o.Channel(); t == schema.Memory || t == schema.Port {
		ids := f.block.ChannelIDs(t)
		for _, id := range o.ChannelIDs {
			s.ends = append(s.ends, f.ends[t][f.gpu.ID][ids[id]])
			s.engines = append(s.engines, ids[id])
		}
	}
	cut := func(off, n int64) (int64, int64) { return f.part(o, off, n, offset, unit) }
	if l := o.Load; l != nil {
		sw := f.sw[f.gpu.ID][f.block.ChannelIDs(schema.Switch)[o.ChannelIDs[0]]]
		s.src = []piece{f.piece(sw.Ranks, sw.Buffer, l.Offset, l.Size, cut)}
		s.dst = []piece{f.piece([]int{f.gpu.ID}, l.Dst.Buffer, l.Dst.Index, l.Dst.Size, cut)}
	}
	for i := range o.Src {
		s.src = append(s.src, f.operand(o, &o.Src[i], cut))
		s.src[i].packet = packetSource(o, i, s.src[i].buffer)
	}
	for i := range o.Dst {
		s.dst = append(s.dst, f.operand(o, &o.Dst[i], cut))
		s.dst[i].packet = packetDestination(o, i)
	}
	f.out = append(f.out, s)
}

func (f *flattener) operand(o *schema.Op, x *schema.Operand, cut func(off, n int64) (int64, int64)) piece {
	switch x.Kind {
	case schema.Remote:
		b := f.gpu.RemoteBuffers[f.block.RemoteIDs(o.Channel())[x.ID]]
		return f.piece([]int{b.Rank}, b.Type, x.Index, x.Size, cut)
	case schema.Multicast:
		sw := f.sw[f.gpu.ID][f.block.ChannelIDs(schema.Switch)[x.ID]]
		return f.piece(sw.Ranks, sw.Buffer, x.Index, x.Size, cut)
	}
	return f.piece([]int{f.gpu.ID}, x.Buffer, x.Index, x.Size, cut)
}

func (f *flattener) piece(ranks []int, b schema.Buffer, index, size int, cut func(off, n int64) (int64, int64)) piece {
	off, n := cut(int64(index)*f.chunk, int64(size)*f.chunk)
	return piece{ranks: ranks, buffer: b, off: off, n: n}
}

// part returns the bytes of an operand that a block does in one turn of a pipeline: its slice of the unit. Packet
// operations know no turns. unit is -1 outside of pipelines.
func (f *flattener) part(o *schema.Op, off, n, offset, unit int64) (int64, int64) {
	if unit >= 0 && !o.Name.Packets() {
		off, n = off+offset, max(0, min(unit, n-offset))
	}
	g := o.Group
	if g == nil || g.Size == 1 {
		return off, n
	}
	from, to := f.share(n, g.ID, g.Size), f.share(n, g.ID+1, g.Size)
	if g.ID == g.Size-1 {
		to = n
	}
	return off + from, to - from
}

// share is where slice t of T begins, in granules that are dealt out one by one.
func (f *flattener) share(n int64, t, of int) int64 {
	a := int64(f.plan.Alignment)
	e := n / a
	return (int64(t)*(e/int64(of)) + min(int64(t), e%int64(of))) * a
}

// packetSource reports whether source i of an operation is packets.
func packetSource(o *schema.Op, i int, b schema.Buffer) bool {
	switch o.Name {
	case schema.UnpackPkt, schema.ReadPutPkt, schema.GroupStorePkt:
		return true
	case schema.PutPkt:
		return o.Channel() == schema.Port && b == schema.Scratch
	case schema.ReducePkt, schema.ReduceSendPkt, schema.ReduceCopyPkt, schema.ReduceCSPkt:
		return i > 0
	}
	return false
}

func packetDestination(o *schema.Op, i int) bool {
	switch o.Name {
	case schema.CopyPkt, schema.PutPkt, schema.ReadPutPkt, schema.GroupStorePkt:
		return true
	case schema.ReduceSendPkt, schema.ReduceCopyPkt, schema.ReduceCSPkt:
		return i > 0
	}
	return false
}
