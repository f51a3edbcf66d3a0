// Package gputable turns what bench measured on GPUs into tables: medians over
// processes, compared with NCCL in the same runs and with the goals. The input is JSON
// lines of mscclpp-run bench, of any number of runs; see scripts/gpu-test.sh.
package gputable

import (
	"bufio"
	"bytes"
	"encoding/json"
	"fmt"
	"io"
	"math"
	"slices"

	"github.com/mscclpp-go/mscclpp/bench/report"
	"github.com/mscclpp-go/mscclpp/bench/stats"
)

// How says how the calls of a measurement were launched.
type How int

// Ways to launch.
const (
	Graph  How = iota // many calls a graph
	Single            // one call a graph
	Eager             // without a graph
)

// Mode is a kind of measurement; tables have columns for it.
type Mode struct {
	How        How
	Registered bool
}

// Point is a row of the tables.
type Point struct {
	Ranks      int
	Collective string
	Bytes      int64
}

// Cell is the result for a point in one mode: medians over the processes, and for each
// side the better of in place and out of place. If the peer was measured, only
// placements in which it was measured count.
type Cell struct {
	Ours, Peer float64 // µs; Peer is NaN where there is none
	Algorithm  string  // of Ours
	Processes  int     // that Ours is the median of
}

// Results are the cells of all points.
type Results struct {
	Peer  string // name and version, "" if there was none
	DType string
	H200  bool // measured on H200s over NVLink: goals and earlier measurements are for these
	cells map[Point]map[Mode]Cell
}

// place identifies a set of samples of which one median is taken.
type place struct {
	Point
	Mode
	inPlace bool
}

type samples struct {
	ours, peer []float64
	algorithm  string
}

// Load reads JSON lines. A wrong result is an error: its time means nothing.
func Load(r io.Reader) (*Results, error) {
	out := &Results{cells: map[Point]map[Mode]Cell{}}
	all := map[place]*samples{}
	lines := bufio.NewScanner(r)
	for n := 1; lines.Scan(); n++ {
		if len(bytes.TrimSpace(lines.Bytes())) == 0 {
			continue
		}
		var row report.Row
		if err := json.Unmarshal(lines.Bytes(), &row); err != nil {
			return nil, fmt.Errorf("line %d: expected a JSON object: %w", n, err)
		}
		if err := out.add(all, &row); err != nil {
			return nil, fmt.Errorf("line %d: %w", n, err)
		}
	}
	if err := lines.Err(); err != nil {
		return nil, err
	}
	if len(all) == 0 {
		return nil, fmt.Errorf("no results: expected JSON lines of mscclpp-run bench")
	}
	out.combine(all)
	return out, nil
}

func (out *Results) add(all map[place]*samples, row *report.Row) error {
	switch {
	case row.Errors != nil && *row.Errors != 0:
		return fmt.Errorf("%s of %d bytes: %d wrong elements", row.Collective, row.Bytes, *row.Errors)
	case !(row.TimeUS > 0):
		return fmt.Errorf("%s of %d bytes: a time of %v µs", row.Collective, row.Bytes, row.TimeUS)
	case out.DType != "" && out.DType != row.DType:
		return fmt.Errorf("%s after %s: expected one element type", row.DType, out.DType)
	}
	out.DType = row.DType
	if row.Peer != "" {
		out.Peer = row.Peer
	}
	k := place{Point{row.Ranks, row.Collective, row.Bytes}, Mode{howOf(row.Graph), row.Registered}, row.InPlace}
	s := all[k]
	if s == nil {
		s = &samples{}
		all[k] = s
	}
	s.ours, s.algorithm = append(s.ours, row.TimeUS), row.Algorithm
	if row.PeerTimeUS != nil {
		s.peer = append(s.peer, *row.PeerTimeUS)
	}
	return nil
}

func howOf(graph int) How {
	switch graph {
	case 0:
		return Eager
	case 1:
		return Single
	}
	return Graph
}

// combine takes the medians, and the better place of each side.
func (out *Results) combine(all map[place]*samples) {
	for k, s := range all {
		other := k
		other.inPlace = !k.inPlace
		if o := all[other]; len(s.peer) == 0 && o != nil && len(o.peer) > 0 {
			continue
		}
		if out.cells[k.Point] == nil {
			out.cells[k.Point] = map[Mode]Cell{}
		}
		c, there := out.cells[k.Point][k.Mode]
		if !there {
			c = Cell{Ours: math.Inf(1), Peer: math.NaN()}
		}
		if ours := stats.Median(s.ours); ours < c.Ours || ours == c.Ours && !k.inPlace {
			c.Ours, c.Algorithm, c.Processes = ours, s.algorithm, len(s.ours)
		}
		c.Peer = least(c.Peer, stats.Median(s.peer))
		out.cells[k.Point][k.Mode] = c
	}
}

// least ignores what is not there.
func least(values ...float64) float64 {
	best := math.NaN()
	for _, v := range values {
		if !math.IsNaN(v) && !(v >= best) {
			best = v
		}
	}
	return best
}

// Cell returns the result for a point.
func (out *Results) Cell(p Point, m Mode) (Cell, bool) {
	c, ok := out.cells[p][m]
	return c, ok
}

// Points lists all: most ranks first, collectives in the usual order, small to large.
func (out *Results) Points() []Point {
	var list []Point
	for p := range out.cells {
		list = append(list, p)
	}
	slices.SortFunc(list, func(a, b Point) int {
		if a.Ranks != b.Ranks {
			return b.Ranks - a.Ranks
		}
		if a.Collective != b.Collective {
			return order(a.Collective) - order(b.Collective)
		}
		return int(min(max(a.Bytes-b.Bytes, -1), 1))
	})
	return list
}

var usual = []string{"allreduce", "allgather", "reducescatter", "alltoall", "broadcast", "reduce", "sendrecv"}

// order is the place of a collective; unknown ones follow by their names.
func order(collective string) int {
	if i := slices.Index(usual, collective); i >= 0 {
		return i
	}
	n := len(usual)
	for _, b := range []byte(collective + "   ")[:3] {
		n = n<<8 + int(b)
	}
	return n
}

// Rival is the best time of others: NCCL's in the same runs, with ordinary buffers or
// symmetric windows, or what another library took on such a machine before.
type Rival struct {
	Time float64 // NaN: none
	Name string
}

// Rival returns the best of the others in graphs of many calls; of equal ones the first, with ordinary buffers.
func (out *Results) Rival(p Point) Rival {
	best := Rival{Time: math.NaN()}
	consider := func(t float64, name string) {
		if !math.IsNaN(t) && !(t >= best.Time) {
			best = Rival{t, name}
		}
	}
	for i, name := range []string{"NCCL", "NCCL, symmetric"} {
		if c, ok := out.cells[p][Mode{Graph, i == 1}]; ok {
			consider(c.Peer, name)
		}
	}
	if e, ok := out.earlier(p); ok {
		consider(e.Time, e.Name)
	}
	return best
}
