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
	drawOpen  = 10.0 // beyond the end, for calls that have not ended
	drawLeast = 0.5  // between the beginnings of two calls that are drawn
)

// drawing is the state of DrawSVG.
type drawing struct {
	w         *bufio.Writer
	from, per float64 // time at the left, and units a nanosecond
	left      int     // calls for which there was no room
}

// row is the calls of a rank in one communicator, or what they took on a stream of its device.
type row struct {
	label string
	rank  int
	bars  []bar
}

// bar is one of them. wait is how long it waited from middle on.
type bar struct {
	begin, middle, end int64 // end 0: it has not ended
	wait               int64
	title              string
}

func (c *Call) bar() bar {
	title := fmt.Sprintf("call %d: %s of %s%s", c.Number, c.Kind, Size(c.Bytes), by(c.Algorithm))
	if c.End == 0 {
		return bar{begin: c.Begin, title: title + ", has not ended"}
	}
	wait := min(c.Waited(), c.End-c.Chosen)
	return bar{c.Begin, c.Chosen, c.End, wait, fmt.Sprintf("%s, %s, of which %s waiting", title, Took(c.End-c.Begin), Took(wait))}
}

func (s *Span) bar() bar {
	return bar{s.Begin, s.Begin, s.End, s.Waited(), fmt.Sprintf("call %d on the device: %s, of which %s waiting; times within %s", s.Number, Took(s.End-s.Begin), Took(s.Waited()), Took(s.Off))}
}

// rowsOf are the rows of a rank, calls first.
func rowsOf(r *Rank) (rows []row) {
	mine := map[string]int{}
	add := func(label string, b bar) {
		n, known := mine[label]
		if !known {
			n = len(rows)
			mine[label] = n
			rows = append(rows, row{rank: r.Rank, label: fmt.Sprintf("rank %d, %s", r.Rank, label)})
		}
		rows[n].bars = append(rows[n].bars, b)
	}
	for i := range r.Calls {
		if c := &r.Calls[i]; !c.Guess || c.End == 0 {
			add(c.Comm, c.bar())
		}
	}
	for i := range r.Spans {
		s := &r.Spans[i]
		add(fmt.Sprintf("%s, stream %d", s.Comm, s.Stream), s.bar())
	}
	return rows
}

// DrawSVG draws the calls of all ranks over time: the part in which a rank waited for the one that began last, and the rest.
func (t *Trace) DrawSVG(out io.Writer) error {
	var rows []row
	from, to := int64(math.MaxInt64), int64(math.MinInt64)
	for _, r := range t.Ranks {
		mine := rowsOf(r)
		for i := range mine {
			for _, x := range mine[i].bars {
				from, to = min(from, x.begin), max(to, x.begin, x.end)
			}
		}
		rows = append(rows, mine...)
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
	d.bar(410, 30, 12, 12, openColor, "")
	d.text(428, 41, "it has not ended")
	d.text(560, 41, "— from a put over a network to the end of the wait for it")
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
	openColor = "#cc3311"
)

func (d *drawing) row(r *row, y float64) {
	d.text(10, y+15, r.label)
	last := math.Inf(-1)
	for i := range r.bars {
		c := &r.bars[i]
		x := d.at(c.begin)
		if x < last+drawLeast && c.end != 0 {
			d.left++
			continue
		}
		last = x
		if c.end == 0 {
			d.bar(x, y, drawLeft+drawWidth+drawOpen-x, drawRow-6, openColor, c.title)
			continue
		}
		d.bar(x, y, d.at(c.end)-x, drawRow-6, workColor, c.title)
		if c.wait > 0 {
			d.bar(d.at(c.middle), y, float64(c.wait)*d.per, drawRow-6, waitColor, c.title)
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
