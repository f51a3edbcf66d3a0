package measure

import (
	"bytes"
	"errors"
	"fmt"
	"os"
	"strings"
	"syscall"
	"testing"

	"github.com/spf13/cobra"

	"github.com/mscclpp-go/mscclpp/bench"
	"github.com/mscclpp-go/mscclpp/bench/matrix"
	"github.com/mscclpp-go/mscclpp/bench/sizes"
	"github.com/mscclpp-go/mscclpp/cmd/mscclpp-run/internal/verb"
	"github.com/mscclpp-go/mscclpp/framework"
	"github.com/mscclpp-go/mscclpp/framework/kernel"
)

// parseVerb does what the launcher does before it starts ranks.
func parseVerb(c *cobra.Command, args ...string) error {
	if err := c.ParseFlags(args); err != nil {
		return err
	}
	return c.ValidateArgs(c.Flags().Args())
}

func TestBenchFlags(t *testing.T) {
	f := &benchFlags{}
	c := f.command(&verb.Env{})
	if err := parseVerb(c, "reduce-scatter", "--bytes", "1K:64M", "--factor", "4", "--dtype", "bf16", "--op", "max", "--algorithm", "ring",
		"--iters", "7", "--calls", "3", "--warmup", "0", "--in-place", "--registered", "--check"); err != nil {
		t.Fatal(err)
	}
	want := bench.Options{
		Collective: bench.ReduceScatter, Sizes: sizes.Range{Min: 1 << 10, Max: 64 << 20, Factor: 4}, Type: kernel.BFloat16, Op: kernel.Max,
		Algorithm: "ring", Plan: bench.Plan{Iterations: 7, Calls: 3, Warmup: -1}, InPlace: true, Registered: true, Check: true,
	}
	if f.options != want {
		t.Errorf("%+v, want %+v", f.options, want)
	}
}

// Several collectives, both places and several graphs are measured by one job.
func TestBenchCombines(t *testing.T) {
	f := &benchFlags{}
	if err := parseVerb(f.command(&verb.Env{}), "allreduce", "broadcast", "alltoallv", "--in-place=both", "--graph", "20,0", "--root", "0"); err != nil {
		t.Fatal(err)
	}
	var got []string
	for _, o := range f.all {
		got = append(got, fmt.Sprintf("%s %v %d", o.Collective, o.InPlace, o.Plan.Calls))
	}
	want := "allreduce false 20, allreduce false 0, allreduce true 20, allreduce true 0, " +
		"broadcast false 20, broadcast false 0, broadcast true 20, broadcast true 0, alltoallv false 20, alltoallv false 0"
	if strings.Join(got, ", ") != want {
		t.Errorf("%s, want %s", strings.Join(got, ", "), want)
	}
}

// The letters of nccl-tests mean the same, except -n, which is the number of ranks.
func TestBenchShortFlags(t *testing.T) {
	f := &benchFlags{}
	if err := parseVerb(f.command(&verb.Env{}), "broadcast", "-b", "8", "-e", "128M", "-f", "2", "-d", "float", "-o", "sum", "--iters", "20", "-w", "1", "-r", "3", "-c"); err != nil {
		t.Fatal(err)
	}
	if o := f.options; o.Sizes != (sizes.Range{Min: 8, Max: 128 << 20, Factor: 2}) || o.Type != kernel.Float32 || o.Plan.Iterations != 20 || o.Root != 3 || !o.Check {
		t.Errorf("%+v", o)
	}
}

func TestBenchMistakesAreFoundBeforeRanksStart(t *testing.T) {
	for want, args := range map[string][]string{
		"expected a collective":  {},
		`"allredce"`:             {"allredce"},
		"unknown flag: --byte":   {"allreduce", "--byte", "1"},
		`"1X"`:                   {"allreduce", "--bytes", "1X"},
		"larger than the second": {"allreduce", "--bytes", "2K:1K"},
		"factor 1":               {"allreduce", "--factor", "1"},
		`"f33"`:                  {"allreduce", "--dtype", "f33"},
		`"add"`:                  {"allreduce", "--op", "add"},
		`--format "xml"`:         {"allreduce", "--format", "xml"},
		"--warmup -2":            {"allreduce", "--warmup", "-2"},
		"--graph -1":             {"allreduce", "--graph", "-1"},
		"no --calls beside it":   {"allreduce", "--graph", "20,1", "--calls", "3"},
		"--in-place=never":       {"allreduce", "--in-place=never"},
		"has no in-place form":   {"alltoallv", "--in-place"},
		"has no root":            {"allreduce", "--root", "1"},
		"a negative number of":   {"allreduce", "--iters", "-1"},
		"names both ends":        {"allreduce", "--bytes", "1:2", "-e", "4"},
	} {
		if err := parseVerb((&benchFlags{}).command(&verb.Env{}), args...); err == nil || !strings.Contains(err.Error(), want) {
			t.Errorf("%q: %v, want %q", args, err, want)
		}
	}
}

func TestCheckFlags(t *testing.T) {
	f := &checkFlags{}
	if err := parseVerb(f.command(&verb.Env{}), "--case", "allreduce,f32,sum,7", "--case", "gather,i8,3,root=1"); err != nil {
		t.Fatal(err)
	}
	if len(f.parsed) != 2 || f.parsed[1].Root != 1 {
		t.Errorf("%+v", f)
	}
	f = &checkFlags{}
	if err := parseVerb(f.command(&verb.Env{}), "--tier", "full", "--at-most", "3"); err != nil || f.chosen.Name != "full" || f.most != 3 {
		t.Errorf("%v, %+v", err, f)
	}
	for want, args := range map[string][]string{
		`--tier "slow": expected quick or full`: {"--tier", "slow"},
		"--tier beside --case":                  {"--tier", "full", "--case", "allreduce,f32,sum,7"},
		"--at-most beside --case":               {"--at-most", "3", "--case", "allreduce,f32,sum,7"},
		`unexpected argument "full"`:            {"full"},
		`case "allreduce,f32": `:                {"--case", "allreduce,f32"},
		"expected a number of cases":            {"--at-most", "-1"},
	} {
		if err := parseVerb((&checkFlags{}).command(&verb.Env{}), args...); err == nil || !strings.Contains(err.Error(), want) {
			t.Errorf("%q: %v, want %q", args, err, want)
		}
	}
}

// A check that has nothing to check is an error, and no success.
func TestCheckOfNothing(t *testing.T) {
	if err := fit(nil, 2); !errors.Is(err, framework.ErrUnsupported) || !strings.Contains(err.Error(), "none of the cases can run with 2 ranks") {
		t.Errorf("%v, expected ErrUnsupported", err)
	}
	if err := fit([]matrix.Case{{Root: 1}}, 2); err != nil {
		t.Error(err)
	}
	if err := fit([]matrix.Case{{Root: 2}}, 2); !errors.Is(err, framework.ErrInvalid) {
		t.Errorf("%v, expected ErrInvalid", err)
	}
}

// A few of many cases are some of each collective, in the order of the whole.
func TestSpread(t *testing.T) {
	var all []matrix.Case
	for n := range 100 {
		all = append(all, matrix.Case{Collective: bench.All()[n/25], Count: n})
	}
	for n, want := range map[int]int{0: 100, 1: 1, 8: 8, 33: 33, 100: 100, 1000: 100} {
		few, of := spread(all, n), map[bench.Collective]int{}
		for i, c := range few {
			of[c.Collective]++
			if i > 0 && c.Count <= few[i-1].Count {
				t.Errorf("%d: case %d follows case %d", n, c.Count, few[i-1].Count)
			}
		}
		if len(few) != want || few[0].Count != 0 {
			t.Errorf("%d: %d cases from %d: expected %d from 0", n, len(few), few[0].Count, want)
		}
		for c, share := range of {
			if want >= 4 && (share < want/4 || share > want/4+1) {
				t.Errorf("%d: %d cases of %v: expected a quarter", n, share, c)
			}
		}
	}
}

// A verdict that cannot be written, on a full disk for one, is a failure.
func TestVerdictIsRead(t *testing.T) {
	full, err := os.OpenFile("/dev/full", os.O_WRONLY, 0)
	if err != nil {
		t.Fatal(err)
	}
	defer full.Close()
	if err := verdict(full, 5, 0, nil); !errors.Is(err, syscall.ENOSPC) {
		t.Errorf("%v, expected ENOSPC", err)
	}
	if err := verdict(full, 4, 1, os.ErrClosed); !errors.Is(err, os.ErrClosed) {
		t.Errorf("%v, expected what stopped it", err)
	}
	var out bytes.Buffer
	if err := verdict(&out, 5, 0, nil); err != nil || out.String() != "5 passed, 0 failed\n" {
		t.Errorf("%v, %q", err, out.String())
	}
}
