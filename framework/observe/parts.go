package observe

import "github.com/mscclpp-go/mscclpp/framework"

// The bits of a call of one record: Block has the collective and the number of its algorithm, and Peer how long it took until that was
// chosen, and in all, in ns.
const (
	chosenBits = 12
	tookBits   = 20
	kindBits   = 8
)

// called writes the call of a board. Most take one record: a writer and a reader take as long for that as a call of 1 KiB on the host.
func (w *Writer) called(s *board, call uint64, chosen, end int64) {
	at := s.at
	if before, took := uint64(chosen-at), uint64(end-at); before < 1<<chosenBits && took < 1<<tookBits && s.kind < 1<<kindBits {
		w.write(at, Call|Total, call, s.bytes, uint16(s.kind|s.algorithm<<kindBits), int32(uint32(before|took<<chosenBits)))
		return
	}
	w.write(at, Call|Begin, call, s.bytes, uint16(s.kind), framework.NoPeer)
	w.write(chosen, Chosen|Instant, call, s.bytes, uint16(s.algorithm), framework.NoPeer)
	w.write(end, Call|End, call, s.bytes, uint16(s.kind), framework.NoPeer)
}

const _ = uint(1<<(16-kindBits) - maxNames)

// Parts appends the records that one stands for: a call that took less than a millisecond, or a short launch of a kernel, is one record.
// Others stand for themselves.
func (x *Record) Parts(to []Record) []Record {
	part := func(at int64, e Event, bytes uint64, block uint16, peer int32) {
		to = append(to, Record{Time: at, Call: x.Call, Bytes: bytes, Event: e, Block: block, Peer: peer})
	}
	switch x.Event {
	case Call | Total:
		kind, name, times := x.Block&(1<<kindBits-1), x.Block>>kindBits, int64(uint32(x.Peer))
		part(x.Time, Call|Begin, x.Bytes, kind, framework.NoPeer)
		part(x.Time+times&(1<<chosenBits-1), Chosen|Instant, x.Bytes, name, framework.NoPeer)
		part(x.Time+times>>chosenBits, Call|End, x.Bytes, kind, framework.NoPeer)
	case Kernel | Total:
		part(x.Time, Kernel|Begin, 0, 0, framework.NoPeer)
		for i, e := range []Event{Wait, Copy, Reduce} {
			took := int64(uint16(x.Bytes >> (16 + 16*i)))
			peer := int32(framework.NoPeer)
			if e == Wait {
				peer = x.Peer
			}
			if took != 0 {
				part(took, e|Total, 0, 0, peer)
			}
		}
		if x.Block != 0 {
			part(int64(x.Block), Packets|Total, 0, 0, framework.NoPeer)
		}
		part(x.Time+int64(uint16(x.Bytes)), Kernel|End, 0, 0, framework.NoPeer)
	default:
		to = append(to, *x)
	}
	return to
}
