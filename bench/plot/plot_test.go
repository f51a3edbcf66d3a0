package plot

import (
	"encoding/xml"
	"errors"
	"io"
	"math"
	"strings"
	"testing"
)

type element struct {
	name  string
	attrs map[string]string
	text  string
}

// parse fails on anything that is not well-formed XML.
func parse(t *testing.T, svg string) []element {
	t.Helper()
	var all []element
	d := xml.NewDecoder(strings.NewReader(svg))
	for {
		token, err := d.Token()
		if errors.Is(err, io.EOF) {
			return all
		}
		if err != nil {
			t.Fatalf("%v in\n%s", err, svg)
		}
		switch token := token.(type) {
		case xml.StartElement:
			e := element{name: token.Name.Local, attrs: map[string]string{}}
			for _, a := range token.Attr {
				e.attrs[a.Name.Local] = a.Value
			}
			all = append(all, e)
		case xml.CharData:
			if len(all) > 0 {
				all[len(all)-1].text += string(token)
			}
		}
	}
}

func draw(t *testing.T, charts ...Chart) []element {
	t.Helper()
	var b strings.Builder
	if err := Write(&b, charts...); err != nil {
		t.Fatal(err)
	}
	return parse(t, b.String())
}

func texts(all []element) string {
	var s []string
	for _, e := range all {
		if e.name == "text" {
			s = append(s, strings.TrimSpace(e.text))
		}
	}
	return strings.Join(s, "|")
}

func TestChartIsCompleteAndEscaped(t *testing.T) {
	all := draw(t, Chart{
		Title: "a <b> & c", XLabel: "bytes", YLabel: "time (µs)", XBase: 2,
		Series: []Series{{"ours", []Point{{1024, 1}, {4096, 10}, {16384, 100}}}, {"theirs", []Point{{1024, 2}}}},
	}, Chart{Title: "second"})
	got := texts(all)
	for _, want := range []string{"a <b> & c", "bytes", "time (µs)", "ours", "theirs", "second", "1024", "16384", "100"} {
		if !strings.Contains("|"+got+"|", "|"+want+"|") {
			t.Errorf("no text %q among %s", want, got)
		}
	}
	count := map[string]int{}
	for _, e := range all {
		count[e.name]++
	}
	if count["circle"] != 4 || count["polyline"] != 1 {
		t.Errorf("%d circles and %d curves, want 4 and 1: a single point has no curve", count["circle"], count["polyline"])
	}
}

func TestEqualRatiosAreEqualDistances(t *testing.T) {
	a := span([]float64{1, 10000}, 10, 0, 400)
	for i, v := range []float64{1, 10, 100, 1000, 10000} {
		if got, want := a.at(v), float64(100*i); math.Abs(got-want) > 1e-6 {
			t.Errorf("%v is at %v, want %v", v, got, want)
		}
	}
	if down := span([]float64{1, 100}, 10, 300, 100); down.at(100) != 100 || down.at(1) != 300 {
		t.Error("an axis that grows upward does not")
	}
}

func TestSpanRoundsOut(t *testing.T) {
	for _, c := range []struct {
		values   []float64
		base     float64
		low, top int
	}{
		{[]float64{1024, 1 << 24}, 2, 10, 24},
		{[]float64{1000}, 10, 3, 4},
		{[]float64{0.44, 4344}, 10, -1, 4},
		{nil, 10, 0, 1},
		{[]float64{5}, 0, 0, 1},
	} {
		if a := span(c.values, c.base, 0, 1); a.low != c.low || a.top != c.top {
			t.Errorf("span(%v) = %d..%d, want %d..%d", c.values, a.low, a.top, c.low, c.top)
		}
	}
	if n := len(span([]float64{1, 1 << 40}, 2, 0, 1).ticks()); n > 10 {
		t.Errorf("%d labels on one axis", n)
	}
}

func TestImpossiblePointsAreLeftOut(t *testing.T) {
	all := draw(t, Chart{Series: []Series{{"x", []Point{{0, 1}, {1, 0}, {-1, 1}, {math.NaN(), 1}, {1, math.Inf(1)}, {8, 8}}}}})
	n := 0
	for _, e := range all {
		for key, v := range e.attrs {
			if strings.Contains(v, "NaN") || strings.Contains(v, "Inf") {
				t.Errorf("%s of %s is %s", key, e.name, v)
			}
		}
		if e.name == "circle" {
			n++
		}
	}
	if n != 1 {
		t.Errorf("%d points drawn, want 1", n)
	}
}

type broken struct{}

func (broken) Write([]byte) (int, error) { return 0, errors.New("disk full") }

func TestWriteErrorsSurface(t *testing.T) {
	if err := Write(broken{}, Chart{}); err == nil {
		t.Error("a failed write is not reported")
	}
}
