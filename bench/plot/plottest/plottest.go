// Package plottest reads drawings of package plot back, so that tests look at what is drawn
// and not only whether something is.
package plottest

import (
	"encoding/xml"
	"errors"
	"fmt"
	"io"
	"strings"
	"testing"
)

// Chart is one pair of axes.
type Chart struct {
	Title  string
	Series []Series
}

// Series is one curve, named in the legend.
type Series struct {
	Name string
	X    []float64 // of its points on the drawing, from left to right as they were measured
	Y    []float64 // downwards
	Line int       // points that its line joins
}

// Read returns the charts of a drawing, and fails the test where a curve is not drawn from
// left to right: a line back joins what was measured apart.
func Read(t *testing.T, drawing string) []Chart {
	t.Helper()
	r := reader{d: xml.NewDecoder(strings.NewReader(drawing))}
	if err := r.read(); err != nil {
		t.Fatalf("the drawing: %v", err)
	}
	for _, c := range r.charts {
		for _, s := range c.Series {
			for i, x := range s.X[1:] {
				if x <= s.X[i] {
					t.Errorf("%s: the curve of %q goes back from %g to %g", c.Title, s.Name, s.X[i], x)
				}
			}
			if len(s.X) > 1 && s.Line != len(s.X) {
				t.Errorf("%s: the line of %q joins %d of %d points", c.Title, s.Name, s.Line, len(s.X))
			}
		}
	}
	return r.charts
}

// Names are those of the curves of a chart, in the order of the legend.
func (c Chart) Names() []string {
	var names []string
	for _, s := range c.Series {
		names = append(names, s.Name)
	}
	return names
}

type reader struct {
	d      *xml.Decoder
	charts []Chart
	open   Series // its name comes behind its marks
	legend bool   // the next text is that name
}

func (r *reader) read() error {
	for {
		token, err := r.d.Token()
		if errors.Is(err, io.EOF) {
			return nil
		}
		if err != nil {
			return err
		}
		start, ok := token.(xml.StartElement)
		if !ok {
			continue
		}
		if err := r.mark(start); err != nil {
			return err
		}
	}
}

func (r *reader) mark(e xml.StartElement) error {
	switch e.Name.Local {
	case "g":
		r.charts = append(r.charts, Chart{})
	case "circle":
		x, y, err := pair(attr(e, "cx"), attr(e, "cy"))
		r.open.X, r.open.Y = append(r.open.X, x), append(r.open.Y, y)
		return err
	case "polyline":
		r.open.Line = len(strings.Fields(attr(e, "points")))
	case "line":
		r.legend = r.legend || attr(e, "stroke-width") == "2"
	case "text":
		var text string
		if err := r.d.DecodeElement(&text, &e); err != nil {
			return err
		}
		if len(r.charts) == 0 {
			return fmt.Errorf("%q stands outside of every chart", text)
		}
		c := &r.charts[len(r.charts)-1]
		switch {
		case r.legend:
			r.open.Name = text
			c.Series = append(c.Series, r.open)
			r.open, r.legend = Series{}, false
		case c.Title == "":
			c.Title = text
		}
	}
	return nil
}

func attr(e xml.StartElement, name string) string {
	for _, a := range e.Attr {
		if a.Name.Local == name {
			return a.Value
		}
	}
	return ""
}

func pair(a, b string) (x, y float64, err error) {
	_, err = fmt.Sscan(a+" "+b, &x, &y)
	return x, y, err
}
