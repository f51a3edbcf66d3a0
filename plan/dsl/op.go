package dsl

import "github.com/mscclpp-go/mscclpp/plan/schema"

// kind groups instructions that fuse and access data alike.
type kind uint8

const (
	kNop kind = iota
	kBarrier
	kSignal
	kWait
	kFlush
	kAcquire
	kRelease
	kCopy
	kGet
	kPut
	kReduce
	kLoadReduce
	kStore
	kLoadReduceStore
	kPipeline
)

// operand is one operand of an operation in its instruction's own words: id is a block's number of a remote buffer or of
// a switch channel, and rank the one of a local operand of a switch operation.
type operand struct {
	typ         schema.Buffer
	index, size int
	id          int
	rank        int
}

// op is one instruction of a thread block.
type op struct {
	kind    kind
	name    schema.OpName
	channel schema.ChannelType // "" for none

	src, dst, packet []operand // local operands; packet is the second, packet destination of a reduction
	rsrc, rdst       []operand // remote operands and those behind a switch
	ids              []int     // channels in the block's numbering, or semaphores
	reduce           ReduceOp
	packets          bool // a reduction of packets
	share            *share
	sync             Sync   // of operations that signal and wait
	foreign          *Error // the mistake if it is not merged

	barrier, parties int
	unit, chunks     int
	body             []*op
}

// syncs reports whether the operation has joins before and after it that Sync switches.
func (o *op) syncs() bool { return o.kind >= kSignal && o.kind <= kRelease }

func (o *op) joins() bool { return o.kind == kNop || o.kind == kBarrier }

// before and after tell whether the block's threads are joined on that side. A loop that ends with a join counts as joined
// before it: plans of MSCCL++ depend on that.
func (o *op) before() bool {
	if o.kind != kPipeline {
		return o.syncs() && o.sync&Before != 0
	}
	if len(o.body) == 0 {
		return false
	}
	first, last := o.body[0], o.body[len(o.body)-1]
	return first.joins() || last.joins() || first.before()
}

func (o *op) after() bool {
	if o.kind != kPipeline {
		return o.syncs() && o.sync&After != 0
	}
	return len(o.body) > 0 && o.body[len(o.body)-1].after()
}

// clone copies what compiling changes.
func (o *op) clone() *op {
	c := *o
	c.body = cloned(o.body)
	return &c
}

func cloned(ops []*op) []*op {
	var out []*op
	for _, o := range ops {
		out = append(out, o.clone())
	}
	return out
}

// reduction names a reduction by what it reads and writes.
func reduction(o *op) schema.OpName {
	switch {
	case len(o.rsrc) > 0 && len(o.rdst) > 0:
		return schema.Rres
	case len(o.rsrc) > 0:
		return schema.Rre
	}
	base := "re"
	if len(o.packet) > 0 {
		base = "rec"
	}
	if len(o.rdst) > 0 {
		base += "s"
	}
	if o.packets {
		base += "pkt"
	}
	return schema.OpName(base)
}
