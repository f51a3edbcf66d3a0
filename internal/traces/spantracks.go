package traces

import (
	"fmt"
	"hash/fnv"
)

// spanFlow joins a call and its span, or the span of the rank that came last and one that waited for it.
func spanFlow(kind, comm string, number uint64, rank int, at int64) uint64 {
	h := fnv.New64a()
	fmt.Fprint(h, "span\x00", kind, "\x00", comm, "\x00", number, "\x00", rank, "\x00", at)
	return h.Sum64() | 1
}

// lateFor is a rank that waited, and since when.
type lateFor struct {
	rank  int
	since int64
}

// lates lists for each span that came last the ranks that waited for it.
func (t *Trace) lates() map[int]map[meeting]map[int64][]lateFor {
	all := map[int]map[meeting]map[int64][]lateFor{}
	for _, r := range t.Ranks {
		for i := range r.Spans {
			s := &r.Spans[i]
			if s.Late < 0 {
				continue
			}
			if all[s.Late] == nil {
				all[s.Late] = map[meeting]map[int64][]lateFor{}
			}
			at := meeting{s.Comm, s.Number}
			if all[s.Late][at] == nil {
				all[s.Late][at] = map[int64][]lateFor{}
			}
			all[s.Late][at][s.Met] = append(all[s.Late][at][s.Met], lateFor{r.Rank, s.Begin})
		}
	}
	return all
}

// spansOf makes a track for each stream of a communicator. An arrow leads from a call to its span, and from the begin on the rank that came
// last to the end of the wait for it.
func spansOf(r *Rank, late map[meeting]map[int64][]lateFor, t *tracks) []event {
	var all []event
	calls := map[meeting]*Call{}
	for i := range r.Calls {
		calls[meetingOf(&r.Calls[i])] = &r.Calls[i]
	}
	until := map[uint64]int64{} // spans may overlap by their errors
	for i := range r.Spans {
		s := &r.Spans[i]
		at := meeting{s.Comm, s.Number}
		id := t.of("stream", fmt.Sprintf("%s on %s, stream %d", s.Comm, r.Device, s.Stream))
		begin := max(s.Begin, until[id])
		end := max(s.End, begin)
		until[id] = end
		name := "call"
		x := event{at: begin, kind: typeBegin, track: id, category: "device"}
		if c := calls[at]; c != nil && !c.Guess {
			name = c.Kind
			if !s.Graph {
				flow, from := spanFlow("call", s.Comm, s.Number, r.Rank, s.Begin), min(c.Chosen, begin)
				x.flowEnds = []uint64{flow}
				all = append(all, event{at: from, kind: typeInstant, track: t.of("calls", c.Comm), name: "launch", category: "derived", flows: []uint64{flow}})
			}
		}
		x.name = name
		x.notes = inCall(s.Comm, s.Number, note{name: "stream", number: int64(s.Stream)}, note{name: "graph", number: truth(s.Graph)},
			note{name: "clock error ns", number: s.Off}, note{name: "begin ns", number: s.Begin}, note{name: "end ns", number: s.End})
		all = append(all, x)
		if s.Late >= 0 && s.Met > begin && s.Met < end {
			all = append(all, event{at: begin, kind: typeBegin, track: id, name: fmt.Sprintf("wait for rank %d", s.Late), category: "derived"},
				event{at: s.Met, kind: typeEnd, track: id})
		}
		if s.Late >= 0 {
			all = append(all, event{at: s.Met, kind: typeInstant, track: id, name: "met", category: "derived", flowEnds: []uint64{spanFlow("met", s.Comm, s.Number, r.Rank, s.Begin)}})
		}
		all = append(all, event{at: end, kind: typeEnd, track: id})
		for _, w := range late[at][s.Begin] {
			all = append(all, event{at: s.Begin, kind: typeInstant, track: id, name: "came", category: "derived", flows: []uint64{spanFlow("met", s.Comm, s.Number, w.rank, w.since)}})
		}
	}
	return all
}
