package exec

import (
	"slices"

	"github.com/mscclpp-go/mscclpp/plan/schema"
)

// use is how a plan uses buffers of programs: what decides whether it can work on them where they are.
type use struct {
	memory, ports bool    // ranks reach each other through…
	apart         bool    // input or output are reached by other ranks
	reads         [2]bool // input, output
	writes        [2]bool
	named         [2]bool
	covers        bool     // every chunk of every output is written as a whole
	raw           bool     // something else than packets is written to scratch memory
	alias         bool     // input and output are one buffer
	span          uint32   // chunks of each operand, if all have as many and begin at a multiple of that; else 0
	packets       bool     // blocks of several ranks learn of each other by packets alone
	chunks        bool     // a kernel for chunks alone executes it
	mates         [][]bool // ranks of which one reaches input or output of the other
}

// inspect looks at the tables of all ranks.
func inspect(p *schema.Plan) (u use, all []*tables, err error) {
	written := make([]map[uint32]bool, len(p.GPUs))
	u.mates = make([][]bool, len(p.GPUs))
	for r := range p.GPUs {
		written[r], u.mates[r] = map[uint32]bool{}, make([]bool, len(p.GPUs))
	}
	for r := range p.GPUs {
		t, err := decode(p, r)
		if err != nil {
			return u, nil, err
		}
		all = append(all, t)
		if len(p.GPUs[r].Peers(schema.Memory)) > 0 || len(p.GPUs[r].Switches()) > 0 {
			u.memory = true
		}
		u.ports = u.ports || slices.ContainsFunc(p.GPUs[r].Peers(schema.Port), func(peer int) bool { return peer != r })
		for _, b := range p.GPUs[r].RemoteBuffers {
			for _, a := range b.Access {
				u.memory = u.memory || a == schema.Memory
			}
		}
		u.look(t, r, written)
	}
	meets(p, all, u.mates)
	u.covers = u.named[1]
	for r := range p.GPUs {
		u.covers = u.covers && len(written[r]) == p.GPUs[r].OutputChunks
	}
	u.span, u.packets, u.chunks = spanOf(all), packetsOnly(all), chunksOnly(all)
	one := u.named[0] != u.named[1]
	u.alias = collective(p.Collective) && (one || p.InPlace && !u.covers)
	return u, all, nil
}

// look notes what the operations of a rank touch.
func (u *use) look(t *tables, rank int, written []map[uint32]bool) {
	pipe, left := uint32(0), uint32(0)
	for i := range t.ops {
		o := &t.ops[i]
		if o.Kind == opPipeline {
			pipe, left = o.Chunks, o.Inner
			continue
		}
		inPipe := left > 0
		if inPipe {
			left--
		}
		for k := range o.Sources + o.Destinations {
			x := t.operands[o.Operands+uint32(k)]
			owner, buffer := int(x.Slot/3), x.Slot%3
			if buffer == 2 {
				u.raw = u.raw || k >= o.Sources && x.Packet == 0
				continue
			}
			u.named[buffer] = true
			if owner != rank {
				u.mates[rank][owner], u.mates[owner][rank] = true, true
			}
			u.apart = u.apart || owner != rank || o.Kind == opPut
			if k < o.Sources {
				u.reads[buffer] = true
				continue
			}
			u.writes[buffer] = true
			if buffer == 1 && o.Slice == 0 && (!inPipe || pipe >= x.Size || o.Flags&ofPackets != 0) {
				for c := range x.Size {
					written[owner][x.Index+c] = true
				}
			}
		}
	}
}

// collective reports whether a name is that of a collective whose buffers have known places when it works in place.
func collective(name string) bool {
	switch name {
	case "allreduce", "alltoall", "allgather", "reducescatter":
		return true
	}
	return false
}

// buffers are the sizes of a rank's buffers, for chunks of so many bytes.
type buffers struct{ in, out uint64 }

func buffersOf(g *schema.GPU, chunk uint64) buffers {
	return buffers{uint64(g.InputChunks) * chunk, uint64(g.OutputChunks) * chunk}
}

// overlap is where input and output of a rank begin in one buffer of a collective in place, and how long that is.
func overlap(name string, rank int, b buffers) (in, out, bytes uint64) {
	switch name {
	case "allgather":
		return uint64(rank) * b.in, 0, b.out
	case "reducescatter":
		return 0, uint64(rank) * b.out, b.in
	}
	return 0, 0, max(b.in, b.out)
}

// chunkOf is the size of a chunk in calls with buffers of so many bytes.
func chunkOf(p *schema.Plan, rank int, in, out uint64) (uint64, error) {
	g, a := &p.GPUs[rank], uint64(p.Alignment)
	chunk := (1024 + a - 1) / a * a // nothing of the program is touched
	for _, x := range []struct {
		name   string
		bytes  uint64
		chunks int
	}{{"output", out, g.OutputChunks}, {"input", in, g.InputChunks}} {
		if x.chunks == 0 {
			continue
		}
		whole := a * uint64(x.chunks)
		if x.bytes%whole != 0 {
			return 0, &sizeError{plan: p.Name, what: x.name, bytes: x.bytes, whole: whole}
		}
		chunk = x.bytes / uint64(x.chunks)
	}
	if g.InputChunks != 0 && g.OutputChunks != 0 && out/uint64(g.OutputChunks) != in/uint64(g.InputChunks) {
		return 0, invalid("plan %s: an input of %d bytes in %d chunks and an output of %d bytes in %d: expected chunks of one size",
			p.Name, in, g.InputChunks, out, g.OutputChunks)
	}
	size := in
	if p.Collective == "allgather" && g.OutputChunks != 0 || g.InputChunks == 0 {
		size = out
	}
	if g.InputChunks+g.OutputChunks != 0 && (size < p.MinSize || size > p.MaxSize) {
		return 0, invalid("plan %s: a message of %d bytes: expected %d to %d", p.Name, size, p.MinSize, p.MaxSize)
	}
	return chunk, nil
}
