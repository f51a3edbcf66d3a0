package plans

import (
	"encoding/json"
	"fmt"
	"html"
	"io"
	"slices"
	"strings"

	"github.com/mscclpp-go/mscclpp/internal/atomicfile"
	"github.com/mscclpp-go/mscclpp/plan/schema"
	"github.com/mscclpp-go/mscclpp/plan/verify"
)

// printTrace prints events, each with its number.
func printTrace(w io.Writer, events []verify.Event, ranks []int) error {
	encoder := json.NewEncoder(w)
	for i := range events {
		if len(ranks) > 0 && !slices.Contains(ranks, events[i].Rank) {
			continue
		}
		line := struct {
			Number int `json:"event"`
			verify.Event
		}{i, events[i]}
		if err := encoder.Encode(line); err != nil {
			return err
		}
	}
	return nil
}

// drawTo draws into a file, which is there whole or not at all, or onto w if its name is -.
func drawTo(w io.Writer, file string, p *schema.Plan, events []verify.Event, ranks []int) error {
	return to(w, "--svg", file, func(w io.Writer) error {
		_, err := io.WriteString(w, draw(p, events, ranks))
		return err
	})
}

// to writes what a flag asks for into its file, or to the standard output.
func to(stdout io.Writer, flag, file string, write func(io.Writer) error) error {
	if file == "-" {
		return write(stdout)
	}
	if err := atomicfile.File(file, write); err != nil {
		return fmt.Errorf("plan show: %s: %w", flag, err)
	}
	return nil
}

// Measures of a drawing, in pixels.
const (
	left   = 150 // of the names of lines
	column = 98  // of a unit of time
	wide   = 74  // of a box: arrows run in the rest
	line   = 26
	box    = 20
	space  = 14 // between ranks
	top    = 48
)

// lane is a line of the drawing: a block, or the engine of a port channel.
type lane struct{ rank, block, port int }

// drawing places events on lines.
type drawing struct {
	strings.Builder
	plan   *schema.Plan
	events []verify.Event
	y      map[lane]int
}

// draw returns a space-time diagram as SVG.
func draw(p *schema.Plan, events []verify.Event, ranks []int) string {
	d := &drawing{plan: p, events: events, y: map[lane]int{}}
	last := 0
	ports := map[int][]int{} // of each rank
	for i := range events {
		last = max(last, events[i].Time)
		if e := &events[i]; e.Port >= 0 && !slices.Contains(ports[e.Rank], e.Port) {
			ports[e.Rank] = append(ports[e.Rank], e.Port)
		}
	}
	var names strings.Builder
	y := top
	for r := range p.GPUs {
		if len(ranks) > 0 && !slices.Contains(ranks, r) {
			continue
		}
		first := y
		for b := range p.GPUs[r].Blocks {
			d.y[lane{r, b, -1}] = y
			fmt.Fprintf(&names, `<text x="%d" y="%d" text-anchor="end">block %d</text>`+"\n", left-12, y+box-6, b)
			y += line
		}
		slices.Sort(ports[r])
		for _, port := range ports[r] {
			d.y[lane{r, 0, port}] = y
			fmt.Fprintf(&names, `<text x="%d" y="%d" text-anchor="end" class="engine">port %d → %d</text>`+"\n", left-12, y+box-6, port, p.GPUs[r].Peers(schema.Port)[port])
			y += line
		}
		fmt.Fprintf(&names, `<text x="10" y="%d" class="rank">rank %d</text>`+"\n", first+box-6, r)
		y += space
	}
	title := fmt.Sprintf("%s: %s, %d ranks", p.Name, p.Collective, len(p.GPUs))
	width := max(left+(last+1)*column, int(max(widest(title, large, true), widest(legend, small, false)))+10) + 20
	fmt.Fprintf(d, `<svg xmlns="http://www.w3.org/2000/svg" width="%d" height="%d" viewBox="0 0 %d %d" font-family="sans-serif" font-size="%d">`+"\n", width, y+10, width, y+10, small)
	d.WriteString(style)
	fmt.Fprintf(d, `<text x="10" y="20" class="title">%s</text>`+"\n", html.EscapeString(title))
	fmt.Fprintf(d, `<text x="10" y="36">%s</text>`+"\n", legend)
	d.WriteString(names.String())
	d.lines(width)
	for i := range events {
		d.event(&events[i])
	}
	for i := range events {
		d.arrows(&events[i])
	}
	d.WriteString("</svg>\n")
	return d.String()
}

const legend = "time goes to the right; pale boxes wait; arrows lead from signals to waits and from packets to readers"

const style = `<defs><marker id="tip" viewBox="0 0 8 8" refX="7" refY="4" markerWidth="6" markerHeight="6" orient="auto"><path d="M0 0L8 4L0 8z" fill="#555"/></marker></defs>
<style>.title{font-size:14px;font-weight:bold}.rank{font-weight:bold}.engine{fill:#777}.lane{stroke:#ddd}
.wait{fill:#f4e3c1}.sync{fill:#f0b54a}.join{fill:#d5d8dc}.data{fill:#8ec3eb}.packets{fill:#c3a6e6}.switch{fill:#9ad6a4}.port{fill:#7fd3cf}
.arrow{stroke:#555;fill:none;stroke-width:1;marker-end:url(#tip)}</style>
<rect width="100%" height="100%" fill="white"/>
`

// lines draws a thin line for each block and engine.
func (d *drawing) lines(width int) {
	var ys []int
	for _, y := range d.y {
		ys = append(ys, y)
	}
	slices.Sort(ys)
	for _, y := range ys {
		fmt.Fprintf(d, `<line class="lane" x1="%d" y1="%d" x2="%d" y2="%d"/>`+"\n", left, y+box/2, width-10, y+box/2)
	}
}

// at returns the line of an event, and whether it is drawn.
func (d *drawing) at(e *verify.Event) (int, bool) {
	key := lane{e.Rank, e.Block, e.Port}
	if e.Port >= 0 {
		key.block = 0
	}
	y, ok := d.y[key]
	return y, ok
}

func (d *drawing) event(e *verify.Event) {
	y, ok := d.at(e)
	if !ok {
		return
	}
	if e.Time > e.Ready && e.Port < 0 {
		fmt.Fprintf(d, `<rect class="wait" x="%d" y="%d" width="%d" height="%d"/>`+"\n", left+e.Ready*column, y+3, (e.Time-e.Ready)*column, box-6)
	}
	g := &d.plan.GPUs[e.Rank]
	b := &g.Blocks[e.Block]
	o, number := &b.Ops[e.Index], fmt.Sprint(e.Index)
	if e.Inner >= 0 {
		o, number = &o.Ops[e.Inner], fmt.Sprintf("%d.%d, turn %d", e.Index, e.Inner, e.Turn)
	}
	l := lister{nil, d.plan, g, b}
	about := strings.Join(strings.Fields(fmt.Sprintf("rank %d, block %d, operation %s (%s): %s %s", e.Rank, e.Block, number, o.Name, l.operands(o), l.channels(o))), " ")
	x, fit := left+e.Time*column, ""
	if widest(string(o.Name), small, false) > wide-2*inset {
		fit = fmt.Sprintf(` textLength="%d" lengthAdjust="spacingAndGlyphs"`, wide-2*inset)
	}
	fmt.Fprintf(d, `<g><title>%s</title><rect class="%s" x="%d" y="%d" width="%d" height="%d" rx="3"/><text x="%d" y="%d"%s>%s</text></g>`+"\n",
		html.EscapeString(about), kind(e, o), x, y, wide, box, x+inset, y+box-6, fit, html.EscapeString(string(o.Name)))
}

// kind returns the class of an event's box.
func kind(e *verify.Event, o *schema.Op) string {
	switch {
	case e.Port >= 0:
		return "port"
	case o.Name == schema.Nop || o.Name == schema.Barrier:
		return "join"
	case !o.Name.Data():
		return "sync"
	case o.Name.Packets():
		return "packets"
	case o.Channel() == schema.Switch:
		return "switch"
	}
	return "data"
}

// arrows draws what an event follows.
func (d *drawing) arrows(e *verify.Event) {
	y, ok := d.at(e)
	if !ok {
		return
	}
	for _, i := range e.After {
		from := &d.events[i]
		fy, ok := d.at(from)
		if !ok {
			continue
		}
		fx, x := left+from.Time*column+wide, left+e.Time*column
		if from.Time >= e.Time { // it went on while the other one waited
			fx = left + from.Ready*column + wide
		}
		fmt.Fprintf(d, `<path class="arrow" d="M%d %dC%d %d %d %d %d %d"/>`+"\n", fx, fy+box/2, fx+24, fy+box/2, x-24, y+box/2, x, y+box/2)
	}
}
