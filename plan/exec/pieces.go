package exec

import (
	"unsafe"

	"github.com/mscclpp-go/mscclpp/framework/device"
)

// pieceBytes of each operand are done in a pass through the lists, on the host, if operands are larger than wholeBytes: packets are read while they are
// in the cache. A pass ends with a wait for the other ranks, which costs more than it saves where there is less to do.
const (
	pieceBytes = 256 << 10
	wholeBytes = 1 << 20
)

// piece is how much of each chunk a pass does; 0: a launch is one pass. A plan of packets alone, each operand as large as the others, does with
// every part of its operands what it does with the whole, and is right back to back: its passes are launches of small messages.
func (e *Executor) piece(chunk uint64) uint64 {
	p, u := e.plan, &e.use
	if !e.host || !p.DoubleScratch || p.ReuseResources || u.raw || u.apart || !u.packets || uint64(u.span)*chunk <= wholeBytes {
		return 0
	}
	granule := uint64(p.Alignment)
	return max(pieceBytes/uint64(u.span)/granule, 1) * granule
}

// passes launches a call, in passes if it is large. A pass has chunks of its own size; the operands say where its part of them begins.
func (e *Executor) passes(k device.Kernel, l device.Launch, a *arena) error {
	x, chunk := &a.args, a.args.Chunk
	step := e.piece(chunk)
	if step == 0 {
		return k.Launch(l, unsafe.Pointer(x), unsafe.Sizeof(*x))
	}
	operands := unsafe.Slice((*operand)(at(x.Operands)), len(e.tables.operands))
	defer func() {
		for i := range operands {
			if operands[i].Slot%3 != 2 {
				operands[i].Base = 0
			}
		}
	}()
	for begin := uint64(0); begin < chunk; begin += step {
		x.Chunk = min(step, chunk-begin)
		x.ScratchChunk = x.Chunk
		for i := range operands {
			y := &operands[i]
			buffer := x.Input
			switch y.Slot % 3 {
			case 1:
				buffer = x.Output
			case 2:
				continue
			}
			// The kernel adds the place in a buffer of chunks of this size.
			y.Base = uint64(buffer) + uint64(e.use.span)*begin + uint64(y.Index)*(chunk-x.Chunk)
		}
		if err := k.Launch(l, unsafe.Pointer(x), unsafe.Sizeof(*x)); err != nil {
			return err
		}
		if s := a.state(); s.Left != 0 || s.Apart != 0 {
			return nil
		}
	}
	return nil
}

// spanOf is the size of all operands of all ranks, or 0.
func spanOf(all []*tables) (span uint32) {
	for _, t := range all {
		if len(t.operands) == 0 && len(t.blocks) > 0 {
			return 0
		}
		for i := range t.operands {
			x := &t.operands[i]
			if span == 0 {
				span = x.Size
			}
			if x.Size != span || span == 0 || x.Index%span != 0 {
				return 0
			}
		}
	}
	return span
}

// packetsOnly reports whether blocks learn of each other's work by packets alone, or inside of a rank.
func packetsOnly(all []*tables) bool {
	for _, t := range all {
		for i := range t.ops {
			switch t.ops[i].Kind {
			case opSignal, opWait, opFlush, opPut, opPipeline:
				return false
			}
		}
	}
	return true
}
