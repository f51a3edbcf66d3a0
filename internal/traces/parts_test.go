package traces

import (
	"reflect"
	"strings"
	"testing"

	"github.com/mscclpp-go/mscclpp/framework/observe"
)

// Parts of ranks on two hosts become one trace, by the clock of rank 0 and with the ranks of the job.
func TestPartsAreAssembled(t *testing.T) {
	const ahead = 5_000_000_000 // the clock of the second host
	channel := func(peer int) Channel { return Channel{Comm: "half", Transport: "tcp", Peer: peer, Semaphore: 2} }
	parts := []*Part{
		{Host: "a", Comms: map[string]int{"world": 0, "half": 0}, trace: &Trace{Job: "j", Ranks: []*Rank{
			{Rank: 0, Size: 4, Culprit: -1, Puts: []Put{{Channel: channel(1), At: 1000, Bytes: 64, Number: 1, Signal: true}}},
		}}},
		{Host: "b", Clock: observe.Clock{At: ahead, Offset: -ahead, Error: 7, Pings: 8}, Comms: map[string]int{"world": 2}, trace: &Trace{Job: "j", Ranks: []*Rank{
			{Rank: 2, Size: 4, Culprit: -1, Calls: []Call{{Comm: "world", Number: 1, Kind: "allreduce", Begin: ahead + 500, Chosen: ahead + 600, End: ahead + 900}}},
		}}},
		{Host: "b", Comms: map[string]int{"world": 3, "half": 1}, trace: &Trace{Job: "j", Ranks: []*Rank{
			{Rank: 3, Size: 4, Culprit: -1, Waits: []Wait{{Channel: channel(0), Begin: ahead + 900, End: ahead + 2000, Number: 1}},
				Launches: []Launch{{Comm: "half", Number: 1, Begin: ahead + 100, End: ahead + 200, For: 0}}, Pieces: []Piece{{Comm: "half", Number: 1, Name: "wait", Begin: ahead + 110, End: ahead + 150, Peer: 0, Block: -1}},
				Signs: []Sign{{Comm: "half", Number: 1, Name: "signal", At: ahead + 160, Peer: 0}},
				Spans: []Span{{Comm: "half", Number: 1, Begin: ahead + 100, End: ahead + 300, Off: 3}}},
		}}},
	}
	for i, p := range parts {
		p.trace.Finish()
		b, err := p.Encode()
		if err != nil {
			t.Fatal(err)
		}
		got, err := DecodePart(b, 10)
		if err != nil {
			t.Fatal(err)
		}
		if !reflect.DeepEqual(got.trace, p.trace) || !reflect.DeepEqual(got.Clock, p.Clock) || got.Host != p.Host {
			t.Errorf("%+v: expected %+v", got, p)
		}
		parts[i] = got
		if _, err := DecodePart(b[:len(b)/2], 10); err == nil {
			t.Error("half a part is taken for one")
		}
	}
	x := Assemble(parts)
	if c := x.RankOf(2).Calls[0]; c.Begin != 500 || c.Chosen != 600 || c.End != 900 || x.RankOf(2).ClockError != 7 {
		t.Errorf("%+v: expected 500, 600 and 900", c)
	}
	kernels := x.RankOf(3)
	if l, p, s := kernels.Launches[0], kernels.Pieces[0], kernels.Signs[0]; l.Begin != 100 || l.End != 200 || p.Begin != 110 || p.End != 150 || s.At != 160 {
		t.Errorf("%+v, %+v and %+v: expected 100 to 200, 110 to 150, and 160", l, p, s)
	}
	if s := kernels.Spans[0]; s.Begin != 100 || s.End != 300 || s.Off != 3 {
		t.Errorf("%+v: expected 100 to 300", s)
	}
	put, wait := x.RankOf(0).Puts[0], x.RankOf(3).Waits[0]
	if put.Peer != 3 || put.Got != 2000 || wait.Peer != 0 || wait.Begin != 900 || wait.Sent != 1000 || wait.Bytes != 64 {
		t.Errorf("%+v and %+v: expected a put to rank 3 that ends its wait at 2000", put, wait)
	}
}

// A part of more than its rank may have is refused, however small it is when compressed.
func TestPartsAreBounded(t *testing.T) {
	p := &Part{trace: &Trace{Job: "j", Ranks: []*Rank{{Rank: 0, Size: 1, Culprit: -1, Moments: make([]Moment, 50_000)}}}}
	for i := range p.trace.Ranks[0].Moments {
		p.trace.Ranks[0].Moments[i] = Moment{Name: "epoch", At: int64(i), Peer: -1}
	}
	b, err := p.Encode()
	if err != nil {
		t.Fatal(err)
	}
	if _, err := DecodePart(b, 50_000); err != nil {
		t.Error(err)
	}
	if _, err := DecodePart(b, 100); err == nil || !strings.Contains(err.Error(), "at most 100 records") {
		t.Errorf("%v: expected that a part of 50,000 records is refused", err)
	}
}
