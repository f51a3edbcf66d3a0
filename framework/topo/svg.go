package topo

import (
	"bytes"
	"encoding/xml"
	"fmt"
	"io"
	"slices"
	"strings"
)

// Sizes of a drawing, in its units.
const (
	margin   = 20
	boxW     = 124 // of a GPU, an adapter
	boxH     = 46
	gap      = 14
	headH    = 52 // of a memory node, above its devices
	rowGap   = 44 // between adapters and GPUs
	busH     = 30 // of the bar that stands for the switches
	busGap   = 56 // between the nodes and that bar
	arcDepth = 34 // of a direct link between neighbors
	noteH    = 20
)

const svgStyle = `
  text{font:12px system-ui,Helvetica,Arial,sans-serif;fill:#1f2937}
  .title{font-size:16px;font-weight:600} .small{font-size:10px;fill:#4b5563}
  .mid{text-anchor:middle} .strong{font-weight:600}
  .node{fill:#f8fafc;stroke:#94a3b8;stroke-width:1.5}
  .gpu{fill:#dcfce7;stroke:#15803d;stroke-width:1.5}
  .parts{fill:#f0fdf4;stroke:#15803d;stroke-width:1.5;stroke-dasharray:4 3}
  .nic{fill:#dbeafe;stroke:#1d4ed8;stroke-width:1.5} .down{fill:#f1f5f9;stroke:#94a3b8}
  .bus{fill:#fef3c7;stroke:#b45309;stroke-width:1.5}
  .nv{stroke:#b45309;fill:none} .pix{stroke:#1d4ed8;stroke-width:2;fill:none}
  .pxb{stroke:#1d4ed8;stroke-width:1.5;stroke-dasharray:5 4;fill:none}
  .sys{stroke:#94a3b8;stroke-width:2;fill:none}
`

// SVG draws the machine: memory nodes as boxes with their adapters and GPUs inside,
// NVLinks as lines that are the thicker the more links they stand for, and a line
// from an adapter to each GPU that is no farther than a PCIe switch.
func (h *Host) SVG(w io.Writer) error {
	d := &drawing{host: h, gpu: map[string]spot{}}
	d.place()
	d.draw()
	_, err := w.Write(d.finish())
	return err
}

// spot is where a box is.
type spot struct{ x, y int }

func (s spot) middle() int { return s.x + boxW/2 }

// column is a memory node with what is on it. A node of -1 has what no node claims.
type column struct {
	node Node
	gpus []GPU
	nics []NIC
	x, w int
}

type drawing struct {
	host    *Host
	columns []column
	gpu     map[string]spot // by PCI address
	nics    bool            // there is a row of adapters
	top     int             // of the nodes
	bottom  int             // of the nodes
	width   int
	height  int
	body    bytes.Buffer
}

// place finds a position for everything.
func (d *drawing) place() {
	on := func(id int) column {
		c := column{node: Node{ID: id}}
		for _, g := range d.host.GPUs {
			if g.NUMA == id {
				c.gpus = append(c.gpus, g)
			}
		}
		for _, n := range d.host.NICs {
			if n.NUMA == id {
				c.nics = append(c.nics, n)
			}
		}
		return c
	}
	known := map[int]bool{}
	for _, n := range d.host.Nodes {
		known[n.ID] = true
		c := on(n.ID)
		c.node = n
		d.columns = append(d.columns, c)
	}
	for _, id := range d.unlistedNodes(known) {
		if c := on(id); id >= 0 || len(d.host.Nodes) != 1 {
			d.columns = append(d.columns, c)
		} else { // with one node there is no doubt
			d.columns[0].gpus = append(d.columns[0].gpus, c.gpus...)
			d.columns[0].nics = append(d.columns[0].nics, c.nics...)
		}
	}
	x := margin
	for i := range d.columns {
		c := &d.columns[i]
		d.besideGPUs(c)
		d.nics = d.nics || len(c.nics) > 0
		c.x, c.w = x, gap+max(2, len(c.gpus), len(c.nics))*(boxW+gap)
		x += c.w + 2*gap
	}
	d.width = x - 2*gap + margin
	d.top = margin + 44
	row := d.top + headH
	if d.nics {
		row += boxH + rowGap
	}
	for _, c := range d.columns {
		for i, g := range c.gpus {
			d.gpu[g.where()] = spot{c.x + gap + i*(boxW+gap), row}
		}
	}
	d.bottom = row + gap
	if len(d.host.GPUs) > 0 {
		d.bottom += boxH
	}
	d.height = d.bottom + margin
}

// unlistedNodes lists the nodes that devices name and the machine does not.
func (d *drawing) unlistedNodes(known map[int]bool) []int {
	var ids []int
	add := func(id int) {
		if !known[id] {
			known[id] = true
			ids = append(ids, id)
		}
	}
	for _, g := range d.host.GPUs {
		add(g.NUMA)
	}
	for _, n := range d.host.NICs {
		add(n.NUMA)
	}
	return ids
}

// besideGPUs orders adapters so that each is above the GPU it is nearest to.
func (d *drawing) besideGPUs(c *column) {
	first := func(n NIC) int {
		best, at := len(rank), len(c.gpus)
		for i, g := range c.gpus {
			if r := rank[d.host.apart(n.place(), Place{NUMA: g.NUMA, bus: g.bus})]; r < best && r <= rank[PXB] {
				best, at = r, i
			}
		}
		return at
	}
	slices.SortStableFunc(c.nics, func(a, b NIC) int { return first(a) - first(b) })
}

func (d *drawing) draw() {
	h := d.host
	d.text(margin, margin+14, "title", or(h.Name, "?"))
	d.text(margin, margin+32, "small", fmt.Sprintf("%s, %s, %s", or(h.CPU, "?"), count(h.Sockets, "socket"), count(h.Cores, "core")))
	for i, c := range d.columns {
		if i > 0 {
			p := d.columns[i-1]
			y := d.top + headH/2
			d.line("sys", p.x+p.w, y, c.x, y)
		}
		d.column(c)
	}
	d.switches()
	d.direct()
	d.notes()
}

func (d *drawing) column(c column) {
	d.box("node", c.x, d.top, c.w, d.bottom-d.top)
	title := fmt.Sprintf("NUMA node %d", c.node.ID)
	if c.node.ID < 0 {
		title = "node unknown"
	}
	d.text(c.x+gap, d.top+20, "strong", title)
	if c.node.ID >= 0 {
		d.text(c.x+gap, d.top+36, "small", fmt.Sprintf("CPUs %s, %.0f GiB", or(formatList(c.node.CPUs), "-"), float64(c.node.Bytes)/(1<<30)))
	}
	y := d.top + headH
	for i, n := range c.nics {
		at := spot{c.x + gap + i*(boxW+gap), y}
		for _, g := range c.gpus {
			far := d.host.apart(n.place(), Place{NUMA: g.NUMA, bus: g.bus})
			if rank[far] <= rank[PXB] {
				to := d.gpu[g.where()]
				d.line(strings.ToLower(far), at.middle(), at.y+boxH, to.middle(), to.y)
				d.text((at.middle()+to.middle())/2+4, at.y+boxH+rowGap/2+4, "small", far)
			}
		}
		class := "nic"
		if !n.Up {
			class = "nic down"
		}
		d.labeled(class, at, n.Name, n.Link+" "+speed(n.Mbps), n.PCI)
	}
	for _, g := range c.gpus {
		class, second := "gpu", strings.TrimPrefix(strings.TrimPrefix(g.Name, "NVIDIA "), "AMD Instinct ")
		if g.MIG != nil {
			class, second = "parts", fmt.Sprintf("MIG, %s", count(len(g.MIG.Parts), "part"))
		}
		d.labeled(class, d.gpu[g.where()], g.label(), second, g.PCI)
	}
}

// switches draws one bar for all NVSwitches, and the bundles that lead to it.
func (d *drawing) switches() {
	left, right := 0, 0
	y := d.bottom + busGap
	for _, g := range d.host.GPUs {
		for _, l := range g.Links {
			if l.Peer != Switch {
				continue
			}
			s := d.gpu[g.where()]
			d.bundle(fmt.Sprintf("M%d %d V%d", s.middle(), s.y+boxH, y), l.Count)
			d.text(s.middle()+6, y-busGap/2+gap, "small", fmt.Sprintf("NV%d", l.Count))
			if left == 0 || s.x < left {
				left = s.x
			}
			right = max(right, s.x+boxW)
		}
	}
	if right == 0 {
		return
	}
	d.box("bus", left, y, right-left, busH)
	d.text((left+right)/2, y+busH/2+4, "strong mid", "NVSwitch")
	d.height = y + busH + margin
}

// direct draws bundles between two GPUs as arcs, the deeper the longer.
func (d *drawing) direct() {
	deepest := 0
	for i, a := range d.host.GPUs {
		for j, b := range d.host.GPUs[i+1:] {
			n, through := a.NVLinks(b)
			if n == 0 || through == Switch {
				continue
			}
			from, to := d.gpu[a.where()], d.gpu[b.where()]
			y, depth := from.y+boxH, arcDepth*(j+1)
			x0, x1 := from.middle()+6*(j+1), to.middle()-6*(j+1)
			d.bundle(fmt.Sprintf("M%d %d C%d %d %d %d %d %d", x0, y, x0, y+depth*4/3, x1, y+depth*4/3, x1, to.y+boxH), n)
			d.text((x0+x1)/2, y+depth-4, "small mid", fmt.Sprintf("%s%d", a.linkWord(), n))
			deepest = max(deepest, depth)
		}
	}
	if deepest > 0 {
		d.height = max(d.height, d.bottom+deepest+margin)
	}
}

// notes says below what no line shows.
func (d *drawing) notes() {
	var b bytes.Buffer
	if len(d.host.GPUs) > 1 {
		d.host.printAccess(&b)
	}
	for _, why := range d.host.Missing {
		fmt.Fprintf(&b, "no GPUs found: %s\n", why)
	}
	for line := range strings.Lines(b.String()) {
		d.text(margin, d.height, "small", strings.TrimSpace(line))
		d.height += noteH
	}
}

// bundle is a line for n links.
func (d *drawing) bundle(path string, n int) {
	fmt.Fprintf(&d.body, "<path class=\"nv\" stroke-width=\"%.1f\" d=\"%s\"/>\n", 1+float64(n)/4, path)
}

func (d *drawing) labeled(class string, s spot, name, second, third string) {
	d.box(class, s.x, s.y, boxW, boxH)
	d.text(s.middle(), s.y+15, "strong mid", name)
	d.text(s.middle(), s.y+28, "small mid", second)
	d.text(s.middle(), s.y+40, "small mid", third)
}

func (d *drawing) box(class string, x, y, w, h int) {
	fmt.Fprintf(&d.body, "<rect class=\"%s\" x=\"%d\" y=\"%d\" width=\"%d\" height=\"%d\" rx=\"6\"/>\n", class, x, y, w, h)
}

func (d *drawing) line(class string, x0, y0, x1, y1 int) {
	fmt.Fprintf(&d.body, "<path class=\"%s\" d=\"M%d %d L%d %d\"/>\n", class, x0, y0, x1, y1)
}

func (d *drawing) text(x, y int, class, text string) {
	if text == "" {
		return
	}
	fmt.Fprintf(&d.body, "<text class=\"%s\" x=\"%d\" y=\"%d\">", class, x, y)
	_ = xml.EscapeText(&d.body, []byte(text)) // a buffer takes everything
	d.body.WriteString("</text>\n")
}

func (d *drawing) finish() []byte {
	d.width = max(d.width, 420)
	var b bytes.Buffer
	fmt.Fprintf(&b, "<svg xmlns=\"http://www.w3.org/2000/svg\" width=\"%d\" height=\"%d\" viewBox=\"0 0 %d %d\">\n<style>%s</style>\n", d.width, d.height, d.width, d.height, svgStyle)
	fmt.Fprintf(&b, "<rect width=\"%d\" height=\"%d\" fill=\"#ffffff\"/>\n", d.width, d.height)
	b.Write(d.body.Bytes())
	b.WriteString("</svg>\n")
	return b.Bytes()
}
