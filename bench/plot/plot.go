// Package plot draws measurements as an SVG file: curves over two logarithmic
// axes, nothing more. It needs no library, no font and no network, so a benchmark
// on a cluster node can leave a picture behind.
package plot

import (
	"fmt"
	"html"
	"io"
	"math"
	"strings"
)

// Point is one measurement; both values must be above 0 to be drawn.
type Point struct{ X, Y float64 }

// Series is one curve.
type Series struct {
	Name   string
	Points []Point
}

// Chart is one pair of axes.
type Chart struct {
	Title, XLabel, YLabel string
	Series                []Series
	XBase, YBase          float64 // grid lines at powers of it: 2 for sizes, 10 for times; 0 means 10
	XTick, YTick          func(float64) string
}

const (
	width, height            = 560, 400
	left, right, top, bottom = 72, 16, 40, 56
)

// colors are distinguishable without telling red from green.
var colors = [MaxCurves]string{"#0072b2", "#d55e00", "#009e73", "#cc79a7", "#e69f00", "#56b4e9"}

// MaxCurves is how many curves of a chart have a color of their own. Those behind them have
// broken lines.
const MaxCurves = 6

// Write draws the charts next to each other.
func Write(w io.Writer, charts ...Chart) error {
	var b strings.Builder
	fmt.Fprintf(&b, `<svg xmlns="http://www.w3.org/2000/svg" width="%d" height="%d" viewBox="0 0 %[1]d %[2]d" font-family="sans-serif" font-size="11">`+"\n",
		width*len(charts), height)
	b.WriteString(`<rect width="100%" height="100%" fill="white"/>` + "\n")
	for i, c := range charts {
		fmt.Fprintf(&b, `<g transform="translate(%d 0)">`+"\n", i*width)
		c.draw(&b)
		b.WriteString("</g>\n")
	}
	b.WriteString("</svg>\n")
	_, err := io.WriteString(w, b.String())
	return err
}

func (c Chart) draw(b *strings.Builder) {
	x, y := c.axes()
	text(b, width/2, 20, "middle", 14, c.Title)
	text(b, (left+width-right)/2, height-14, "middle", 12, c.XLabel)
	fmt.Fprintf(b, `<text transform="translate(16 %d) rotate(-90)" text-anchor="middle" font-size="12">%s</text>`+"\n",
		(top+height-bottom)/2, html.EscapeString(c.YLabel))
	for _, v := range x.ticks() {
		px := x.at(v)
		fmt.Fprintf(b, `<line x1="%.1f" y1="%d" x2="%.1f" y2="%d" stroke="#ddd"/>`+"\n", px, top, px, height-bottom)
		text(b, px, height-bottom+16, "middle", 11, label(c.XTick, v))
	}
	for _, v := range y.ticks() {
		py := y.at(v)
		fmt.Fprintf(b, `<line x1="%d" y1="%.1f" x2="%d" y2="%.1f" stroke="#ddd"/>`+"\n", left, py, width-right, py)
		text(b, left-6, py+4, "end", 11, label(c.YTick, v))
	}
	fmt.Fprintf(b, `<rect x="%d" y="%d" width="%d" height="%d" fill="none" stroke="#444"/>`+"\n", left, top, width-left-right, height-top-bottom)
	for i, s := range c.Series {
		color, broken := colors[i%MaxCurves], dashes(i/MaxCurves)
		curve(b, s, x, y, color, broken)
		ly := top + 16 + 16*i
		fmt.Fprintf(b, `<line x1="%d" y1="%d" x2="%d" y2="%d" stroke="%s" stroke-width="2"%s/>`+"\n", left+10, ly, left+30, ly, color, broken)
		text(b, left+36, float64(ly+4), "start", 11, s.Name)
	}
}

// dashes is the attribute of the lines of one round through the colors.
func dashes(round int) string {
	if round == 0 {
		return ""
	}
	return fmt.Sprintf(` stroke-dasharray="%d 3"`, max(1, 8-2*round))
}

func curve(b *strings.Builder, s Series, x, y axis, color, broken string) {
	var path []string
	for _, p := range s.Points {
		if !drawable(p) {
			continue
		}
		px, py := x.at(p.X), y.at(p.Y)
		path = append(path, fmt.Sprintf("%.1f,%.1f", px, py))
		fmt.Fprintf(b, `<circle cx="%.1f" cy="%.1f" r="2.5" fill="%s"/>`+"\n", px, py, color)
	}
	if len(path) > 1 {
		fmt.Fprintf(b, `<polyline points="%s" fill="none" stroke="%s" stroke-width="1.5"%s/>`+"\n", strings.Join(path, " "), color, broken)
	}
}

func drawable(p Point) bool {
	return p.X > 0 && p.Y > 0 && !math.IsInf(p.X, 0) && !math.IsInf(p.Y, 0)
}

func text[N int | float64](b *strings.Builder, x N, y float64, anchor string, size int, s string) {
	fmt.Fprintf(b, `<text x="%.1f" y="%.1f" text-anchor="%s" font-size="%d">%s</text>`+"\n", float64(x), y, anchor, size, html.EscapeString(s))
}

func label(f func(float64) string, v float64) string {
	if f != nil {
		return f(v)
	}
	return fmt.Sprintf("%g", v)
}
