// Package tune determines by measurement which algorithm is fastest on this machine,
// and writes the result as rows of the table collectives.table.
//
// For every collective, kind of buffers and size it briefly measures every algorithm
// that can serve the call; on GPUs it also measures the best of them with other numbers
// of blocks and threads. Then it measures for longer those that came close to the best.
// A point for which the time runs out yields no row.
package tune

import (
	"cmp"
	"context"
	"fmt"
	"slices"
	"time"

	"github.com/mscclpp-go/mscclpp/bench"
	"github.com/mscclpp-go/mscclpp/bench/sizes"
	"github.com/mscclpp-go/mscclpp/framework/kernel"
)

// Row is a row of the table. Its fields are those of the configuration; it is for
// the number of ranks that it was measured with.
type Row struct {
	Collective bench.Collective
	MaxBytes   int64
	Ranks      int
	Registered bool
	Choice
	TimeUS float64 // at MaxBytes
}

// Choice is the algorithm and the launch shape of a call. Blocks and Threads of 0 leave
// the number to the library.
type Choice struct {
	Algorithm       string
	Blocks, Threads int
}

// Group is a group whose table can be replaced.
type Group interface {
	bench.Group
	// UseTable has calls that name no algorithm follow the rows first. All ranks call
	// it alike.
	UseTable([]Row) error
}

// fixed is a group some of whose algorithms have their own number of blocks and threads, as execution plans do.
type fixed interface{ Fixed(algorithm string) bool }

// Options say what to measure.
type Options struct {
	Collectives []bench.Collective
	Sizes       sizes.Range
	Type        kernel.DataType
	Op          kernel.Op
	Registered  []bool // kinds of buffers
	Budget      time.Duration
	Blocks      []int // to try on GPUs; nil: a choice from few to many
	Threads     []int
}

var (
	defaultBlocks  = []int{1, 8, 16, 32, 64, 128}
	defaultThreads = []int{128, 256, 512, 1024}
)

const (
	promising = 1.25 // times the best: worth other shapes
	rivaling  = 1.1  // times the best: worth a longer look
	finalist  = 4    // at most, for that
	keep      = 1.02 // times the best: the winner of the size before stays, so that noise makes no rows
)

// Result has the findings of Run, and how many points it skipped.
type Result struct {
	Rows    []Row
	Skipped int // points for which there was no time
}

// Run measures. Every rank calls it with equal options and receives the same rows.
// Starting is called on rank 0 before each point; it may be nil.
func Run(ctx context.Context, g Group, o Options, starting func(c bench.Collective, bytes int64)) (Result, error) {
	t := &tuner{ctx: ctx, g: g, o: o, end: time.Now().Add(o.Budget)}
	if t.o.Blocks == nil {
		t.o.Blocks = defaultBlocks
	}
	if t.o.Threads == nil {
		t.o.Threads = defaultThreads
	}
	t.left = len(o.Collectives) * len(o.Registered) * len(o.Sizes.List())
	var out Result
	for _, registered := range o.Registered {
		w, err := bench.NewWindow(g, o.Sizes.Max, false, registered)
		if err != nil {
			return out, fmt.Errorf("tune: buffers of %s: %w", sizes.Format(o.Sizes.Max), err)
		}
		for _, c := range o.Collectives {
			if err := t.collective(c, w, registered, starting, &out); err != nil {
				return out, fmt.Errorf("tune %s: %w", c, err)
			}
		}
	}
	return out, g.UseTable(out.Rows)
}

type tuner struct {
	ctx  context.Context
	g    Group
	o    Options
	end  time.Time
	left int // points
}

// measured is a choice with its time.
type measured struct {
	Choice
	us float64
}

func (t *tuner) collective(c bench.Collective, w bench.Window, registered bool, starting func(bench.Collective, int64), out *Result) error {
	var rows []Row
	for _, bytes := range t.o.Sizes.List() {
		call := &bench.Call{Collective: c, Type: t.o.Type, Op: t.o.Op, Scale: 1, Count: bench.Count(c, bytes, t.o.Type.Size(), t.g.Size())}
		if c == bench.AllToAllV {
			call.V = bench.UnevenBlocks(call.Count, t.g.Size(), t.g.Rank())
		}
		w.Place(call, t.g.Rank(), 0)
		choices := t.choices(call)
		deadline := time.Now().Add(time.Until(t.end) / time.Duration(t.left))
		t.left--
		if len(choices) == 0 || len(choices) == 1 && t.g.Queue() == nil {
			continue // nothing to choose
		}
		if starting != nil && t.g.Rank() == 0 {
			starting(c, bytes)
		}
		list, err := t.point(call, bytes, choices, deadline)
		if err != nil {
			return fmt.Errorf("%s: %w", sizes.Format(bytes), err)
		}
		if list == nil {
			out.Skipped++
			continue
		}
		rows = extend(rows, Row{Collective: c, MaxBytes: bench.Larger(c, call.Count, t.g.Size()) * int64(t.o.Type.Size()), Ranks: t.g.Size(), Registered: registered}, list)
	}
	out.Rows = append(out.Rows, rows...)
	return nil
}

// choices lists the algorithms that can serve the call.
func (t *tuner) choices(call *bench.Call) []Choice {
	var list []Choice
	for _, name := range t.g.Algorithms(call.Collective) {
		named := *call
		named.Algorithm = name
		if _, err := t.g.Chosen(&named); err == nil {
			list = append(list, Choice{Algorithm: name})
		}
	}
	return list
}

// point measures one size, the best choice first. nil: there was not enough time.
func (t *tuner) point(call *bench.Call, bytes int64, choices []Choice, deadline time.Time) ([]measured, error) {
	plan := bench.DefaultPlan(bytes)
	if t.g.Queue() != nil {
		plan = bench.GraphPlan(bytes, 10)
	}
	brief := plan
	brief.Warmup, brief.Iterations = 1, max(3, plan.Iterations/20)
	var list []measured
	for _, c := range choices {
		if late, err := t.late(t.end); late || err != nil {
			return nil, err
		}
		m, err := t.measure(call, c, brief)
		if err != nil {
			return nil, err
		}
		list = append(list, m)
	}
	sortByTime(list)
	if t.g.Queue() != nil {
		for _, c := range t.shapes(list) {
			if late, err := t.late(deadline); late || err != nil {
				if err != nil {
					return nil, err
				}
				break
			}
			m, err := t.measure(call, c, brief)
			if err != nil {
				return nil, err
			}
			list = append(list, m)
		}
		sortByTime(list)
	}
	return t.final(call, plan, list, deadline)
}

// shapes lists the other launches of the algorithms that were almost as fast as the best.
func (t *tuner) shapes(list []measured) []Choice {
	var more []Choice
	for _, m := range list {
		if m.us > promising*list[0].us {
			break
		}
		if g, ok := t.g.(fixed); ok && g.Fixed(m.Algorithm) {
			continue
		}
		for _, blocks := range t.o.Blocks {
			for _, threads := range t.o.Threads {
				more = append(more, Choice{m.Algorithm, blocks, threads})
			}
		}
	}
	return more
}

// final measures those at the top for longer. Brief measurements are not compared
// with longer ones: one of the latter wins, if there are.
func (t *tuner) final(call *bench.Call, plan bench.Plan, list []measured, deadline time.Time) ([]measured, error) {
	var top []measured
	for _, m := range list[:min(len(list), finalist)] {
		if m.us > rivaling*list[0].us || len(list) == 1 {
			break
		}
		late, err := t.late(deadline)
		if err != nil {
			return nil, err
		}
		if late {
			break
		}
		again, err := t.measure(call, m.Choice, plan)
		if err != nil {
			return nil, err
		}
		top = append(top, again)
	}
	if len(top) < 2 {
		return list, nil
	}
	sortByTime(top)
	return top, nil
}

func sortByTime(list []measured) {
	slices.SortStableFunc(list, func(a, b measured) int { return cmp.Compare(a.us, b.us) })
}

// measure times the call as a table with this one row makes it.
func (t *tuner) measure(call *bench.Call, c Choice, plan bench.Plan) (measured, error) {
	row := Row{Collective: call.Collective, Ranks: t.g.Size(), Registered: call.Registered, Choice: c}
	if err := t.g.UseTable([]Row{row}); err != nil {
		return measured{}, err
	}
	us, err := bench.Measure(t.ctx, t.g, call, plan)
	if err != nil {
		return measured{}, fmt.Errorf("algorithm %s, %d blocks of %d threads: %w", c.Algorithm, c.Blocks, c.Threads, err)
	}
	return measured{c, us}, nil
}

// late says whether it is after a time, by the clock of rank 0: all ranks must agree
// on what is measured next.
func (t *tuner) late(than time.Time) (bool, error) {
	mine := []byte{0}
	if time.Now().After(than) {
		mine[0] = 1
	}
	all, err := t.g.AllGather(t.ctx, mine)
	if err != nil {
		return false, fmt.Errorf("agreement on the time: %w", err)
	}
	if len(all) == 0 || len(all[0]) != 1 {
		return false, fmt.Errorf("agreement on the time: rank 0 sent %d bytes, expected 1", len(all[0]))
	}
	return all[0][0] == 1, nil
}

// extend adds the row of a size, or widens the one before if its choice is as good.
func extend(rows []Row, row Row, list []measured) []Row {
	if n := len(rows); n > 0 {
		for _, m := range list {
			if m.Choice == rows[n-1].Choice && m.us <= keep*list[0].us {
				rows[n-1].MaxBytes, rows[n-1].TimeUS = row.MaxBytes, m.us
				return rows
			}
		}
	}
	row.Choice, row.TimeUS = list[0].Choice, list[0].us
	return append(rows, row)
}
