package gputable

import (
	"encoding/json"
	"math"
	"strings"
	"testing"

	"github.com/mscclpp-go/mscclpp/bench/report"
)

// row is a result of an all-reduce of four ranks, in a graph of 20 calls on
// registered buffers.
func row(bytes int64, ours, peer float64, change ...func(*report.Row)) report.Row {
	speedup := peer / max(ours, 1e-3)
	r := report.Row{
		Collective: "allreduce", Bytes: bytes, DType: "f16", Op: "sum", Root: -1, Ranks: 4, Algorithm: "oneshot", Device: "cuda:0",
		Graph: 20, Registered: true, TimeUS: ours, Peer: "nccl 2.28.3", PeerTimeUS: &peer, Speedup: &speedup,
	}
	for _, c := range change {
		c(&r)
	}
	return r
}

func plain(r *report.Row)   { r.Registered = false }
func single(r *report.Row)  { r.Graph = 1 }
func eager(r *report.Row)   { r.Graph = 0 }
func inPlace(r *report.Row) { r.InPlace, r.Algorithm = true, "there" }
func alone(r *report.Row)   { r.PeerTimeUS, r.Speedup = nil, nil }

func lines(t *testing.T, rows ...report.Row) string {
	t.Helper()
	var b strings.Builder
	for _, r := range rows {
		if err := json.NewEncoder(&b).Encode(r); err != nil {
			t.Fatal(err)
		}
	}
	return b.String()
}

func load(t *testing.T, rows ...report.Row) *Results {
	t.Helper()
	r, err := Load(strings.NewReader(lines(t, rows...)))
	if err != nil {
		t.Fatal(err)
	}
	r.H200 = true
	return r
}

var oneK = Point{4, "allreduce", 1 << 10}

func TestCellIsTheMedianOfProcesses(t *testing.T) {
	r := load(t, row(1<<10, 2, 5), row(1<<10, 9, 6), row(1<<10, 2.5, 40))
	c, ok := r.Cell(oneK, Mode{Graph, true})
	if !ok || c.Ours != 2.5 || c.Peer != 6 || c.Processes != 3 || c.Algorithm != "oneshot" {
		t.Errorf("%+v, want the medians 2.5 and 6 of 3", c)
	}
	if _, ok := r.Cell(oneK, Mode{Graph, false}); ok {
		t.Error("a cell that was not measured")
	}
}

// Each side has its better place.
func TestBetterOfBothPlaces(t *testing.T) {
	for _, order := range [][]report.Row{
		{row(1<<10, 3, 4), row(1<<10, 2, 5, inPlace)},
		{row(1<<10, 2, 5, inPlace), row(1<<10, 3, 4)},
	} {
		c, _ := load(t, order...).Cell(oneK, Mode{Graph, true})
		if c.Ours != 2 || c.Peer != 4 || c.Algorithm != "there" {
			t.Errorf("%+v, want 2 in place and 4 out of place", c)
		}
	}
}

// A place in which the peer has no such call is not compared with its other one.
func TestPlaceWithoutPeerDoesNotCount(t *testing.T) {
	for _, order := range [][]report.Row{
		{row(1<<10, 3, 4), row(1<<10, 1, 0, inPlace, alone)},
		{row(1<<10, 1, 0, inPlace, alone), row(1<<10, 3, 4)},
	} {
		c, _ := load(t, order...).Cell(oneK, Mode{Graph, true})
		if c.Ours != 3 || c.Peer != 4 {
			t.Errorf("%+v, want the place that both have", c)
		}
	}
	c, _ := load(t, row(1<<10, 3, 0, alone), row(1<<10, 1, 0, inPlace, alone)).Cell(oneK, Mode{Graph, true})
	if c.Ours != 1 || !math.IsNaN(c.Peer) {
		t.Errorf("without a peer: %+v, want the better one", c)
	}
}

func TestRivalIsTheBestOfAll(t *testing.T) {
	p := Point{4, "allreduce", 16 << 10}
	for want, rows := range map[string][]report.Row{
		"NCCL":            {row(16<<10, 1, 9), row(16<<10, 1, 8, plain)},
		"NCCL, symmetric": {row(16<<10, 1, 7), row(16<<10, 1, 8, plain)},
		"":                {row(16<<10, 1, 7, alone)},
	} {
		if got := load(t, rows...).Rival(p); got.Name != want {
			t.Errorf("%+v, want %q", got, want)
		}
	}
	if got := load(t, row(1<<10, 1, 9)).Rival(oneK); got != (Rival{2.77, mscclpp}) {
		t.Errorf("%+v, want what MSCCL++ took before", got)
	}
	if got := load(t, row(1<<10, 1, 2)).Rival(oneK); got != (Rival{2, "NCCL, symmetric"}) {
		t.Errorf("%+v, want NCCL, which was faster than MSCCL++ before", got)
	}
	for range 50 {
		if got := load(t, row(1<<10, 1, 2), row(1<<10, 1, 2, plain)).Rival(oneK); got != (Rival{2, "NCCL"}) {
			t.Fatalf("%+v of two that took as long, want the one with ordinary buffers, always", got)
		}
	}
}

// Calls one by one or in other graphs do not count as rivals in graphs of many.
func TestKindsOfCallsAreKeptApart(t *testing.T) {
	r := load(t, row(16<<10, 3, 5), row(16<<10, 4, 1, single), row(16<<10, 6, 1, eager))
	p := Point{4, "allreduce", 16 << 10}
	if got := r.Rival(p); got.Time != 5 {
		t.Errorf("%+v, want 5", got)
	}
	for how, want := range map[How]float64{Graph: 3, Single: 4, Eager: 6} {
		if c, ok := r.Cell(p, Mode{how, true}); !ok || c.Ours != want {
			t.Errorf("how %d: %+v, want %v", how, c, want)
		}
	}
}

func TestGoalsAreForWhatTheyWereSetFor(t *testing.T) {
	r := &Results{DType: "f16", H200: true}
	if g, ok := r.Goal(oneK); !ok || g != 2.1 {
		t.Errorf("%v %v, want 2.1", g, ok)
	}
	if g, ok := r.Goal(Point{4, "alltoall", 1 << 30}); !ok || g != 2085 {
		t.Errorf("%v %v, want 2085", g, ok)
	}
	for _, p := range []Point{{2, "allreduce", 1 << 10}, {4, "broadcast", 1 << 10}, {4, "allreduce", 2 << 10}, {4, "allreduce", 4 << 30}} {
		if _, ok := r.Goal(p); ok {
			t.Errorf("%+v has a goal", p)
		}
	}
	for _, other := range []*Results{{DType: "f32", H200: true}, {DType: "f16"}} {
		if _, ok := other.Goal(oneK); ok {
			t.Errorf("%+v has a goal", other)
		}
		if _, ok := other.earlier(oneK); ok {
			t.Errorf("%+v is compared with what was measured on others", other)
		}
	}
	for c, list := range goals {
		if len(list) != 11 {
			t.Errorf("%s: %d goals, want 11", c, len(list))
		}
		for i := 1; i < len(list); i++ {
			if list[i] < list[i-1] {
				t.Errorf("%s: %v after %v", c, list[i], list[i-1])
			}
		}
	}
}

func TestWrongInputIsRefused(t *testing.T) {
	bad := int64(1)
	for want, text := range map[string]string{
		"1 wrong elements":  lines(t, row(1<<10, 2, 3, func(r *report.Row) { r.Errors = &bad })),
		"a time of 0":       lines(t, row(1<<10, 0, 3)),
		"line 2: expected":  lines(t, row(1<<10, 2, 3)) + "hello\n",
		"one element type":  lines(t, row(1<<10, 2, 3), row(1<<10, 2, 3, func(r *report.Row) { r.DType = "f32" })),
		"no results":        "\n\n",
		"expected a JSON o": `{"bytes": "many"}`,
	} {
		if _, err := Load(strings.NewReader(text)); err == nil || !strings.Contains(err.Error(), want) {
			t.Errorf("%q: %v, want %q", text, err, want)
		}
	}
}

func TestOrderOfPoints(t *testing.T) {
	named := func(name string, ranks int) func(*report.Row) {
		return func(r *report.Row) { r.Collective, r.Ranks = name, ranks }
	}
	r := load(t, row(4<<10, 1, 1, named("scatter", 4)), row(4<<10, 1, 1, named("gather", 4)), row(4<<10, 1, 1, named("allreduce", 2)),
		row(4<<10, 1, 1, named("allgather", 4)), row(4<<10, 1, 1), row(1<<10, 1, 1))
	var got []string
	for _, p := range r.Points() {
		got = append(got, p.Collective)
	}
	want := "allreduce allreduce allgather gather scatter allreduce"
	if strings.Join(got, " ") != want || r.Points()[0].Bytes != 1<<10 || r.Points()[5].Ranks != 2 {
		t.Errorf("%v, want %s", r.Points(), want)
	}
}

func TestMarkdown(t *testing.T) {
	var b strings.Builder
	r := load(t, row(1<<10, 2, 9), row(1<<10, 2.2, 8, plain), row(1<<10, 5, 10, single), row(1<<20, 12.34, 10), row(1<<20, 200, 100, eager))
	if err := r.Markdown(&b); err != nil {
		t.Fatal(err)
	}
	for _, want := range []string{
		"### 4 GPUs, f16\n",
		"faster than the best of the others in 1 of 2 cells, and at the goal or below in 1 of 2; measured beside nccl 2.28.3.",
		"| 1K | **2.00** | 8.00 | 9.00 | 2.77 MSCCL++ 0.9 | 1.39 | 0.5 | 2.10 | oneshot |\n",
		"| 1M | **12.3** |  | 10.0 | 10.0 NCCL, symmetric | 0.81 | 85.0 | 9.00 | oneshot |\n",
		"| 1K | 2.20 | 8.00 | 5.00 | 10.0 |  |  |\n",
		"| 1M |  |  |  |  | 200 | 100 |\n",
	} {
		if !strings.Contains(b.String(), want) {
			t.Errorf("no %q in\n%s", want, b.String())
		}
	}
	columns := 0
	for _, line := range strings.Split(b.String(), "\n") {
		n := strings.Count(line, "|")
		if n == 0 {
			columns = 0
		} else if columns == 0 {
			columns = n
		} else if n != columns {
			t.Errorf("%d bars in a table of %d: %q", n, columns, line)
		}
	}
}

func TestTextFitsATerminal(t *testing.T) {
	var rows []report.Row
	for _, c := range usual {
		for bytes := int64(1 << 10); bytes <= 1<<30; bytes *= 4 {
			named := func(r *report.Row) { r.Collective, r.Algorithm = c, "twoshot_ll128" }
			rows = append(rows, row(bytes, 4180, 5000, named), row(bytes, 4180, 4000, named, plain), row(bytes, 4180, 5000, named, single))
		}
	}
	var b strings.Builder
	if err := load(t, rows...).Text(&b); err != nil {
		t.Fatal(err)
	}
	if n := strings.Count(b.String(), "\n"); n != 2+77 || b.Len() > 12000 {
		t.Errorf("%d lines of %d bytes, want 79 lines within 12000", n, b.Len())
	}
	if !strings.Contains(b.String(), "0.96<") || !strings.Contains(b.String(), "2.10!") {
		t.Errorf("what is slower or above its goal is not marked in\n%s", b.String()[:600])
	}
}
