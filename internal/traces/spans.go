package traces

import (
	"cmp"
	"maps"
	"slices"

	"github.com/mscclpp-go/mscclpp/framework"
)

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

// DeviceTime is the time of the calls of a rank on its device.
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
