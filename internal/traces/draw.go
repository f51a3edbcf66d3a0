package traces

import (
	"bufio"
	"fmt"
	"html"
	"io"
	"math"
)

// Sizes of a drawing, in units that a browser takes for pixels.
const (
	drawLeft  = 150.0
	drawWidth = 1000.0
	drawTop   = 60.0
	drawRow   = 24.0
	drawLeast = 0.5 // between the beginnings of two calls that are drawn
)

// drawing is the state of DrawSVG.
type drawing struct {
	w         *bufio.Writer
	from, per float64 // time at the left, and units a nanosecond
	left      int     // calls for which there was no room
}

// row is the calls of a rank in one communicator.
type row struct {
	label string
	rank  int
	calls []*Call
}

// DrawSVG draws the calls of all ranks over time: the part in which a rank waited for the one that began last, and the rest.
func (t *Trace) DrawSVG(out io.Writer) error {
	var rows []row
	from, to := int64(math.MaxInt64), int64(math.MinInt64)
	for _, r := range t.Ranks {
		mine := map[string]int{}
		for i := range r.Calls {
			c := &r.Calls[i]
			if c.Guess || c.End == 0 {
				continue
			}
			n, known := mine[c.Comm]
			if !known {
				n = len(rows)
				mine[c.Comm] = n
				rows = append(rows, row{rank: r.Rank, label: fmt.Sprintf("rank %d, %s", r.Rank, c.Comm)})
			}
			rows[n].calls = append(rows[n].calls, c)
			from, to = min(from, c.Begin), max(to, c.End)
		}
	}
	if len(rows) == 0 {
		from, to = 0, 0
	}
	d := &drawing{w: bufio.NewWriter(out), from: float64(from), per: drawWidth / math.Max(1, float64(to-from))}
	height := drawTop + drawRow*float64(len(rows)) + 60
	fmt.Fprintf(d.w, "<svg xmlns=\"http://www.w3.org/2000/svg\" viewBox=\"0 0 %g %g\" font-family=\"sans-serif\" font-size=\"12\">\n", drawLeft+drawWidth+20, height)
	fmt.Fprintf(d.w, "<rect width=\"100%%\" height=\"100%%\" fill=\"white\"/>\n")
	d.text(10, 20, fmt.Sprintf("job %s: calls of %s in %s", t.Job, Counted(len(t.Ranks), "rank"), Took(to-from)))
	d.bar(10, 30, 12, 12, waitColor, "")
	d.text(28, 41, "waiting for the rank that began last")
	d.bar(260, 30, 12, 12, workColor, "")
	d.text(278, 41, "the rest of the call")
	d.text(420, 41, "— from a put over a network to the end of the wait for it")
	for i := range rows {
		d.row(&rows[i], drawTop+drawRow*float64(i))
	}
	d.puts(t, rows)
	bottom := drawTop + drawRow*float64(len(rows)) + 16
	d.text(drawLeft, bottom, "0")
	d.text(drawLeft+drawWidth-50, bottom, Took(to-from))
	if d.left > 0 {
		d.text(10, bottom+24, fmt.Sprintf("%s too close to others are not drawn", Counted(d.left, "call")))
	}
	fmt.Fprintln(d.w, "</svg>")
	return d.w.Flush()
}

const (
	waitColor = "#e69f00"
	workColor = "#0072b2"
)

func (d *drawing) row(r *row, y float64) {
	d.text(10, y+15, r.label)
	last := math.Inf(-1)
	for _, c := range r.calls {
		x := d.at(c.Begin)
		if x < last+drawLeast {
			d.left++
			continue
		}
		last = x
		wait := min(c.Waited(), c.End-c.Chosen)
		what := fmt.Sprintf("call %d: %s of %s%s, %s, of which %s waiting", c.Number, c.Kind, Size(c.Bytes), by(c.Algorithm), Took(c.End-c.Begin), Took(wait))
		d.bar(x, y, d.at(c.End)-x, drawRow-6, workColor, what)
		if wait > 0 {
			d.bar(d.at(c.Chosen), y, float64(wait)*d.per, drawRow-6, waitColor, what)
		}
	}
}

// mostPuts is how many puts are drawn.
const mostPuts = 2000

// puts draws a line from each put to the end of the wait that it ends, between the rows of both ranks.
func (d *drawing) puts(t *Trace, rows []row) {
	place := map[int]float64{} // the first row of each rank
	for i := range rows {
		if _, known := place[rows[i].rank]; !known {
			place[rows[i].rank] = drawTop + drawRow*(float64(i)+0.35)
		}
	}
	n := 0
	for _, r := range t.Ranks {
		last := math.Inf(-1)
		for i := range r.Puts {
			p := &r.Puts[i]
			from, here := place[r.Rank]
			to, there := place[p.Peer]
			x := d.at(p.At)
			if p.Got == 0 || p.Bytes == 0 || !here || !there || n == mostPuts || x < last+drawLeast || x < drawLeft {
				continue
			}
			last = x
			n++
			fmt.Fprintf(d.w, "<line x1=\"%.2f\" y1=\"%.2f\" x2=\"%.2f\" y2=\"%.2f\" stroke=\"black\" stroke-width=\"0.7\"><title>%s</title></line>\n", x, from, d.at(p.Got), to,
				html.EscapeString(fmt.Sprintf("%s from rank %d to rank %d over %s, %s", Size(p.Bytes), r.Rank, p.Peer, p.Transport, Took(p.Got-p.At))))
		}
	}
}

func (d *drawing) at(ns int64) float64 { return drawLeft + (float64(ns)-d.from)*d.per }

func (d *drawing) bar(x, y, width, height float64, color, title string) {
	fmt.Fprintf(d.w, "<rect x=\"%.2f\" y=\"%.2f\" width=\"%.2f\" height=\"%.2f\" fill=\"%s\">", x, y, math.Max(width, 0.3), height, color)
	if title != "" {
		fmt.Fprintf(d.w, "<title>%s</title>", html.EscapeString(title))
	}
	fmt.Fprintln(d.w, "</rect>")
}

func (d *drawing) text(x, y float64, text string) {
	fmt.Fprintf(d.w, "<text x=\"%g\" y=\"%g\">%s</text>\n", x, y, html.EscapeString(text))
}
