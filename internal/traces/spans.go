package traces

import (
	"cmp"
	"fmt"
	"hash/fnv"
	"maps"
	"slices"

	"github.com/mscclpp-go/mscclpp/framework"
	"github.com/mscclpp-go/mscclpp/framework/observe"
)

// Span is a call on a stream of a device, by the clock of the device: from when the stream came to it until the stream was done with it.
type Span struct {
	Comm       string
	Number     uint64 // of the call; in a graph of the one that was captured
	Stream     int    // of the communicator, in the order of their first calls
	Graph      bool   // it is one launch of a graph
	Begin, End int64
	Off        int64 // by how much its times may be wrong, in ns

	// From the spans of the others: which rank came to it last, and when. Late is -1 where the rank itself did, or none is known to
	// have come later.
	Late int
	Met  int64
}

// Waited is how long it waited on the device for the rank that came last.
func (s *Span) Waited() int64 {
	if s.Late < 0 {
		return 0
	}
	return s.Met - s.Begin
}

// span takes a record of one.
func (b *kernelReader) span(comm string, x *observe.Record) {
	s := Span{Comm: comm, Begin: b.clock.To(x.Time), End: b.clock.To(x.Time + int64(x.Bytes)), Late: framework.NoPeer}
	_, s.Number = observe.CallOf(x.Call)
	s.Stream, s.Graph, s.Off = x.Spanned()
	b.to.Spans = append(b.to.Spans, s)
}

// joinSpans finds for each span the rank that came to the same call last. Launches of a graph are the same one where they overlap.
func (t *Trace) joinSpans() {
	type of struct {
		meeting
		rank *Rank
	}
	all, ranks := map[of][]*Span{}, map[meeting][]*Rank{}
	for _, r := range t.Ranks {
		slices.SortStableFunc(r.Spans, func(a, b Span) int { return cmp.Compare(a.Begin, b.Begin) })
		for i := range r.Spans {
			s := &r.Spans[i]
			s.Late, s.Met = framework.NoPeer, 0
			at := meeting{s.Comm, s.Number}
			if all[of{at, r}] == nil {
				ranks[at] = append(ranks[at], r)
			}
			all[of{at, r}] = append(all[of{at, r}], s)
		}
	}
	for _, r := range t.Ranks {
		for i := range r.Spans {
			s := &r.Spans[i]
			at := meeting{s.Comm, s.Number}
			for _, other := range ranks[at] {
				if other == r {
					continue
				}
				x := overlapping(all[of{at, other}], s)
				if x == nil {
					continue
				}
				unsure := s.Off + x.Off + r.ClockError + other.ClockError
				if x.Begin > s.Begin+unsure && x.Begin < s.End && x.Begin > s.Met {
					s.Late, s.Met = other.Rank, x.Begin
				}
			}
		}
	}
}

// overlapping is the span of a list that shares most time with one; nil: none does.
func overlapping(list []*Span, s *Span) (best *Span) {
	n, _ := slices.BinarySearchFunc(list, s.End, func(x *Span, at int64) int { return cmp.Compare(x.Begin, at) })
	most := int64(-1)
	for _, x := range list[max(0, n-2):n] {
		if shared := min(x.End, s.End) - max(x.Begin, s.Begin); shared > most {
			best, most = x, shared
		}
	}
	return best
}

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

// spansOf is a track for each stream of a communicator. An arrow leads from a call to its span, and from the begin on the rank that came
// last to the end of the wait for it.
func spansOf(r *Rank, late map[meeting]map[int64][]lateFor, t *tracks) []event {
	var all []event
	calls := map[meeting]*Call{}
	for i := range r.Calls {
		calls[meetingOf(&r.Calls[i])] = &r.Calls[i]
	}
	until := map[uint64]int64{} // what is measured again and again overlaps by what it is off
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

// DeviceTime is what the calls of a rank took on its device.
type DeviceTime struct {
	Rank    int   `json:"rank"`
	Spans   int   `json:"measured"`
	Launch  int64 `json:"launch_ns"` // of those calls, on the host
	Queued  int64 `json:"queued_ns"` // from their return until the stream came to them
	Took    int64 `json:"took_ns"`
	Wait    int64 `json:"wait_ns"` // until the last rank came to them
	For     int   `json:"waits_for"`
	ForTook int64 `json:"waits_for_ns"`
	Off     int64 `json:"clock_error_ns"` // of any
}

// deviceTime is empty where there are no spans.
func deviceTime(r *Rank) []DeviceTime {
	if len(r.Spans) == 0 {
		return nil
	}
	x := DeviceTime{Rank: r.Rank, For: framework.NoPeer}
	calls := map[meeting]*Call{}
	for i := range r.Calls {
		calls[meetingOf(&r.Calls[i])] = &r.Calls[i]
	}
	waits := map[int]int64{}
	for i := range r.Spans {
		s := &r.Spans[i]
		x.Spans++
		x.Took += s.End - s.Begin
		x.Off = max(x.Off, s.Off)
		if s.Late >= 0 {
			x.Wait += s.Waited()
			waits[s.Late] += s.Waited()
		}
		if c := calls[meeting{s.Comm, s.Number}]; c != nil && !s.Graph && !c.Guess && c.End != 0 {
			x.Launch += c.End - c.Begin
			x.Queued += max(0, s.Begin-c.End)
		}
	}
	for _, peer := range slices.Sorted(maps.Keys(waits)) {
		if waits[peer] > x.ForTook {
			x.For, x.ForTook = peer, waits[peer]
		}
	}
	return []DeviceTime{x}
}
