package traces

import (
	"fmt"
	"hash/fnv"
)

// signFlow joins a sign of a kernel with a wait that it ended.
func signFlow(comm string, from, to int, at, end int64) uint64 {
	h := fnv.New64a()
	fmt.Fprint(h, "kernel\x00", comm, "\x00", from, "\x00", to, "\x00", at, "\x00", end)
	return h.Sum64() | 1
}

// launched joins a call with its launch.
func launched(comm string, rank int, number uint64, at int64) uint64 {
	h := fnv.New64a()
	fmt.Fprint(h, "launch\x00", comm, "\x00", rank, "\x00", number, "\x00", at)
	return h.Sum64() | 1
}

func inCall(comm string, number uint64, more ...note) []note {
	return append([]note{{name: "communicator", text: comm}, {name: "call", number: int64(number)}}, more...)
}

// kernelsOf is a track for the launches of each communicator, with what they do, and one for each block of a plan. An arrow leads from a
// call to its launch, and from what a rank has sent to the end of a peer's wait.
func kernelsOf(r *Rank, t *tracks) []event {
	var all []event
	calls := map[meeting]*Call{}
	for i := range r.Calls {
		calls[meetingOf(&r.Calls[i])] = &r.Calls[i]
	}
	slice := func(id uint64, name, category string, begin, end int64, notes []note) {
		all = append(all, event{at: begin, kind: typeBegin, track: id, name: name, category: category, notes: notes},
			event{at: max(begin, end), kind: typeEnd, track: id})
	}
	until := map[uint64]int64{} // pieces of one track do not overlap
	n := 0
	pieces := func(before int64) {
		for ; n < len(r.Pieces) && r.Pieces[n].Begin < before; n++ {
			p := &r.Pieces[n]
			id, name := t.of("kernels", kernelWriter+p.Comm), p.Name
			if p.Block >= 0 {
				id = t.of("block", fmt.Sprintf("%s, block %d", p.Comm, p.Block))
			}
			if name == "wait" && p.Peer >= 0 {
				name = fmt.Sprintf("wait for rank %d", p.Peer)
			}
			begin, end := max(p.Begin, until[id]), max(p.End, until[id])
			until[id] = end
			notes := inCall(p.Comm, p.Number, note{name: "piece", text: p.Name}, note{name: "bytes", number: int64(p.Bytes)}, note{name: "peer", number: int64(p.Peer)},
				note{name: "block", number: int64(p.Block)}, note{name: "index", number: int64(p.Index)}, note{name: "turn", number: int64(p.Turn)})
			slice(id, name, "piece", begin, end, notes)
			if p.Sent != 0 {
				all = append(all, event{at: end, kind: typeInstant, track: id, name: "got", category: "derived", flowEnds: []uint64{signFlow(p.Comm, p.Peer, r.Rank, p.Sent, p.End)}})
			}
		}
	}
	for i := range r.Launches {
		l := &r.Launches[i]
		pieces(l.Begin)
		id := t.of("kernels", kernelWriter+l.Comm)
		l.Begin = max(l.Begin, until[id])
		l.End = max(l.End, l.Begin)
		begin := event{at: l.Begin, kind: typeBegin, track: id, name: "kernel", category: "kernel", notes: inCall(l.Comm, l.Number,
			note{name: "wait ns", number: l.Wait}, note{name: "copy ns", number: l.Copy}, note{name: "reduce ns", number: l.Reduce}, note{name: "packets ns", number: l.Packets}, note{name: "waited for", number: int64(l.For) + 1})}
		if c := calls[meeting{l.Comm, l.Number}]; c != nil && c.Begin <= l.Begin {
			flow := launched(l.Comm, r.Rank, l.Number, l.Begin)
			begin.flowEnds = []uint64{flow}
			all = append(all, event{at: l.Begin, kind: typeInstant, track: t.of("calls", c.Comm), name: "launch", category: "derived", flows: []uint64{flow}})
		}
		all = append(all, begin)
		pieces(l.End)
		end := max(l.End, until[id])
		until[id] = end
		all = append(all, event{at: end, kind: typeEnd, track: id})
	}
	pieces(1 << 62)
	for i := range r.Signs {
		s := &r.Signs[i]
		e := event{at: s.At, kind: typeInstant, track: t.of("signs", "kernels of "+s.Comm+" send"), name: s.Name, category: "sign", notes: inCall(s.Comm, s.Number,
			note{name: "bytes", number: int64(s.Bytes)}, note{name: "peer", number: int64(s.Peer)})}
		for _, end := range s.ends {
			e.flows = append(e.flows, signFlow(s.Comm, r.Rank, s.Peer, s.At, end))
		}
		all = append(all, e)
	}
	return all
}
