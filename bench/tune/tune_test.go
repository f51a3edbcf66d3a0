package tune_test

import (
	"context"
	"fmt"
	"slices"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/mscclpp-go/mscclpp/bench"
	"github.com/mscclpp-go/mscclpp/bench/benchtest"
	"github.com/mscclpp-go/mscclpp/bench/sizes"
	"github.com/mscclpp-go/mscclpp/bench/tune"
	"github.com/mscclpp-go/mscclpp/framework"
	"github.com/mscclpp-go/mscclpp/framework/kernel"
)

// cost is the time of a call on the device of a test.
type cost func(c *bench.Call, with tune.Choice) time.Duration

// member is a rank whose calls take the time that the test says, on a clock of its
// own: the best choice is known, and nothing depends on the machine.
type member struct {
	*benchtest.Member
	names    []string
	plan     string // the algorithm with blocks of its own
	refuses  string // the algorithm that serves no call
	cost     cost
	onHost   bool
	table    []tune.Row
	clock    time.Duration
	measured map[tune.Choice]bool
}

func (m *member) Algorithms(bench.Collective) []string { return m.names }

func (m *member) Chosen(c *bench.Call) (string, error) {
	if c.Algorithm == m.refuses {
		return "", fmt.Errorf("%w: algorithm %q", framework.ErrUnsupported, c.Algorithm)
	}
	return c.Algorithm, nil
}

func (m *member) Fixed(algorithm string) bool { return algorithm == m.plan }

func (m *member) UseTable(rows []tune.Row) error { m.table = rows; return nil }

func (m *member) Do(c *bench.Call) error {
	if len(m.table) != 1 || m.table[0].Collective != c.Collective {
		return fmt.Errorf("the table is %v in a call of %s: expected one row for it", m.table, c.Collective)
	}
	with := m.table[0].Choice
	m.measured[with] = true
	m.clock += m.cost(c, with)
	return nil
}

func (m *member) Queue() bench.Queue {
	if m.onHost {
		return nil
	}
	return m
}

func (m *member) Finish() error { return nil }

func (m *member) Time(_ bool, align, f func() error) (time.Duration, error) {
	if err := align(); err != nil {
		return 0, err
	}
	start := m.clock
	err := f()
	return m.clock - start, err
}

func (m *member) Capture(f func() error) (bench.Graph, error) { return recording{f}, f() }

type recording struct{ f func() error }

func (r recording) Launch() error { return r.f() }
func (r recording) Close() error  { return nil }

func options() tune.Options {
	return tune.Options{
		Collectives: []bench.Collective{bench.AllReduce}, Sizes: sizes.Range{Min: 1 << 10, Max: 1 << 20, Factor: 4},
		Type: kernel.Float16, Op: kernel.Sum, Registered: []bool{false}, Budget: time.Minute, Blocks: []int{1, 8}, Threads: []int{128, 512},
	}
}

// tuned runs two ranks and returns what both of them found, which must be the same.
func tuned(t *testing.T, o tune.Options, prepare func(*member)) (tune.Result, *member) {
	t.Helper()
	var mu sync.Mutex
	var results []tune.Result
	var first *member
	benchtest.New(2).Together(t, func(b *benchtest.Member) error {
		m := &member{Member: b, names: []string{"slow", "quick", "wide"}, measured: map[tune.Choice]bool{}}
		prepare(m)
		r, err := tune.Run(context.Background(), m, o, nil)
		mu.Lock()
		defer mu.Unlock()
		if results = append(results, r); b.Rank() == 0 {
			first = m
		}
		return err
	})
	if len(results) != 2 || !slices.Equal(results[0].Rows, results[1].Rows) {
		t.Fatalf("the ranks disagree: %v", results)
	}
	return results[0], first
}

// bySize: one algorithm is quick for small messages, another for large ones, whatever
// the launch.
func bySize(c *bench.Call, with tune.Choice) time.Duration {
	bytes := c.Count * c.Type.Size()
	switch {
	case with.Algorithm == "slow":
		return 100 * time.Microsecond
	case with.Algorithm == "quick" && bytes <= 64<<10, with.Algorithm == "wide" && bytes > 64<<10:
		return 3 * time.Microsecond
	}
	return 20 * time.Microsecond
}

func TestFastestOfEachSize(t *testing.T) {
	r, m := tuned(t, options(), func(m *member) { m.cost = bySize })
	want := []tune.Row{
		{Collective: bench.AllReduce, MaxBytes: 64 << 10, Ranks: 2, Choice: tune.Choice{Algorithm: "quick"}, TimeUS: 3},
		{Collective: bench.AllReduce, MaxBytes: 1 << 20, Ranks: 2, Choice: tune.Choice{Algorithm: "wide"}, TimeUS: 3},
	}
	if !slices.Equal(r.Rows, want) || r.Skipped != 0 {
		t.Errorf("%+v, want %+v", r, want)
	}
	if !slices.Equal(m.table, want) {
		t.Errorf("the table in use is %+v", m.table)
	}
	if m.measured[tune.Choice{Algorithm: "slow", Blocks: 8, Threads: 512}] {
		t.Error("shapes of an algorithm that is far behind were measured")
	}
}

func TestBestShape(t *testing.T) {
	best := tune.Choice{Algorithm: "quick", Blocks: 8, Threads: 128}
	r, _ := tuned(t, options(), func(m *member) {
		m.cost = func(c *bench.Call, with tune.Choice) time.Duration {
			if with == best {
				return 2 * time.Microsecond
			}
			return bySize(c, tune.Choice{Algorithm: with.Algorithm})
		}
	})
	if len(r.Rows) == 0 || r.Rows[0].Choice != best || r.Rows[0].TimeUS != 2 {
		t.Errorf("%+v, want %+v first", r.Rows, best)
	}
}

// An execution plan has blocks of its own: no others are tried, and its row names none.
func TestPlansKeepTheirBlocks(t *testing.T) {
	r, m := tuned(t, options(), func(m *member) { m.cost, m.plan = bySize, "quick" })
	if len(r.Rows) != 2 || r.Rows[0].Choice != (tune.Choice{Algorithm: "quick"}) {
		t.Errorf("%+v, want a row without blocks", r.Rows)
	}
	for with := range m.measured {
		if with.Algorithm == "quick" && with.Blocks != 0 {
			t.Errorf("%+v was measured", with)
		}
	}
	if !m.measured[tune.Choice{Algorithm: "wide", Blocks: 8, Threads: 512}] {
		t.Error("shapes of the other algorithm were not measured")
	}
}

// Noise of a percent makes no rows.
func TestNeighborsStayTogether(t *testing.T) {
	o := options()
	o.Blocks, o.Threads = []int{}, []int{}
	r, _ := tuned(t, o, func(m *member) {
		m.names = []string{"slow", "quick"}
		m.cost = func(c *bench.Call, with tune.Choice) time.Duration {
			d := 1000 * time.Nanosecond
			if (with.Algorithm == "quick") == (c.Count*2 == 16<<10) {
				d += 10 // of 1000: the other is ahead, at one size
			}
			return d
		}
	})
	if len(r.Rows) != 1 || r.Rows[0].Algorithm != "quick" || r.Rows[0].MaxBytes != 1<<20 {
		t.Errorf("%+v, want one row", r.Rows)
	}
}

func TestUnusableShapesAreNotMeasured(t *testing.T) {
	r, m := tuned(t, options(), func(m *member) { m.cost, m.refuses = bySize, "quick" })
	if len(r.Rows) != 1 && len(r.Rows) != 2 || m.measured[tune.Choice{Algorithm: "quick"}] {
		t.Errorf("%+v; measured %v", r.Rows, m.measured)
	}
	for _, row := range r.Rows {
		if row.Algorithm != "wide" {
			t.Errorf("%+v, want wide", row)
		}
	}
}

func TestWithoutAChoiceThereIsNoRow(t *testing.T) {
	r, m := tuned(t, options(), func(m *member) { m.names, m.cost, m.onHost = []string{"only"}, bySize, true })
	if len(r.Rows) != 0 || r.Skipped != 0 || len(m.measured) != 0 {
		t.Errorf("%+v after measuring %v", r, m.measured)
	}
}

// Results contain only points that were measured.
func TestBudget(t *testing.T) {
	o := options()
	o.Budget = 1
	r, _ := tuned(t, o, func(m *member) { m.cost = bySize })
	if len(r.Rows) != 0 || r.Skipped != len(o.Sizes.List()) {
		t.Errorf("%+v, want no rows and all sizes left out", r)
	}
}

func TestKindsOfBuffersHaveRows(t *testing.T) {
	o := options()
	o.Registered, o.Collectives = []bool{false, true}, []bench.Collective{bench.AllGather, bench.Broadcast}
	r, _ := tuned(t, o, func(m *member) {
		m.cost = func(c *bench.Call, with tune.Choice) time.Duration {
			if c.Registered == (with.Algorithm == "wide") {
				return time.Microsecond
			}
			return time.Millisecond
		}
	})
	var got []string
	for _, row := range r.Rows {
		got = append(got, fmt.Sprint(row.Collective, " ", row.Registered, " ", row.Algorithm == "wide", " ", row.MaxBytes))
	}
	want := "allgather false false 1048576, broadcast false false 1048576, allgather true true 1048576, broadcast true true 1048576"
	if strings.Join(got, ", ") != want {
		t.Errorf("%s, want %s", strings.Join(got, ", "), want)
	}
}

func TestErrorNamesWhatWasMeasured(t *testing.T) {
	h := benchtest.New(1)
	m := &member{Member: h.Member(0), names: []string{"quick", "slow"}, measured: map[tune.Choice]bool{}, cost: bySize}
	ctx, cancel := context.WithCancelCause(context.Background())
	cancel(fmt.Errorf("enough"))
	_, err := tune.Run(ctx, m, options(), nil)
	if err == nil || !strings.Contains(err.Error(), "tune allreduce: 1K: algorithm quick") || !strings.Contains(err.Error(), "enough") {
		t.Errorf("%v", err)
	}
}

func TestYAML(t *testing.T) {
	var b strings.Builder
	rows := []tune.Row{
		{Collective: bench.AllReduce, MaxBytes: 64 << 10, Ranks: 4, Registered: true, Choice: tune.Choice{Algorithm: "a", Blocks: 8, Threads: 512}, TimeUS: 2.345},
		{Collective: bench.Broadcast, MaxBytes: 1000, Ranks: 4, Choice: tune.Choice{Algorithm: "b"}, TimeUS: 10},
	}
	if err := tune.YAML(&b, rows, "one", "two"); err != nil {
		t.Fatal(err)
	}
	want := `# one
# two
collectives:
  table:
    - {collective: allreduce, max_bytes: 64K, min_ranks: 4, max_ranks: 4, registered: true, algorithm: a, blocks: 8, threads: 512} # 2.35 us
    - {collective: broadcast, max_bytes: 1000, min_ranks: 4, max_ranks: 4, registered: false, algorithm: b} # 10.00 us
`
	if b.String() != want {
		t.Errorf("%s\nwant\n%s", b.String(), want)
	}
	b.Reset()
	if err := tune.WithPlans(&b, nil, []tune.Plan{{Path: "/a b.json"}, {Path: "/c.json", Unverified: true}}); err != nil ||
		b.String() != "collectives:\n  plans:\n    - {path: \"/a b.json\"}\n    - {path: \"/c.json\", unverified: true}\n  table: []\n" {
		t.Errorf("%q, %v", b.String(), err)
	}
	b.Reset()
	if err := tune.YAML(&b, nil); err != nil || b.String() != "collectives:\n  table: []\n" {
		t.Errorf("%q, %v", b.String(), err)
	}
}
