package exec

import (
	"fmt"
	"slices"

	"github.com/mscclpp-go/mscclpp/framework"
	"github.com/mscclpp-go/mscclpp/framework/kernel"
	"github.com/mscclpp-go/mscclpp/plan/schema"
)

// tables are what the kernel reads of a plan: the part of one rank, with all indirections resolved.
type tables struct {
	blocks   []block
	ops      []op
	operands []operand
	ids      []uint32
	meetings int     // device barriers
	groups   [][]int // ranks in order, of switch channels

	reductions map[int]*schema.Op // of the file, by place in ops
}

// slotOf numbers the buffers of all ranks.
func slotOf(rank int, b schema.Buffer) uint32 {
	return uint32(3*rank) + uint32(map[schema.Buffer]int{schema.Input: 0, schema.Output: 1, schema.Scratch: 2}[b])
}

// decoder makes the tables of a rank.
type decoder struct {
	tables
	plan  *schema.Plan
	gpu   *schema.GPU
	block *schema.Block
	first int      // of the block's operations
	begun []uint32 // ports of the block that were asked for transfers since they were flushed last
}

func decode(p *schema.Plan, rank int) (*tables, error) {
	d := &decoder{plan: p, gpu: &p.GPUs[rank]}
	d.reductions = map[int]*schema.Op{}
	for b := range d.gpu.Blocks {
		d.block, d.begun = &d.gpu.Blocks[b], nil
		first, operands, ids := len(d.ops), len(d.operands), len(d.ids)
		d.first = first
		if err := d.list(d.block.Ops); err != nil {
			return nil, err
		}
		if len(d.begun) > 0 { // the next launch may write what ports still read
			d.emit(op{Kind: opFlush, Flags: overPort, Number: uint32(len(d.block.Ops))}, d.begun)
		}
		for n := len(d.ops); n > first && d.ops[n-1].Kind == opNop && d.ops[n-1].Flags == 0; n = len(d.ops) {
			d.ops = d.ops[:n-1] // the end of a launch joins the threads, too
		}
		d.blocks = append(d.blocks, block{uint32(first), uint32(len(d.ops) - first), uint32(operands), uint32(len(d.operands) - operands), uint32(ids), uint32(len(d.ids) - ids), 0})
	}
	return &d.tables, nil
}

func (d *decoder) list(ops []schema.Op) error {
	for i := range ops {
		if err := d.one(&ops[i], uint32(i)); err != nil {
			return fmt.Errorf("plan %s: rank %d, block %d, operation %d (%s): %w", d.plan.Name, d.gpu.ID, d.block.ID, i, ops[i].Name, err)
		}
	}
	return nil
}

// emit appends an operation with the channels or semaphores that it names.
func (d *decoder) emit(x op, ids []uint32) {
	x.IDs, x.IDCount = uint32(len(d.ids)), uint16(len(ids))
	d.ids = append(d.ids, ids...)
	d.ops = append(d.ops, x)
}

func (d *decoder) one(o *schema.Op, number uint32) error {
	x := op{Number: number, Slices: 1}
	if o.Group != nil {
		x.Slice, x.Slices = uint16(o.Group.ID), uint16(o.Group.Size)
	}
	if o.Channel() == schema.Port {
		x.Flags |= overPort
	}
	switch o.Name {
	case schema.Nop:
		d.join(x)
	case schema.Barrier:
		x.Kind, x.Blocks = opBarrier, uint32(o.Blocks)
		d.meetings = max(d.meetings, o.Barrier+1)
		d.emit(x, nil)
		d.ops[len(d.ops)-1].IDs = uint32(o.Barrier)
	case schema.Signal, schema.Wait, schema.RlxSignal, schema.RlxWait, schema.Flush:
		d.between(o, x)
	case schema.SemAcquire, schema.SemRelease:
		x.Kind = opAcquire
		if o.Name == schema.SemRelease {
			x.Kind = opRelease
		}
		d.emit(x, numbers(o.Semaphores))
	case schema.Pipeline:
		return d.pipeline(o, x)
	default:
		return d.data(o, x)
	}
	return nil
}

// join emits a join of the block's threads, unless they are together: behind another join, and at the beginning.
func (d *decoder) join(x op) {
	if n := len(d.ops); n > d.first && (d.ops[n-1].Kind != opNop || d.ops[n-1].Flags != x.Flags) {
		d.emit(x, nil)
	}
}

// between are signals and waits of channels.
func (d *decoder) between(o *schema.Op, x op) {
	ids := d.channels(o)
	switch o.Name {
	case schema.Signal, schema.RlxSignal:
		x.Kind = opSignal
	case schema.Flush:
		if o.Channel() != schema.Port {
			return // threads have moved the data of memory channels themselves
		}
		x.Kind = opFlush
		d.flushed(ids)
	default:
		x.Kind = opWait
	}
	if o.Channel() != schema.Port && (o.Name == schema.RlxSignal || o.Name == schema.RlxWait) {
		x.Flags |= relaxed
	}
	if o.Channel() == schema.Port {
		var own []uint32
		if ids, own = d.byPort(ids); len(own) > 0 && x.Kind != opFlush {
			y := x
			y.Flags &^= overPort
			d.emit(y, own)
		}
		if len(ids) == 0 {
			return
		}
	}
	d.emit(x, ids)
}

func (d *decoder) flushed(ids []uint32) {
	d.begun = slices.DeleteFunc(d.begun, func(id uint32) bool { return slices.Contains(ids, id) })
}

// channels are the rank's numbers of an operation's channels.
func (d *decoder) channels(o *schema.Op) []uint32 {
	ids := d.block.ChannelIDs(o.Channel())
	out := make([]uint32, len(o.ChannelIDs))
	for i, id := range o.ChannelIDs {
		out[i] = uint32(ids[id])
	}
	return out
}

func (d *decoder) pipeline(o *schema.Op, x op) error {
	x.Kind, x.Unit, x.Chunks = opPipeline, uint64(o.Iter.Unit), uint32(o.Iter.NumChunks)
	d.emit(x, nil)
	at := len(d.ops)
	if err := d.list(o.Ops); err != nil {
		return err
	}
	d.ops[at-1].Inner = uint32(len(d.ops) - at)
	for i := range d.ops[at:] {
		d.ops[at+i].Flags |= inPipeline
	}
	return nil
}

// data is an operation with operands.
func (d *decoder) data(o *schema.Op, x op) error {
	src, dst := d.operandsOf(o)
	through := d.through(o, &x)
	if o.Channel() != schema.Port && copies(o.Name) {
		d.move(o, x, src, dst, through)
		return nil
	}
	if o.Name.Packets() {
		x.Flags |= ofPackets
	}
	if o.Channel() == schema.Port && d.toItself(d.channels(o)) {
		return d.oneByOne(o, x, src, dst, d.channels(o))
	}
	x.Operands, x.Sources, x.Destinations = uint32(len(d.operands)), uint16(len(src)), uint16(len(dst))
	d.operands = append(append(append(d.operands, src...), dst...), through...)
	if o.Name.Reduces() {
		d.reductions[len(d.ops)] = o
	}
	switch o.Reduce {
	case schema.Min:
		x.Reduction = 1 + uint16(kernel.Min)
	case schema.Max:
		x.Reduction = 1 + uint16(kernel.Max)
	}
	if o.Channel() == schema.Port {
		return d.transfer(o, x, src, d.channels(o))
	}
	switch o.Name {
	case schema.Re, schema.Res, schema.Rre, schema.Rres, schema.GroupReduceStore, schema.GroupReduce:
		x.Kind = opReduce
	case schema.CopyPkt, schema.PutPkt:
		x.Kind = opPack
	case schema.UnpackPkt:
		x.Kind = opUnpack
	case schema.ReadPutPkt, schema.GroupStorePkt:
		x.Kind = opForward
	case schema.ReducePkt, schema.ReduceSendPkt, schema.ReduceCopyPkt, schema.ReduceCSPkt:
		x.Kind = opReducePackets
	default:
		return fmt.Errorf("%w: no such operation", framework.ErrUnsupported)
	}
	d.emit(x, nil)
	return nil
}

// transfer is one by ports.
func (d *decoder) transfer(o *schema.Op, x op, src []operand, ids []uint32) error {
	switch o.Name {
	case schema.ReadPutPkt: // all packets have to be there before the port reads them
		wait := x
		wait.Kind, wait.Flags, wait.Destinations = opAwait, ofPackets, 0
		d.emit(wait, nil)
		d.emit(op{Number: x.Number}, nil)
	case schema.PutPkt:
		for i := range src {
			if src[i].Packet == 0 {
				return errNoPackets
			}
		}
	case schema.Pws, schema.Pwsf:
		x.Flags |= thenSignal
	case schema.Put:
	default:
		return errNotOverPort
	}
	x.Kind = opPut
	d.emit(x, ids)
	d.flushed(ids)
	if o.Name == schema.Pwsf {
		d.emit(op{Kind: opFlush, Flags: overPort, Number: x.Number}, ids)
		return nil
	}
	d.begun = append(d.begun, ids...)
	return nil
}

// operandsOf resolves operands. One of a switch channel becomes one for each rank of its group.
func (d *decoder) operandsOf(o *schema.Op) (src, dst []operand) {
	for i := range o.Src {
		packet := packetSource(o, i)
		for _, x := range d.operand(o, &o.Src[i]) {
			x.Packet = packet
			src = append(src, x)
		}
	}
	for i := range o.Dst {
		packet := packetDestination(o, i)
		for _, x := range d.operand(o, &o.Dst[i]) {
			x.Packet = packet
			dst = append(dst, x)
		}
	}
	if l := o.Load; l != nil {
		c := d.switches(o.ChannelIDs[0])
		for _, rank := range c.Ranks {
			src = append(src, operand{Slot: slotOf(rank, c.Buffer), Index: uint32(l.Offset), Size: uint32(l.Size)})
		}
		dst = append(dst, operand{Slot: slotOf(d.gpu.ID, l.Dst.Buffer), Index: uint32(l.Dst.Index), Size: uint32(l.Dst.Size)})
	}
	return src, dst
}

// through returns the operands of a switch as its window has them: the source, if the operation reduces, and the destination, if it stores to all.
func (d *decoder) through(o *schema.Op, x *op) (out []operand) {
	window := func(id, index, size int, packet uint32, flag uint16) {
		c := d.switches(id)
		g := slices.IndexFunc(d.groups, func(ranks []int) bool { return slices.Equal(ranks, c.Ranks) })
		if g < 0 {
			g = len(d.groups)
			d.groups = append(d.groups, c.Ranks)
		}
		x.Flags |= flag
		out = append(out, operand{Slot: slotOf(len(d.plan.GPUs)+g, c.Buffer), Index: uint32(index), Size: uint32(size), Packet: packet})
	}
	if o.Load != nil {
		window(o.ChannelIDs[0], o.Load.Offset, o.Load.Size, 0, loadsWindow)
	}
	for i := range o.Src {
		if s := &o.Src[i]; s.Kind == schema.Multicast {
			window(s.ID, s.Index, s.Size, packetSource(o, i), loadsWindow)
		}
	}
	for i := range o.Dst {
		if s := &o.Dst[i]; s.Kind == schema.Multicast {
			window(s.ID, s.Index, s.Size, packetDestination(o, i), storesWindow)
		}
	}
	return out
}

// switches is a switch channel of the block, with its ranks in order: all of them reduce in the same one.
func (d *decoder) switches(id int) schema.SwitchChannel {
	c := d.gpu.Switches()[d.block.ChannelIDs(schema.Switch)[id]]
	c.Ranks = slices.Sorted(slices.Values(c.Ranks))
	return c
}

func (d *decoder) operand(o *schema.Op, x *schema.Operand) []operand {
	at := operand{Index: uint32(x.Index), Size: uint32(x.Size)}
	switch x.Kind {
	case schema.Remote:
		b := d.gpu.RemoteBuffers[d.block.RemoteIDs(o.Channel())[x.ID]]
		at.Slot = slotOf(b.Rank, b.Type)
	case schema.Multicast:
		var out []operand
		c := d.switches(x.ID)
		for _, rank := range c.Ranks {
			at.Slot = slotOf(rank, c.Buffer)
			out = append(out, at)
		}
		return out
	default:
		at.Slot = slotOf(d.gpu.ID, x.Buffer)
	}
	return []operand{at}
}

// packetSource is 1 if source i of an operation is packets.
func packetSource(o *schema.Op, i int) uint32 {
	switch o.Name {
	case schema.UnpackPkt, schema.ReadPutPkt, schema.GroupStorePkt:
		return 1
	case schema.PutPkt:
		if o.Channel() == schema.Port && o.Src[i].Buffer == schema.Scratch {
			return 1
		}
	case schema.ReducePkt, schema.ReduceSendPkt, schema.ReduceCopyPkt, schema.ReduceCSPkt:
		return min(1, uint32(i))
	}
	return 0
}

// packetDestination is 1 if destination i is.
func packetDestination(o *schema.Op, i int) uint32 {
	switch o.Name {
	case schema.CopyPkt, schema.PutPkt, schema.ReadPutPkt, schema.GroupStorePkt:
		return 1
	case schema.ReduceSendPkt, schema.ReduceCopyPkt, schema.ReduceCSPkt:
		return min(1, uint32(i))
	}
	return 0
}

func numbers(list []int) []uint32 {
	out := make([]uint32, len(list))
	for i, n := range list {
		out[i] = uint32(n)
	}
	return out
}
