package gputable

import (
	"fmt"
	"io"
	"math"
	"strings"

	"github.com/mscclpp-go/mscclpp/bench/sizes"
)

const (
	textHead = "%-14s %5s | %8s %8s %5s %7s | %8s %5s | %8s %5s | %8s %5s  %s\n"
	mark     = "<" // behind a ratio below 1
)

// Text writes one line a point, for a terminal: graphs of many calls on registered
// buffers against the best of the others, then ordinary buffers, one call a graph and
// calls without a graph against NCCL.
func (out *Results) Text(w io.Writer) error {
	var b strings.Builder
	ranks := 0
	for _, p := range out.Points() {
		if p.Ranks != ranks {
			ranks = p.Ranks
			fmt.Fprintf(&b, "%d ranks, %s. %s\n", ranks, out.DType, out.verdict(ranks))
			fmt.Fprintf(&b, textHead, "us", "bytes", "ours", "others", "ratio", "goal", "ordinary", "ratio", "1/graph", "ratio", "eager", "ratio", "algorithm")
		}
		fmt.Fprint(&b, strings.TrimRight(out.line(p), " \n")+"\n")
	}
	_, err := io.WriteString(w, b.String())
	return err
}

func (out *Results) line(p Point) string {
	cell := func(m Mode) Cell {
		if c, ok := out.Cell(p, m); ok {
			return c
		}
		return Cell{Ours: math.NaN(), Peer: math.NaN()}
	}
	c, best := cell(Mode{Graph, true}), out.Rival(p)
	aim := ""
	if goal, ok := out.Goal(p); ok {
		if aim = micros(goal); c.Ours > goal {
			aim += "!"
		}
	}
	plain, single, eager := cell(Mode{Graph, false}), cell(Mode{Single, true}), cell(Mode{Eager, true})
	return fmt.Sprintf(textHead, p.Collective, sizes.Format(p.Bytes), micros(c.Ours), micros(best.Time), marked(best.Time, c.Ours), aim,
		micros(plain.Ours), marked(plain.Peer, plain.Ours), micros(single.Ours), marked(single.Peer, single.Ours),
		micros(eager.Ours), marked(eager.Peer, eager.Ours), c.Algorithm)
}

// marked makes what is slower stand out.
func marked(theirs, ours float64) string {
	r := ratio(theirs, ours)
	if r != "" && theirs < ours {
		r += mark
	}
	return r
}
