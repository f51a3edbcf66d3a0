package traces

import (
	"bytes"
	"reflect"
	"strings"
	"testing"

	"github.com/mscclpp-go/mscclpp/framework/observe"
)

// onDevices are the spans of two ranks: call 3, to which rank 1 comes late, and three launches of a graph that has call 5.
func onDevices() *Trace {
	span := func(call uint64, begin, took int64, block uint16) observe.Record {
		return observe.Record{Time: begin, Call: call, Bytes: uint64(took), Event: observe.Span | observe.Total, Block: block, Peer: 10}
	}
	of := [][]observe.Record{
		{span(3, 1000, 9500, 0), span(5, 21_000, 3000, 1|observe.InGraph), span(5, 24_100, 4000, 1|observe.InGraph), span(5, 28_200, 1000, 1|observe.InGraph)},
		{span(3, 9000, 1505, 0), span(5, 21_005, 3000, 0|observe.InGraph), span(5, 26_000, 2105, 0|observe.InGraph)},
	}
	t := &Trace{Job: "j"}
	for rank, list := range of {
		l := &log{info: observe.Info{Job: "j", Rank: rank, Size: 2, Device: "cuda:0"}, states: []observe.State{{Name: "world", Rank: rank, Size: 2, Open: true}}}
		l.events = []*events{
			{writer: "world", records: []observe.Record{
				{Time: 900, Call: 3, Event: observe.Call | observe.Begin, Block: 0, Peer: -1}, {Time: 995, Call: 3, Event: observe.Call | observe.End, Peer: -1},
				{Time: 15_000, Call: 5, Event: observe.Call | observe.Begin, Block: 0, Peer: -1}, {Time: 15_500, Call: 5, Event: observe.Call | observe.End, Peer: -1},
			}},
			{writer: "kernels of world", records: list},
		}
		t.Ranks = append(t.Ranks, l.rank([]observe.Info{l.info}, worlds([]*log{l})))
	}
	t.Finish()
	return t
}

func TestSpansAreJoined(t *testing.T) {
	tr := onDevices()
	want := []Span{
		{Comm: "world", Number: 3, Begin: 1000, End: 10_500, Off: 10, Late: 1, Met: 9000},
		{Comm: "world", Number: 5, Stream: 1, Graph: true, Begin: 21_000, End: 24_000, Off: 10, Late: -1}, // they agree within the error
		{Comm: "world", Number: 5, Stream: 1, Graph: true, Begin: 24_100, End: 28_100, Off: 10, Late: 1, Met: 26_000},
		{Comm: "world", Number: 5, Stream: 1, Graph: true, Begin: 28_200, End: 29_200, Off: 10, Late: -1}, // its peer was not looked at
	}
	if got := tr.Ranks[0].Spans; !reflect.DeepEqual(got, want) {
		t.Errorf("%+v: expected %+v", got, want)
	}
	for _, s := range tr.Ranks[1].Spans {
		if s.Late != -1 {
			t.Errorf("%+v: expected that the last rank waits for none", s)
		}
	}
	s := tr.Tell()
	times := []DeviceTime{
		{Rank: 0, Spans: 4, Launch: 95, Queued: 5, Took: 17_500, Wait: 9900, For: 1, ForTook: 9900, Off: 10},
		{Rank: 1, Spans: 3, Launch: 95, Queued: 8005, Took: 6610, For: -1, Off: 10},
	}
	if !reflect.DeepEqual(s.Devices, times) {
		t.Errorf("%+v: expected %+v", s.Devices, times)
	}
	var text strings.Builder
	s.Print(&text)
	if !strings.Contains(text.String(), "rank 1, 9.9µs") {
		t.Errorf("the story does not say for whom rank 0 waited:\n%s", text.String())
	}
	s.merge(tr.Tell())
	if x := s.Devices[0]; x.Spans != 8 || x.Wait != 19_800 || x.ForTook != 19_800 || x.Off != 10 {
		t.Errorf("twice as much is %+v", x)
	}
}

func TestSpansAreReadAsTheyWereWritten(t *testing.T) {
	want := onDevices()
	want.Ranks[1].Spans[2].Begin = want.Ranks[1].Spans[1].End - 5 // they overlap by what they are off
	want.Finish()
	var b bytes.Buffer
	if err := want.WritePerfetto(&b); err != nil {
		t.Fatal(err)
	}
	got, err := Read(b.Bytes())
	if err != nil {
		t.Fatal(err)
	}
	for i, r := range want.Ranks {
		if g := got.Ranks[i]; !reflect.DeepEqual(g.Spans, r.Spans) || len(g.Moments) != len(r.Moments) || len(g.Calls) != len(r.Calls) {
			t.Errorf("%+v: expected %+v", g, r)
		}
	}
}

// Each arrow has two ends, and does not run back in time. Slices of a track do not overlap.
func TestArrowsOfSpans(t *testing.T) {
	tr := onDevices()
	lates := tr.lates()
	var described []byte
	type ends struct{ from, to int64 }
	flows := map[uint64]*ends{}
	of := func(f uint64) *ends {
		if flows[f] == nil {
			flows[f] = &ends{}
		}
		return flows[f]
	}
	for _, r := range tr.Ranks {
		at := map[uint64]int64{}
		for _, e := range spansOf(r, lates[r.Rank], &tracks{rank: r.Rank, numbers: map[string]int{}, to: &described}) {
			for _, f := range e.flows {
				of(f).from = e.at
			}
			for _, f := range e.flowEnds {
				of(f).to = e.at
			}
			if e.kind != typeInstant && e.at < at[e.track] {
				t.Errorf("rank %d: a slice at %d is behind one at %d", r.Rank, e.at, at[e.track])
			}
			if e.kind != typeInstant {
				at[e.track] = e.at
			}
		}
	}
	if len(flows) != 4 {
		t.Errorf("%d arrows: expected two from calls, and two from the rank that came last", len(flows))
	}
	for f, x := range flows {
		if x.from == 0 || x.to < x.from {
			t.Errorf("arrow %d leads from %d to %d", f, x.from, x.to)
		}
	}
}
