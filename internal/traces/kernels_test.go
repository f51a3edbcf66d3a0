package traces

import (
	"bytes"
	"reflect"
	"strings"
	"testing"

	"github.com/mscclpp-go/mscclpp/framework/observe"
)

// launches are the records of kernels of two ranks: rank 1 comes late, and rank 0 waits for it.
func launches() *Trace {
	record := func(at int64, e observe.Event, bytes uint64, block uint16, peer int32) observe.Record {
		return observe.Record{Time: at, Call: 3, Event: e, Bytes: bytes, Block: block, Peer: peer}
	}
	const none, noBlock = -1, 0xffff
	of := [][]observe.Record{{
		record(100, observe.Kernel|observe.Begin, 0, noBlock, none),
		record(150, observe.Copy|observe.End, 64, noBlock, none),
		record(160, observe.Signal|observe.Instant, 0, 0, 1),
		record(200, observe.Wait|observe.Begin, 0, 0, 1),
		record(900, observe.Wait|observe.End, 0, 0, 1),
		record(1000, observe.Reduce|observe.End, 64, noBlock, none),
		record(50, observe.Copy|observe.Total, 64, noBlock, none),
		record(700, observe.Wait|observe.Total, 1, noBlock, none),
		record(100, observe.Reduce|observe.Total, 64, noBlock, none),
		record(1010, observe.Kernel|observe.End, 0, noBlock, none),
	}, {
		record(700, observe.Kernel|observe.Begin, 0, noBlock, none),
		record(800, observe.Signal|observe.Instant, 0, 0, 0),
		record(810, observe.Executor+8<<2|observe.Begin, 5|2<<32, 3, none),
		record(850, observe.Executor+8<<2|observe.End, 128, 3, none),
		record(950, observe.Signal|observe.Instant, 0, 0, 0), // behind the end of the wait
		record(960, observe.Kernel|observe.End, 0, noBlock, none),
		record(990, observe.Reduce|observe.End, 1, noBlock, none), // its launch was lost
	}}
	t := &Trace{Job: "j"}
	for rank, list := range of {
		l := &log{info: observe.Info{Job: "j", Rank: rank, Size: 2}, states: []observe.State{{Name: "world", Rank: rank, Size: 2, Open: true}}}
		l.events = []*events{
			{writer: "world", records: []observe.Record{
				{Time: 90, Call: 3, Event: observe.Call | observe.Begin, Peer: -1}, {Time: 1100, Call: 3, Event: observe.Call | observe.End, Peer: -1},
			}},
			{writer: "kernels of world", records: list},
		}
		t.Ranks = append(t.Ranks, l.rank([]observe.Info{l.info}, worlds([]*log{l})))
	}
	t.Finish()
	return t
}

func TestKernelsAreJoined(t *testing.T) {
	tr := launches()
	r := tr.Ranks[0]
	if want := (Launch{Comm: "world", Number: 3, Begin: 100, End: 1010, Wait: 700, Copy: 50, Reduce: 100, For: -1}); len(r.Launches) != 1 || r.Launches[0] != want {
		t.Errorf("launches %+v: expected %+v", r.Launches, want)
	}
	piece := Piece{Comm: "world", Number: 3, Peer: -1, Block: -1, Bytes: 64}
	first, wait, last := piece, piece, piece
	first.Name, first.Begin, first.End = "copy", 100, 150
	wait.Name, wait.Begin, wait.End, wait.Peer, wait.Bytes, wait.Sent = "wait", 200, 900, 1, 0, 800
	last.Name, last.Begin, last.End = "reduce", 900, 1000
	if want := []Piece{first, wait, last}; !reflect.DeepEqual(r.Pieces, want) {
		t.Errorf("pieces %+v: expected %+v", r.Pieces, want)
	}
	if p := tr.Ranks[1].Pieces; len(p) != 1 || p[0].Name != "move" || p[0].Block != 3 || p[0].Index != 5 || p[0].Turn != 2 || p[0].Bytes != 128 || p[0].End-p[0].Begin != 40 {
		t.Errorf("pieces %+v: expected operation 5 of block 3 in turn 2, a move of 128 bytes in 40 ns", p)
	}

	s := tr.Tell()
	want := []KernelTime{
		{Rank: 0, Launches: 1, Took: 910, Wait: 700, Copy: 50, Reduce: 100, For: 1, ForTook: 700},
		{Rank: 1, Launches: 1, Took: 260, For: -1},
	}
	if !reflect.DeepEqual(s.Kernels, want) {
		t.Errorf("%+v: expected %+v", s.Kernels, want)
	}
	var text strings.Builder
	s.Print(&text)
	if !strings.Contains(text.String(), "rank 1, 700ns") {
		t.Errorf("the story does not say for whom rank 0 waited:\n%s", text.String())
	}
}

// The parts of a launch are no more than all of it, also where clocks of hosts drift from each other.
func TestSumsAreOfTheClockOfTheTrace(t *testing.T) {
	x := observe.Record{Time: 5000, Call: 3, Bytes: 20000 | 18000<<16 | 1500<<32 | 400<<48, Event: observe.Kernel | observe.Total, Block: 100, Peer: 1}
	for _, drift := range []float64{-1e-3, 0, 1e-3} {
		r := &Rank{}
		b := kernelReader{r, observe.Clock{Offset: 77, Drift: drift, Pings: 8}, worldOf(nil).rank, map[string]*kernelOf{}}
		for _, part := range x.Parts(nil) {
			b.add("kernels of world", &part)
		}
		l := r.Launches[0]
		if all, sum := l.End-l.Begin, l.Wait+l.Copy+l.Reduce+l.Packets; sum > all || sum < all-4 || l.For != 1 {
			t.Errorf("drift %v: %+v: its parts are %d ns, and all of it %d", drift, l, sum, all)
		}
	}
}

func TestTracesOfKernelsAreReadAsTheyWereWritten(t *testing.T) {
	want := launches()
	var b bytes.Buffer
	if err := want.WritePerfetto(&b); err != nil {
		t.Fatal(err)
	}
	got, err := Read(b.Bytes())
	if err != nil {
		t.Fatal(err)
	}
	for i, r := range want.Ranks {
		g := got.Ranks[i]
		if !reflect.DeepEqual(g.Launches, r.Launches) || !reflect.DeepEqual(g.Pieces, r.Pieces) || len(g.Signs) != len(r.Signs) || len(g.Moments) != len(r.Moments) {
			t.Errorf("%+v: expected %+v", g, r)
		}
	}
}

// Each arrow has two ends, also those to the waits of plans.
func TestArrowsOfKernelsHaveTwoEnds(t *testing.T) {
	tr := launches()
	r := tr.Ranks[1]
	r.Pieces = append(r.Pieces, Piece{Comm: "world", Number: 3, Name: "wait", Begin: 870, End: 880, Peer: 0, Block: 4})
	tr.Finish()
	var described []byte
	ends := map[uint64]int{}
	for _, r := range tr.Ranks {
		for _, e := range kernelsOf(r, &tracks{rank: r.Rank, numbers: map[string]int{}, to: &described}) {
			for _, f := range e.flows {
				ends[f]++
			}
			for _, f := range e.flowEnds {
				ends[f] += 2
			}
		}
	}
	if len(ends) != 4 {
		t.Errorf("%d arrows: expected two from calls to launches, and two to waits", len(ends))
	}
	for f, n := range ends {
		if n != 3 {
			t.Errorf("arrow %d has one end, or one of them twice: %d", f, n)
		}
	}
}
