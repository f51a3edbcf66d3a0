package dsl

import "github.com/mscclpp-go/mscclpp/plan/schema"

// BufferType is which buffer of a rank.
type BufferType = schema.Buffer

// The buffers of a rank.
const (
	InputBuffer   = schema.Input
	OutputBuffer  = schema.Output
	ScratchBuffer = schema.Scratch
)

// Chunk is a run of chunks of a buffer. Operations take chunks as operands.
type Chunk struct {
	Rank  int
	Type  BufferType
	Index int // the first chunk
	Size  int // how many
}

// Buffer is a buffer of a rank, or the part of the scratch that one call allocated.
type Buffer struct {
	Rank   int
	Type   BufferType
	Offset int // the first chunk
	Size   int // how many
	p      *Program
}

// Input returns the input buffer of a rank.
func (p *Program) Input(rank int) Buffer { return p.Rank(rank).Input() }

// Output returns the output buffer of a rank.
func (p *Program) Output(rank int) Buffer { return p.Rank(rank).Output() }

// Input returns the input buffer of the rank.
func (r Rank) Input() Buffer {
	if !r.p.hasRank(r.ID) {
		return Buffer{Rank: r.ID, Type: InputBuffer, p: r.p}
	}
	return Buffer{Rank: r.ID, Type: InputBuffer, Size: r.p.gpus[r.ID].input, p: r.p}
}

// Output returns the output buffer of the rank.
func (r Rank) Output() Buffer {
	if !r.p.hasRank(r.ID) {
		return Buffer{Rank: r.ID, Type: OutputBuffer, p: r.p}
	}
	return Buffer{Rank: r.ID, Type: OutputBuffer, Size: r.p.gpus[r.ID].output, p: r.p}
}

// Scratch allocates chunks of a rank's scratch.
func (p *Program) Scratch(rank, chunks int) Buffer {
	b := Buffer{Rank: rank, Type: ScratchBuffer, Size: chunks, p: p}
	switch {
	case p.err != nil:
	case !p.hasRank(rank):
		p.fail(RuntimeError, "Rank %d is out of bounds. Number of ranks: %d", rank, len(p.gpus))
	case chunks < 0 || chunks > maxChunks-p.gpus[rank].scratch:
		p.fail(ValueError, "Buffer size must be between 0 and %d chunks (got %d)", maxChunks-p.gpus[rank].scratch, chunks)
	default:
		b.Offset = p.gpus[rank].scratch
		p.gpus[rank].scratch += chunks
	}
	return b
}

// Slice returns the chunks from start up to, not including, stop.
func (b Buffer) Slice(start, stop int) Chunk {
	switch {
	case b.p.err != nil:
	case start < 0 || stop < 0:
		b.p.fail(ValueError, "Buffer slicing does not support negative indices (got start=%d, stop=%d)", start, stop)
	case start > stop:
		b.p.fail(ValueError, "Buffer slice start (%d) must be <= stop (%d)", start, stop)
	case stop > b.Size:
		b.p.fail(RuntimeError, "Index range from %d - %d is out of bounds for buffer %s. Buffer size: %d",
			b.Offset+start, b.Offset+stop, b.Type, b.Offset+b.Size)
	}
	return Chunk{Rank: b.Rank, Type: b.Type, Index: b.Offset + start, Size: stop - start}
}

// At returns chunk i.
func (b Buffer) At(i int) Chunk { return b.Slice(i, i+1) }

// All returns all chunks.
func (b Buffer) All() Chunk { return b.Slice(0, b.Size) }

// View returns a part of a buffer of the rank that begins at a chunk and has a number of them. It stands for a Buffer that
// a front end knows by its numbers alone.
func (r Rank) View(typ BufferType, offset, chunks int) Buffer {
	return Buffer{Rank: r.ID, Type: typ, Offset: offset, Size: chunks, p: r.p}
}
