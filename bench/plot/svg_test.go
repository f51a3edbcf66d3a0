package plot

import (
	"fmt"
	"math"
	"regexp"
	"strconv"
	"strings"
	"testing"

	"pgregory.net/rapid"
)

// busy is a chart with everything: several curves, ticks of its own, hostile names.
func busy() Chart {
	c := Chart{Title: `"a" <script>alert(1)</script>`, XLabel: "size & more", YLabel: "µs", XBase: 2, XTick: func(v float64) string { return fmt.Sprintf("%gB", v) }}
	for i := range 8 {
		s := Series{Name: fmt.Sprintf("series <%d>", i)}
		for e := range 15 {
			s.Points = append(s.Points, Point{math.Pow(2, float64(10+e)), (1 + float64(i)) * math.Pow(1.7, float64(e))})
		}
		c.Series = append(c.Series, s)
	}
	return c
}

func write(t *testing.T, charts ...Chart) string {
	t.Helper()
	var b strings.Builder
	if err := Write(&b, charts...); err != nil {
		t.Fatal(err)
	}
	return b.String()
}

func number(t *testing.T, e element, name string) float64 {
	t.Helper()
	v, err := strconv.ParseFloat(e.attrs[name], 64)
	if err != nil {
		t.Fatalf("%s of %s: %v", name, e.name, err)
	}
	return v
}

// A viewer needs the root element with its name space and its size; everything used
// is of the basic part of SVG, and nothing is loaded from elsewhere or executed.
func TestDocumentIsPlainSVG(t *testing.T) {
	text := write(t, busy(), busy())
	all := parse(t, text)
	root := all[0]
	if root.name != "svg" || !strings.HasPrefix(text, `<svg xmlns="http://www.w3.org/2000/svg"`) {
		t.Fatalf("the root is %+v", root)
	}
	if want := fmt.Sprintf("0 0 %d %d", 2*width, height); root.attrs["viewBox"] != want || number(t, root, "width") != 2*width || number(t, root, "height") != height {
		t.Errorf("viewBox %q of %s × %s, want %q", root.attrs["viewBox"], root.attrs["width"], root.attrs["height"], want)
	}
	known := map[string]bool{"svg": true, "g": true, "rect": true, "line": true, "circle": true, "polyline": true, "text": true}
	for _, e := range all {
		if !known[e.name] {
			t.Errorf("element %s", e.name)
		}
		for name := range e.attrs {
			if strings.HasPrefix(name, "on") || name == "href" {
				t.Errorf("attribute %s of %s", name, e.name)
			}
		}
	}
	if open, closed := strings.Count(text, "<g "), strings.Count(text, "</g>"); open != 2 || closed != 2 {
		t.Errorf("%d groups opened and %d closed, want one for each of 2 charts", open, closed)
	}
}

// Every mark lies inside of the axes, and every axis inside of its chart.
func TestEverythingIsInside(t *testing.T) {
	inside := func(e element, name string, low, high float64) {
		if v := number(t, e, name); v < low-0.05 || v > high+0.05 { // printed with one decimal
			t.Errorf("%s of %s is %v, want %v to %v", name, e.name, v, low, high)
		}
	}
	circles := 0
	for _, e := range parse(t, write(t, busy())) {
		switch e.name {
		case "circle":
			circles++
			inside(e, "cx", left, width-right)
			inside(e, "cy", top, height-bottom)
		case "line":
			for _, end := range []string{"1", "2"} {
				inside(e, "x"+end, left, width-right)
				inside(e, "y"+end, top, height-bottom)
			}
		case "text":
			if e.attrs["transform"] == "" { // all but the turned label of the axis
				inside(e, "x", 0, width)
				inside(e, "y", 0, height)
			}
		case "polyline":
			for _, pair := range strings.Fields(e.attrs["points"]) {
				x, y, _ := strings.Cut(pair, ",")
				p := element{name: "point", attrs: map[string]string{"x": x, "y": y}}
				inside(p, "x", left, width-right)
				inside(p, "y", top, height-bottom)
			}
		}
	}
	if circles != 8*15 {
		t.Errorf("%d points, want %d", circles, 8*15)
	}
}

// Larger is to the right and above.
func TestCurvesKeepTheirOrder(t *testing.T) {
	rapid.Check(t, func(rt *rapid.T) {
		values := rapid.SliceOfNDistinct(rapid.Float64Range(1e-3, 1e9), 2, 12, func(v float64) int { return int(1000 * math.Log(v)) }).Draw(rt, "values")
		a := span(values, rapid.SampledFrom([]float64{0, 2, 10}).Draw(rt, "base"), left, width-right)
		for _, v := range values {
			for _, w := range values {
				if (v < w) != (a.at(v) < a.at(w)) {
					rt.Fatalf("%v is at %v, %v at %v", v, a.at(v), w, a.at(w))
				}
			}
			if at := a.at(v); at < left-1e-6 || at > width-right+1e-6 {
				rt.Fatalf("%v is at %v, outside of the axis", v, at)
			}
		}
		ticks := a.ticks()
		for i := 1; i < len(ticks); i++ {
			if ticks[i] <= ticks[i-1] {
				rt.Fatalf("ticks %v", ticks)
			}
		}
		if len(ticks) < 1 || len(ticks) > 10 {
			rt.Fatalf("%d ticks", len(ticks))
		}
	})
}

// A picture of the same numbers is the same file, and its legend distinguishes the curves.
func TestPicturesAreReproducible(t *testing.T) {
	text := write(t, busy())
	if again := write(t, busy()); again != text {
		t.Error("two pictures of the same numbers differ")
	}
	strokes := map[string]bool{}
	for _, m := range regexp.MustCompile(`<polyline [^>]*stroke="([^"]+)"`).FindAllStringSubmatch(text, -1) {
		strokes[m[1]] = true
	}
	if len(strokes) != len(colors) {
		t.Errorf("%d colors for 8 curves, want all %d", len(strokes), len(colors))
	}
	for i := range 8 {
		if want := fmt.Sprintf("series &lt;%d&gt;", i); !strings.Contains(text, want) {
			t.Errorf("the legend lacks %q", want)
		}
	}
}
