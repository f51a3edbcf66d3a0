package exec

import (
	"github.com/mscclpp-go/mscclpp/plan/schema"
)

// scratchLimit is how much scratch memory a plan gets that works with the same for all messages.
const scratchLimit = 64 << 20

// shape says how the memory is divided that a rank opens to the others: notices of all ranks, counters of memory
// channels, scratch memory, and places for input and output. All ranks know the shape of all.
type shape struct {
	chunk, scratchChunk uint64
	half                uint64 // of scratch memory; 0: it is used whole
	scratch, buffers    uint64 // where they begin
	in, out             []uint64
	bytes               []uint64 // by rank
}

const line = 64 // no two counters share one

func roundUp(n, to uint64) uint64 { return (n + to - 1) / to * to }

// mostBytes is what no device can address.
const mostBytes = 1 << 46

// fitting refuses chunks of a size with which a rank would need more memory than there can be.
func fitting(p *schema.Plan, chunk uint64) error {
	for r := range p.GPUs {
		g := &p.GPUs[r]
		chunks := uint64(g.InputChunks) + uint64(g.OutputChunks)
		if n := uint64(g.ScratchChunks); !p.ReuseResources {
			chunks += 4 * n // packets, and two halves
		} else if n > scratchLimit {
			return invalid("plan %s: scratch memory of %d chunks: expected at most %d", p.Name, n, uint64(scratchLimit))
		}
		if chunks != 0 && chunk > mostBytes/chunks {
			return invalid("plan %s: rank %d needs memory for %d chunks of %d bytes, %d of them scratch memory: expected at most %d bytes in all",
				p.Name, r, chunks, chunk, g.ScratchChunks, uint64(mostBytes))
		}
	}
	return nil
}

// newShape divides memory for chunks of so many bytes. staged says that there are places for input and output.
func newShape(p *schema.Plan, u *use, chunk uint64, staged bool) shape {
	n := len(p.GPUs)
	s := shape{chunk: chunk, scratchChunk: chunk, in: make([]uint64, n), out: make([]uint64, n), bytes: make([]uint64, n)}
	channels, chunks := 0, 0
	for r := range p.GPUs {
		channels = max(channels, len(links(&p.GPUs[r])))
		chunks = max(chunks, p.GPUs[r].ScratchChunks)
	}
	if p.ReuseResources && chunks > 0 {
		limit := uint64(scratchLimit)
		if p.DoubleScratch {
			limit /= 2
		}
		a, k := uint64(p.Alignment), uint64(chunks)
		s.scratchChunk = min(chunk, roundUp((limit+k-1)/k, a))
	}
	room := uint64(chunks) * s.scratchChunk
	if p.Protocol == schema.LL {
		room *= 2
	}
	room = roundUp(room, 256)
	s.scratch = roundUp(uint64(n)*noticeBytes+uint64(channels)*line, 256)
	s.buffers = s.scratch + room
	if p.DoubleScratch {
		s.half = room
		s.buffers += room
	}
	for r := range p.GPUs {
		s.bytes[r] = max(s.buffers, 256)
		if !staged {
			continue
		}
		b := buffersOf(&p.GPUs[r], chunk)
		if u.alias {
			in, out, bytes := overlap(p.Collective, r, b)
			s.in[r], s.out[r], s.bytes[r] = s.buffers+in, s.buffers+out, s.buffers+bytes
		} else {
			s.in[r] = s.buffers
			s.out[r] = s.in[r] + roundUp(b.in, 256)
			s.bytes[r] = s.out[r] + b.out
		}
		s.bytes[r] = max(s.bytes[r], 256)
	}
	return s
}

// counter is where the counter of a rank's memory channel is in its memory.
func (s *shape) counter(ranks, channel int) uint64 {
	return uint64(ranks)*noticeBytes + uint64(channel)*line
}

// opposite returns the number of the memory channel at the other end of channel k of a rank; false: that rank has none.
func opposite(p *schema.Plan, rank, k int) (peer, channel int, ok bool) {
	peers := links(&p.GPUs[rank])
	peer = peers[k]
	turn := 0
	for _, x := range peers[:k] {
		if x == peer {
			turn++
		}
	}
	for i, x := range links(&p.GPUs[peer]) {
		if x != rank {
			continue
		}
		if turn == 0 {
			return peer, i, true
		}
		turn--
	}
	return peer, 0, false
}
