package gputable

import (
	"fmt"
	"io"
	"math"
	"strconv"
	"strings"

	"github.com/mscclpp-go/mscclpp/bench/sizes"
)

// Markdown writes two tables a collective: graphs of many calls on registered
// buffers, and the other ways to call.
func (out *Results) Markdown(w io.Writer) error {
	var b strings.Builder
	last := Point{}
	for _, p := range out.Points() {
		if p.Ranks != last.Ranks {
			fmt.Fprintf(&b, "\n### %d GPUs, %s\n\n%s\n", p.Ranks, out.DType, out.verdict(p.Ranks))
		}
		if p.Ranks != last.Ranks || p.Collective != last.Collective {
			fmt.Fprintf(&b, "\n#### %s, %d GPUs\n", p.Collective, p.Ranks)
			out.table(&b, p, "bytes | ours | NCCL | NCCL, symmetric | best of all others | faster by | GB/s | goal | algorithm", out.fast)
			out.table(&b, p, "bytes | ordinary buffers | NCCL | one call a graph | NCCL | without graph | NCCL", out.others)
		}
		last = p
	}
	_, err := io.WriteString(w, strings.TrimLeft(b.String(), "\n"))
	return err
}

// table writes the rows of all points of a collective that have one.
func (out *Results) table(b *strings.Builder, of Point, headings string, row func(Point) (string, bool)) {
	empty := true
	for _, p := range out.Points() {
		if p.Ranks != of.Ranks || p.Collective != of.Collective {
			continue
		}
		cells, ok := row(p)
		if !ok {
			continue
		}
		if empty {
			fmt.Fprintf(b, "\n| %s |\n|%s\n", headings, strings.Repeat("---|", strings.Count(headings, "|")+1))
			empty = false
		}
		fmt.Fprintf(b, "| %s | %s |\n", sizes.Format(p.Bytes), cells)
	}
}

// fast is the row of the first table.
func (out *Results) fast(p Point) (string, bool) {
	c, ok := out.Cell(p, Mode{Graph, true})
	if !ok {
		return "", false
	}
	plain := math.NaN()
	if o, ok := out.Cell(p, Mode{Graph, false}); ok {
		plain = o.Peer
	}
	best := out.Rival(p)
	other := micros(best.Time)
	if best.Name != "" {
		other += " " + best.Name
	}
	goal, aimed := out.Goal(p)
	if !aimed {
		goal = math.NaN()
	}
	return strings.Join([]string{
		"**" + micros(c.Ours) + "**", micros(plain), micros(c.Peer), other, ratio(best.Time, c.Ours),
		strconv.FormatFloat(float64(p.Bytes)/c.Ours/1e3, 'f', 1, 64), micros(goal), c.Algorithm,
	}, " | "), true
}

// others is the row of the second.
func (out *Results) others(p Point) (string, bool) {
	var cells []string
	any := false
	for _, m := range []Mode{{Graph, false}, {Single, true}, {Eager, true}} {
		c, ok := out.Cell(p, m)
		if !ok {
			c = Cell{Ours: math.NaN(), Peer: math.NaN()}
		}
		any = any || ok
		cells = append(cells, micros(c.Ours), micros(c.Peer))
	}
	return strings.Join(cells, " | "), any
}

// verdict counts.
func (out *Results) verdict(ranks int) string {
	faster, compared, reached, aimed := 0, 0, 0, 0
	for _, p := range out.Points() {
		c, ok := out.Cell(p, Mode{Graph, true})
		if p.Ranks != ranks || !ok {
			continue
		}
		if best := out.Rival(p); best.Name != "" {
			compared++
			if c.Ours < best.Time {
				faster++
			}
		}
		if goal, ok := out.Goal(p); ok {
			aimed++
			if c.Ours <= goal {
				reached++
			}
		}
	}
	text := fmt.Sprintf("Registered buffers, graphs of many calls: faster than the best of the others in %d of %d cells", faster, compared)
	if aimed > 0 {
		text += fmt.Sprintf(", and at the goal or below in %d of %d", reached, aimed)
	}
	if out.Peer != "" {
		text += "; measured beside " + out.Peer
	}
	return text + "."
}

// micros keeps three significant digits, four of large numbers; "" of none.
func micros(us float64) string {
	switch {
	case math.IsNaN(us):
		return ""
	case us < 10:
		return strconv.FormatFloat(us, 'f', 2, 64)
	case us < 100:
		return strconv.FormatFloat(us, 'f', 1, 64)
	}
	return strconv.FormatFloat(us, 'f', 0, 64)
}

func ratio(theirs, ours float64) string {
	if math.IsNaN(theirs) || math.IsNaN(ours) {
		return ""
	}
	return strconv.FormatFloat(theirs/ours, 'f', 2, 64)
}
