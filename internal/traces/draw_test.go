package traces

import (
	"encoding/xml"
	"fmt"
	"io"
	"strings"
	"testing"
)

// drawn draws a trace, and counts its bars of each color.
func drawn(t *testing.T, trace *Trace) (text string, bars map[string]int) {
	t.Helper()
	var b strings.Builder
	if err := trace.DrawSVG(&b); err != nil {
		t.Fatal(err)
	}
	bars = map[string]int{}
	for d := xml.NewDecoder(strings.NewReader(b.String())); ; {
		token, err := d.Token()
		if err == io.EOF {
			return b.String(), bars
		}
		if err != nil {
			t.Fatal(err)
		}
		if e, ok := token.(xml.StartElement); ok && e.Name.Local == "rect" {
			for _, a := range e.Attr {
				if a.Name.Local == "fill" {
					bars[a.Value]++
				}
			}
		}
	}
}

// A drawing is XML, shows each call and each wait, and says how many calls had no room.
func TestDrawing(t *testing.T) {
	trace := &Trace{Job: "a<b"}
	for rank := range 2 {
		r := &Rank{Rank: rank}
		for n := range 10 {
			at := int64(1000*n + 100*rank)
			r.Calls = append(r.Calls, Call{Comm: "world", Number: uint64(n + 1), Kind: "allreduce", Bytes: 8, Begin: at, Chosen: at, End: int64(1000*n + 500)})
		}
		trace.Ranks = append(trace.Ranks, r)
	}
	c := Channel{Comm: "world", Transport: "tcp", Peer: 1}
	trace.Ranks[0].Puts = []Put{{Channel: c, At: 1000, Bytes: 8, Number: 1, Signal: true}, {Channel: c, At: 2000, Number: 2, Signal: true}} // a signal alone is not drawn
	c.Peer = 0
	trace.Ranks[1].Waits = []Wait{{Channel: c, Begin: 900, End: 1250, Number: 1}, {Channel: c, Begin: 2000, End: 2100, Number: 2}}
	trace.Finish()
	text, bars := drawn(t, trace)
	if strings.Count(text, "<line ") != 1 || !strings.Contains(text, "8 B from rank 0 to rank 1 over tcp, 250ns") {
		t.Errorf("%s: expected one put", text)
	}
	if bars[workColor] != 21 || bars[waitColor] != 11 { // one of each is the key
		t.Errorf("%v: expected 21 calls and 11 waits", bars)
	}
	if !strings.Contains(text, "rank 1, world") || !strings.Contains(text, "100ns waiting") || strings.Contains(text, "not drawn") {
		t.Error(text)
	}
	trace.Ranks[1].Calls = append(trace.Ranks[1].Calls, Call{Comm: "world", Number: 11, Kind: "barrier", Begin: 9800, Chosen: 9800, Late: -1})
	trace.Ranks[1].Spans = []Span{{Comm: "world", Number: 3, Stream: 2, Begin: 2100, End: 2900, Off: 7, Late: 0, Met: 2500}}
	text, bars = drawn(t, trace)
	if bars[openColor] != 2 || !strings.Contains(text, "call 11: barrier of 0 B, has not ended") {
		t.Errorf("%v, %s: expected a call that has not ended", bars, text)
	}
	if bars[workColor] != 22 || bars[waitColor] != 12 || !strings.Contains(text, "rank 1, world, stream 2") || !strings.Contains(text, "call 3 on the device: 800ns, of which 400ns waiting; times within 7ns") {
		t.Errorf("%v, %s: expected a row of a stream, with one span", bars, text)
	}
	trace.Ranks[1].Spans = nil
	trace.Ranks[1].Calls = trace.Ranks[1].Calls[:10]
	r := trace.Ranks[0]
	for n := range 100_000 {
		r.Calls = append(r.Calls, Call{Comm: "world", Kind: "allreduce", Begin: int64(10000 + n), Chosen: int64(10000 + n), End: int64(10001 + n)})
	}
	text, bars = drawn(t, trace)
	if n := bars[workColor]; n > 2100 || !strings.Contains(text, fmt.Sprint(100_020-n+1, " calls too close to others are not drawn")) {
		t.Errorf("%d bars of 100020 calls", n)
	}
	if text, _ = drawn(t, &Trace{Job: "none"}); !strings.Contains(text, "calls of 0 ranks in 0s") {
		t.Error(text)
	}
}
