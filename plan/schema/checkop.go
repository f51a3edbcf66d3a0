package schema

import (
	"fmt"
	"math/bits"
)

func (c *checker) ops(path string, ops []Op, inner bool) error {
	for i := range ops {
		if err := c.op(path, i, &ops[i], inner); err != nil {
			return err
		}
	}
	return nil
}

// opChecker is a checker at an operation: the i-th one of the list with a path. Texts are made for errors alone: plans have a hundred
// thousand operations.
type opChecker struct {
	*checker
	list string
	i    int
	o    *Op
}

func (c *opChecker) path() string { return fmt.Sprintf("%s[%d]", c.list, c.i) }

// field is a field of an operation, which begins with a dot or is empty, or an element of it.
type field struct {
	name    string
	element int // -1: the field itself
}

func whole(name string) field { return field{name, -1} }

func (f field) String() string {
	if f.element < 0 {
		return f.name
	}
	return fmt.Sprintf("%s[%d]", f.name, f.element)
}

// fail returns an error about a field of the operation.
func (c *opChecker) fail(name, format string, args ...any) error {
	return c.failAt(whole(name), format, args...)
}

func (c *opChecker) failAt(f field, format string, args ...any) error {
	return wrong(c.path()+f.String(), "%s, operation %d (%s): %s", c.place(), c.i, c.o.Name, fmt.Sprintf(format, args...))
}

func (c *checker) op(list string, i int, o *Op, inner bool) error {
	x := &opChecker{c, list, i, o}
	if err := x.surplus(); err != nil {
		return err
	}
	switch {
	case o.Name == Nop:
		return nil
	case o.Name == Barrier:
		if o.Barrier < 0 || o.Blocks < 1 {
			return x.fail("", "barrier %d for %d blocks", o.Barrier, o.Blocks)
		}
		return nil
	case o.Name == SemAcquire || o.Name == SemRelease:
		return x.semaphores()
	case o.Name.signals():
		return x.signal()
	case o.Name == Pipeline:
		return x.pipeline(inner)
	case o.Name.exists():
		return x.data()
	}
	return x.fail(".name", "unknown operation")
}

// surplus refuses fields that the operation does not have. Files that have them are refused before.
func (c *opChecker) surplus() error {
	need, may := c.o.fields()
	if more := c.o.set() &^ (need | may); more != 0 && c.o.Name.exists() {
		return c.fail("", "it has no %q", opKeys[bits.TrailingZeros64(more)])
	}
	return nil
}

func (c *opChecker) semaphores() error {
	if len(c.o.Semaphores) == 0 {
		return c.fail("", "no semaphore")
	}
	for k, id := range c.o.Semaphores {
		if n := len(c.gpu.Semaphores); id < 0 || id >= n {
			return c.failAt(field{".semaphore_ids", k}, "semaphore %d of %d of the rank", id, n)
		}
	}
	return nil
}

func (c *opChecker) signal() error {
	t := c.o.Channel()
	if t != Memory && t != Port || t == Memory && c.o.Name == Flush {
		return c.fail(".channel_type", "over a channel of type %s", t)
	}
	if len(c.o.ChannelIDs) == 0 {
		return c.fail("", "no channel")
	}
	return c.channelIDs()
}

// channelIDs checks the channels against the block's list.
func (c *opChecker) channelIDs() error {
	n := len(c.channels[c.o.Channel()])
	for k, id := range c.o.ChannelIDs {
		if id < 0 || id >= n {
			return c.failAt(field{".channel_ids", k}, "%s channel %d of %d of the block", c.o.Channel(), id, n)
		}
	}
	return nil
}

func (c *opChecker) pipeline(inner bool) error {
	switch {
	case inner:
		return c.fail("", "a pipeline stands within a pipeline")
	case c.o.Iter == nil || c.o.Iter.Unit < 1 || c.o.Iter.NumChunks < 0:
		return c.fail(".iter_context", "a pipeline needs a unit of at least one byte, and a number of chunks")
	}
	return c.ops(c.path()+".ops", c.o.Ops, true)
}

// data checks an operation with operands.
func (c *opChecker) data() error {
	o := c.o
	if o.Name.Reduces() && o.Reduce != Sum && o.Reduce != Min && o.Reduce != Max {
		return c.fail(".reduce_op", "unknown reduction %q", o.Reduce)
	}
	if g := o.Group; g != nil && (g.Size < 1 || g.ID < 0 || g.ID >= g.Size) {
		return c.fail(".tbg_info", "block %d of a group of %d", g.ID, g.Size)
	}
	if o.Name.Packets() && c.plan.Protocol != LL {
		return c.fail(".name", "packets in a plan of protocol %s", c.plan.Protocol)
	}
	if o.Name == GroupReduce {
		return c.groupLoad()
	}
	if err := c.shape(); err != nil {
		return err
	}
	if err := c.operands(".src_buff", o.Src); err != nil {
		return err
	}
	if err := c.operands(".dst_buff", o.Dst); err != nil {
		return err
	}
	return c.channelIDs()
}

func (c *opChecker) operands(name string, list []Operand) error {
	for k := range list {
		if err := c.operand(field{name, k}, &list[k]); err != nil {
			return err
		}
	}
	return nil
}

// operand checks that a range of chunks exists, and that it is as long as the others of the operation.
func (c *opChecker) operand(at field, x *Operand) error {
	if first := c.o.Src[0].Size; x.Size != first {
		return c.failAt(at, "%d chunks, and the first source has %d", x.Size, first)
	}
	if x.Index < 0 || x.Size < 0 {
		return c.failAt(at, "chunks %d and %d more", x.Index, x.Size)
	}
	switch x.Kind {
	case Local:
		if !known(x.Buffer) {
			return c.failAt(at, "unknown type of buffer %q", x.Buffer)
		}
		return c.within(at, c.gpu, x.Buffer, x.Index, x.Size)
	case Remote:
		ids := c.remotes[c.o.Channel()]
		if x.ID < 0 || x.ID >= len(ids) {
			return c.failAt(at, "remote buffer %d of %d of the block for %s channels", x.ID, len(ids), c.o.Channel())
		}
		b := c.gpu.RemoteBuffers[ids[x.ID]]
		return c.within(at, &c.plan.GPUs[b.Rank], b.Type, x.Index, x.Size)
	}
	ids := c.channels[Switch]
	if x.ID < 0 || x.ID >= len(ids) {
		return c.failAt(at, "switch channel %d of %d of the block", x.ID, len(ids))
	}
	return c.withinGroup(at, ids[x.ID], x.Index, x.Size)
}

func (c *opChecker) within(at field, g *GPU, b Buffer, index, size int) error {
	if n := g.Chunks(b); index > n || size > n-index {
		return c.failAt(at, "chunks %d to %d of buffer %s of rank %d, which has %d", index, index+size-1, b, g.ID, n)
	}
	return nil
}

func (c *opChecker) withinGroup(at field, id, index, size int) error {
	x := c.switches[id]
	for _, r := range x.Ranks {
		if err := c.within(at, &c.plan.GPUs[r], x.Buffer, index, size); err != nil {
			return err
		}
	}
	return nil
}

// groupLoad checks glre, whose operands have a form of their own.
func (c *opChecker) groupLoad() error {
	l, ids := c.o.Load, c.channels[Switch]
	switch {
	case l == nil || c.o.Channel() != Switch || len(c.o.ChannelIDs) != 1:
		return c.fail("", "expected one switch channel, a range of its buffer, and a local chunk")
	case l.Dst.Rank != c.gpu.ID:
		return c.fail(".dst_chunk.rank", "a destination of rank %d", l.Dst.Rank)
	case l.Size != l.Dst.Size:
		return c.fail(".dst_chunk.size", "%d chunks, and the source has %d", l.Dst.Size, l.Size)
	case l.Offset < 0 || l.Size < 0 || l.Dst.Index < 0 || !known(l.Dst.Buffer):
		return c.fail("", "chunks %d and %d more, to %q %d", l.Offset, l.Size, l.Dst.Buffer, l.Dst.Index)
	}
	if err := c.channelIDs(); err != nil {
		return err
	}
	id := ids[c.o.ChannelIDs[0]]
	if c.switches[id].Buffer != l.Buffer {
		return c.fail(".buffer_type", "buffer %s over a switch channel of buffer %s", l.Buffer, c.switches[id].Buffer)
	}
	if err := c.withinGroup(whole(""), id, l.Offset, l.Size); err != nil {
		return err
	}
	return c.within(whole(".dst_chunk"), c.gpu, l.Dst.Buffer, l.Dst.Index, l.Dst.Size)
}
