package bench

import (
	"context"
	"encoding/binary"
	"errors"
	"math"
	"strings"
	"testing"

	"github.com/mscclpp-go/mscclpp/bench/sizes"
	"github.com/mscclpp-go/mscclpp/framework"
	"github.com/mscclpp-go/mscclpp/framework/kernel"
)

// parts is a group of which only the exchange is real: it answers what the test says
// that the other ranks sent.
type parts struct {
	Group
	others [][]byte
	err    error
	sent   []byte
}

func (p *parts) AllGather(_ context.Context, mine []byte) ([][]byte, error) {
	p.sent = mine
	return append([][]byte{mine}, p.others...), p.err
}

func word(v uint64) []byte { return binary.LittleEndian.AppendUint64(nil, v) }

func TestSlowestIsExchanged(t *testing.T) {
	us := func(v float64) []byte { return word(math.Float64bits(v)) }
	for name, c := range map[string]struct {
		others [][]byte
		want   float64
	}{
		"alone":           {nil, 2.5},
		"mine is it":      {[][]byte{us(1), us(2.25)}, 2.5},
		"another's":       {[][]byte{us(1), us(7.125)}, 7.125},
		"one has no time": {[][]byte{us(math.NaN()), us(9)}, math.NaN()},
	} {
		got, err := slowest(context.Background(), &parts{others: c.others}, 2.5)
		if err != nil || got != c.want && !(math.IsNaN(got) && math.IsNaN(c.want)) {
			t.Errorf("%s: %v, %v; want %v", name, got, err, c.want)
		}
	}
}

func TestErrorCountsAreAddedUp(t *testing.T) {
	got, err := total(context.Background(), &parts{others: [][]byte{word(0), word(1 << 40), word(5)}}, 3)
	if want := int64(1<<40 + 8); err != nil || got != want {
		t.Errorf("%d, %v; want %d", got, err, want)
	}
}

// Bytes that are no number of a rank are that rank's fault, and said to be.
func TestBadExchanges(t *testing.T) {
	lost := errors.New("rank 2 was killed")
	for want, g := range map[string]*parts{
		"rank 2 sent 7 bytes, expected 8": {others: [][]byte{word(1), make([]byte, 7)}},
		"rank 1 sent 0 bytes, expected 8": {others: [][]byte{nil, word(1)}},
		"rank 2 was killed":               {err: lost},
	} {
		if _, err := slowest(context.Background(), g, 1); err == nil || !strings.Contains(err.Error(), want) || !strings.HasPrefix(err.Error(), "exchange of times: ") {
			t.Errorf("times: %v, want %q", err, want)
		}
		_, err := total(context.Background(), g, 1)
		if err == nil || !strings.Contains(err.Error(), want) || !strings.HasPrefix(err.Error(), "exchange of error counts: ") {
			t.Errorf("counts: %v, want %q", err, want)
		}
		if g.err != nil && !errors.Is(err, lost) {
			t.Errorf("%v does not wrap its cause", err)
		}
	}
}

// A typed value wins over the one that the size suggests, field by field.
func TestPlanIsTheTypedOneOverTheDefault(t *testing.T) {
	byDefault := DefaultPlan(1 << 20)
	for name, c := range map[string]struct {
		typed Plan
		want  Plan
	}{
		"nothing":    {Plan{}, byDefault},
		"iterations": {Plan{Iterations: 3}, Plan{Warmup: byDefault.Warmup, Iterations: 3, Calls: byDefault.Calls}},
		"calls":      {Plan{Calls: 7}, Plan{Warmup: byDefault.Warmup, Iterations: byDefault.Iterations, Calls: 7}},
		"warmup":     {Plan{Warmup: 2}, Plan{Warmup: 2, Iterations: byDefault.Iterations, Calls: byDefault.Calls}},
		"no warmup":  {Plan{Warmup: -1}, Plan{Iterations: byDefault.Iterations, Calls: byDefault.Calls}},
		"all":        {Plan{Warmup: 1, Iterations: 2, Calls: 3}, Plan{Warmup: 1, Iterations: 2, Calls: 3}},
	} {
		if got := (Options{Plan: c.typed}).plan(1 << 20); got != c.want {
			t.Errorf("%s: %+v, want %+v", name, got, c.want)
		}
	}
}

// An iteration is never shorter than the clock and the barrier can resolve, and a sweep
// up to the largest sizes still ends.
func TestDefaultPlansOfAllSizes(t *testing.T) {
	for bytes := int64(1); bytes <= 1<<40; bytes *= 2 {
		p := DefaultPlan(bytes)
		if p.Calls < 1 || p.Calls > 64 || p.Iterations < 20 || p.Warmup < 1 {
			t.Errorf("%d bytes: %+v", bytes, p)
		}
		if moved := int64(p.Calls) * bytes; moved < 1<<20 && p.Calls < 64 {
			t.Errorf("%d bytes: an iteration moves %d bytes in %d calls", bytes, moved, p.Calls)
		}
		if before := DefaultPlan(bytes / 2); before.Calls < p.Calls || before.Iterations < p.Iterations {
			t.Errorf("%d bytes are done more often, %+v, than half of them, %+v", bytes, p, before)
		}
	}
}

func TestKindsOfOptions(t *testing.T) {
	good := Options{Collective: Broadcast, Sizes: sizes.Range{Min: 1, Max: 1 << 40, Factor: 2}, Root: 3, InPlace: true, Plan: Plan{Warmup: -1}}
	if err := good.Validate(4); err != nil {
		t.Errorf("%+v: %v", good, err)
	}
	for want, change := range map[string]func(*Options){
		"root 4: expected 0 to 3":          func(o *Options) { o.Root = 4 },
		"root -1: expected 0 to 3":         func(o *Options) { o.Root = -1 },
		"has no root, root 3 was given":    func(o *Options) { o.Collective = AllGather },
		"has no in-place form":             func(o *Options) { o.Collective, o.Root = SendRecv, 0 },
		"expected at most 10000000":        func(o *Options) { o.Plan.Iterations = 99_999_999_999 },
		"a negative number of iterations":  func(o *Options) { o.Plan.Warmup = -2 },
		"1099511627777: more than 1T":      func(o *Options) { o.Sizes.Max++ },
		"bench broadcast: a negative numb": func(o *Options) { o.Plan.Iterations = -1 },
	} {
		o := good
		change(&o)
		if err := o.Validate(4); !errors.Is(err, framework.ErrInvalid) || !strings.Contains(err.Error(), want) {
			t.Errorf("%v, want %q", err, want)
		}
	}
}

// Rows say what was measured and not what was asked for: whole elements, and no
// reduction or root where the collective has none.
func TestRowsDescribeTheCall(t *testing.T) {
	for _, c := range All() {
		o := Options{Collective: c, Type: kernel.Float16, Op: kernel.Max, Root: 2}
		count := Count(c, 1001, 2, 3)
		row := o.describe(&Call{Collective: c, Type: o.Type, Count: count}, 3)
		if row.Bytes > 1001 || row.Bytes < 1001-2*3*3 || row.Bytes%2 != 0 {
			t.Errorf("%s: %d bytes of 1001 asked for", c, row.Bytes)
		}
		if (row.Op == "max") != c.Reduces() || (row.Op == "none") == c.Reduces() {
			t.Errorf("%s: reduction %q", c, row.Op)
		}
		if (row.Root == 2) != c.Rooted() || (row.Root == -1) == c.Rooted() {
			t.Errorf("%s: root %d", c, row.Root)
		}
		if row.Collective != c.String() || row.DType != "f16" || row.Ranks != 3 || row.Errors != nil || row.Count != int64(count) {
			t.Errorf("%s: %+v", c, row)
		}
	}
}

func TestFastestIterationOrMedian(t *testing.T) {
	samples := []float64{5, 2, 9}
	if got := (Plan{}).of(samples); got != 5 {
		t.Errorf("%v, expected the median", got)
	}
	if got := (Plan{Fastest: true}).of(samples); got != 2 {
		t.Errorf("%v, expected the fastest", got)
	}
}
