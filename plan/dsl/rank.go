package dsl

import "github.com/mscclpp-go/mscclpp/plan/schema"

// ReduceOp is the operation of a reduction.
type ReduceOp = schema.ReduceOp

// The operations of reductions.
const (
	Sum = schema.Sum
	Min = schema.Min
	Max = schema.Max
)

func theOp(ops []ReduceOp) ReduceOp {
	if len(ops) == 0 || ops[0] == "" {
		return Sum
	}
	return ops[0]
}

// Rank does operations on a rank's own buffers.
type Rank struct {
	ID int
	p  *Program
}

// Rank returns a rank of the program.
func (p *Program) Rank(id int) Rank {
	if !p.hasRank(id) {
		p.fail(RuntimeError, "Rank %d is out of bounds. Number of ranks: %d", id, len(p.gpus))
	}
	return Rank{ID: id, p: p}
}

func local(c Chunk) operand { return operand{typ: c.Type, index: c.Index, size: c.Size} }

// Copy copies src to dst.
func (r Rank) Copy(dst, src Chunk, on On) { r.copy(schema.Copy, dst, src, on) }

// UnpackPackets waits for the packets in src and copies their data to dst. src is scratch.
func (r Rank) UnpackPackets(dst, src Chunk, on On) { r.copy(schema.UnpackPkt, dst, src, on) }

// CopyPackets makes packets of src in dst. dst is scratch.
func (r Rank) CopyPackets(dst, src Chunk, on On) { r.copy(schema.CopyPkt, dst, src, on) }

func (r Rank) copy(name schema.OpName, dst, src Chunk, on On) {
	switch {
	case r.p.err != nil || !r.fits(dst, src):
		return
	case name == schema.UnpackPkt && src.Type != ScratchBuffer:
		r.p.fail(RuntimeError, "Source chunk must be of type scratch.")
		return
	case name == schema.CopyPkt && dst.Type != ScratchBuffer:
		r.p.fail(RuntimeError, "Destination chunk must be of type scratch.")
		return
	}
	r.p.each(on, RuntimeError, func(block int, s *share) {
		r.p.add(r.ID, block, &op{kind: kCopy, name: name, src: []operand{local(src)}, dst: []operand{local(dst)}, share: s})
	})
}

func (r Rank) fits(dst, src Chunk) bool {
	switch {
	case dst.Rank != r.ID || src.Rank != r.ID:
		r.p.fail(RuntimeError, "Inconsistent ranks: dst %d, src %d, self %d. They must match.", dst.Rank, src.Rank, r.ID)
	case dst.Size != src.Size:
		r.p.fail(RuntimeError, "Inconsistent chunk sizes: dst %d, src %d. They must match.", dst.Size, src.Size)
	default:
		return true
	}
	return false
}

// Reduce writes src reduced with all of others to dst, which may be src.
func (r Rank) Reduce(dst, src Chunk, others []Chunk, on On, o ...ReduceOp) {
	r.reduce(false, dst, src, others, on, theOp(o))
}

// ReducePackets waits for the packets in others and writes src reduced with their data to dst, which may be src.
// The others are scratch.
func (r Rank) ReducePackets(dst, src Chunk, others []Chunk, on On, o ...ReduceOp) {
	r.reduce(true, dst, src, others, on, theOp(o))
}

func (r Rank) reduce(packets bool, dst, src Chunk, others []Chunk, on On, reduce ReduceOp) {
	if r.p.err != nil || !r.fits(dst, src) {
		return
	}
	if len(others) == 0 {
		r.p.fail(RuntimeError, "Other chunk empty.")
		return
	}
	sources := []operand{local(src)}
	for _, c := range others {
		switch {
		case c.Rank != r.ID:
			r.p.fail(RuntimeError, "Other chunk rank %d does not match current rank %d.", c.Rank, r.ID)
		case c.Size != src.Size:
			r.p.fail(RuntimeError, "Inconsistent chunk sizes: other %d, src %d. They must match.", c.Size, src.Size)
		case packets && c.Type != ScratchBuffer:
			r.p.fail(RuntimeError, "Other chunk must be of type scratch.")
		}
		sources = append(sources, local(c))
	}
	if r.p.err != nil {
		return
	}
	r.p.each(on, RuntimeError, func(block int, s *share) {
		o := &op{kind: kReduce, src: sources, dst: []operand{local(dst)}, reduce: reduce, packets: packets, share: s}
		o.name = reduction(o)
		r.p.add(r.ID, block, o)
	})
}

// Barrier makes thread blocks of the rank wait for each other. With one block it joins the threads of that block.
func (r Rank) Barrier(blocks ...int) {
	if r.p.err != nil {
		return
	}
	if len(blocks) == 0 {
		r.p.fail(RuntimeError, "Barrier requires at least thread block.")
		return
	}
	for _, b := range blocks {
		if !r.p.legal(b) {
			return
		}
	}
	if len(blocks) == 1 {
		r.p.add(r.ID, blocks[0], &op{kind: kNop, name: schema.Nop})
		return
	}
	id := r.p.gpus[r.ID].barrier(blocks)
	for _, b := range blocks {
		r.p.add(r.ID, b, &op{kind: kBarrier, name: schema.Barrier, barrier: id, parties: len(blocks)})
	}
}
