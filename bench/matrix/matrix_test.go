package matrix

import (
	"context"
	"errors"
	"fmt"
	"reflect"
	"slices"
	"strings"
	"testing"
	"unsafe"

	"github.com/mscclpp-go/mscclpp/bench"
	"github.com/mscclpp-go/mscclpp/bench/benchtest"
	"github.com/mscclpp-go/mscclpp/framework"
	"github.com/mscclpp-go/mscclpp/framework/kernel"
)

func support(ranks int) Support {
	return Support{
		Ranks: ranks,
		Algorithms: func(c bench.Collective) []string {
			if c == bench.AllReduce {
				return []string{"ring", "packet"}
			}
			return []string{"ring"}
		},
		Runs: func(c Case) bool { return c.Algorithm != "packet" || !c.Registered },
	}
}

func TestCasesArePossibleAndPrintable(t *testing.T) {
	for _, tier := range Tiers {
		s := support(4)
		cases := tier.Cases(s)
		room := Room(cases, 4)
		for i, c := range cases {
			if len(tier.All) > 0 && i%11 != 0 {
				continue // thousands
			}
			if c.InPlace && !c.Collective.HasInPlace() || c.Root != 0 && !c.Collective.Rooted() ||
				c.Algorithm != "" && (!slices.Contains(s.Algorithms(c.Collective), c.Algorithm) || !s.Runs(c)) {
				t.Fatalf("%s: %s is impossible", tier.Name, c)
			}
			if back, err := ParseCase(c.String()); err != nil || back != c {
				t.Fatalf("ParseCase(%q) = %+v, %v", c, back, err)
			}
			if c.bytes(4) > room {
				t.Fatalf("%s does not fit", c)
			}
		}
		for _, want := range []string{"allreduce,f32,sum,", "algorithm=packet", "registered", "in-place", "offset=1", "root=3", "e4m3b15", "premulsum", ",0"} {
			if !slices.ContainsFunc(cases, func(c Case) bool { return strings.Contains(c.String(), want) }) {
				t.Errorf("%s: no case has %q", tier.Name, want)
			}
		}
		if again := tier.Cases(s); !reflect.DeepEqual(cases, again) {
			t.Errorf("%s: two calls give different cases", tier.Name)
		}
	}
	quick, full := len(Tiers[0].Cases(support(4))), len(Tiers[1].Cases(support(4)))
	if quick > 400 || full < 20*quick {
		t.Errorf("%d cases in quick, %d in full", quick, full)
	}
}

// An algorithm that the selector may choose has to work: those cases are never left out.
func TestNothingExcusesTheSelector(t *testing.T) {
	s := support(2)
	s.Runs = func(Case) bool { return false }
	collectives := map[bench.Collective]bool{}
	types := map[kernel.DataType]bool{}
	for _, c := range Tiers[0].Cases(s) {
		if c.Algorithm != "" {
			t.Fatalf("%s, though no algorithm runs anything", c)
		}
		collectives[c.Collective], types[c.Type] = true, true
	}
	if len(collectives) != len(bench.All()) || len(types) != kernel.DataTypes {
		t.Errorf("%d collectives and %d types", len(collectives), len(types))
	}
}

func TestOneRank(t *testing.T) {
	for _, c := range Tiers[0].Cases(support(1)) {
		if c.Root != 0 {
			t.Fatalf("%s in a group of one", c)
		}
	}
}

func TestParseCaseRejects(t *testing.T) {
	for text, want := range map[string]string{
		"":                         "collective",
		"allredce,f32,sum,1":       "collective",
		"allreduce,f32,sum":        "no count",
		"allreduce,f33,sum,1":      "f33",
		"allreduce,f32,sum,-1":     "-1",
		"allgather,f32,sum,1":      "sum",
		"allreduce,f32,1,root=1":   "no root",
		"alltoallv,f32,1,in-place": "in-place",
		"allreduce,f32,1,speed=1":  "speed",
		"allreduce,f32,1,offset=x": "x",
	} {
		if c, err := ParseCase(text); !errors.Is(err, framework.ErrInvalid) || !strings.Contains(err.Error(), want) {
			t.Errorf("ParseCase(%q) = %+v, %v; want an error about %q", text, c, err, want)
		}
	}
}

// cases for a group that knows sums of 32-bit integers.
func plain() []Case {
	var all []Case
	for _, c := range bench.All() {
		for _, n := range []int{0, 1, 1000} {
			for _, registered := range []bool{false, true} {
				all = append(all, Case{Collective: c, Type: kernel.Int32, Count: n, Registered: registered, InPlace: c.HasInPlace() && n == 1, Offset: n % 2})
			}
		}
	}
	return all
}

type outcome struct {
	passed, failed int
	err            error
}

func run(t *testing.T, h *benchtest.Hub, cases []Case) (all []outcome, failures []string) {
	t.Helper()
	all = make([]outcome, len(h.Calls))
	h.Together(t, func(m *benchtest.Member) error {
		passed, failed, err := Run(context.Background(), m, cases, &bench.Verifier{Reference: benchtest.Exact{}}, Observer{
			Failed: func(c Case, why string) { failures = append(failures, fmt.Sprintf("%s: %s", c, why)) }, // on rank 0 alone
		})
		all[m.Rank()] = outcome{passed, failed, err}
		return nil
	})
	return all, failures
}

func TestRunPasses(t *testing.T) {
	cases := plain()
	for _, ranks := range []int{1, 3} {
		all, failures := run(t, benchtest.New(ranks), cases)
		for r, o := range all {
			if o != (outcome{len(cases), 0, nil}) {
				t.Errorf("%d ranks: rank %d has %+v, want %d passed; %q", ranks, r, o, len(cases), failures)
			}
		}
	}
}

func TestFailureIsNamedAndTheRestIsRun(t *testing.T) {
	cases := plain()
	for name, c := range map[string]struct {
		tamper func(rank int, c *bench.Call)
		refuse func(rank int, c *bench.Call) error
		want   string
	}{
		"wrong": {tamper: func(rank int, c *bench.Call) {
			if rank == 2 && c.Collective == bench.AllGather && c.Count == 1000 {
				*(*byte)(c.Out) ^= 1
			}
		}, want: "rank 2: 1 wrong elements"},
		"refused": {refuse: func(_ int, c *bench.Call) error {
			if c.Collective == bench.AllGather && c.Count == 1000 {
				return fmt.Errorf("%w: not today", framework.ErrUnsupported)
			}
			return nil
		}, want: "rank 0: unsupported: not today; rank 1: "},
	} {
		h := benchtest.New(3)
		h.Tamper, h.Refuse = c.tamper, c.refuse
		all, failures := run(t, h, cases)
		for r, o := range all {
			if o != (outcome{len(cases) - 2, 2, nil}) {
				t.Errorf("%s: rank %d has %+v, want 2 of %d failed", name, r, o, len(cases))
			}
		}
		if len(failures) != 2 || !strings.HasPrefix(failures[0], "allgather,i32,1000: ") || !strings.Contains(failures[0], c.want) {
			t.Errorf("%s: failures %q, want %q", name, failures, c.want)
		}
	}
}

func TestDeadGroupStopsTheRun(t *testing.T) {
	cases := plain()
	h := benchtest.New(2)
	h.Refuse = func(_ int, c *bench.Call) error {
		if c.Collective == bench.AllGather {
			return fmt.Errorf("%w: rank 1 was killed", framework.ErrPeer)
		}
		return nil
	}
	all, failures := run(t, h, cases)
	for r, o := range all {
		if o.passed != 6 || o.failed != len(cases)-6 || !errors.Is(o.err, framework.ErrPeer) {
			t.Errorf("rank %d: %+v, want 6 passed and the rest failed", r, o)
		}
	}
	if len(failures) != 1 || !strings.Contains(failures[0], "was killed") {
		t.Errorf("failures %q", failures)
	}
}

func TestResultsMustNotDependOnTheRun(t *testing.T) {
	ok := verdict{Digests: [2]uint32{5, 5}}
	for _, c := range []struct {
		collective bench.Collective
		all        []verdict
		want       string
	}{
		{bench.AllReduce, []verdict{ok, ok}, ""},
		{bench.AllReduce, []verdict{ok, {Digests: [2]uint32{5, 6}}}, "rank 1: two calls on the same input differ"},
		{bench.AllReduce, []verdict{ok, {Digests: [2]uint32{6, 6}}}, "rank 1: the result is not that of rank 0"},
		{bench.AllToAll, []verdict{ok, {Digests: [2]uint32{6, 6}}}, ""},
	} {
		if got := judge(Case{Collective: c.collective}, c.all); !strings.HasPrefix(got, c.want) || c.want == "" && got != "" {
			t.Errorf("%s %v: %q, want %q", c.collective, c.all, got, c.want)
		}
	}
}

func TestWritingBehindTheLargestOutputIsSeen(t *testing.T) {
	h := benchtest.New(2)
	h.Tamper = func(rank int, c *bench.Call) {
		*(*byte)(unsafe.Add(c.Out, c.Count*c.Type.Size())) = 0
	}
	all, _ := run(t, h, []Case{{Collective: bench.AllReduce, Type: kernel.Int32, Count: 100}})
	if all[0].failed != 1 {
		t.Errorf("%+v: a write behind the buffer passes", all[0])
	}
}
