package measure

import (
	"context"
	"fmt"
	"io"
	"strings"

	"github.com/spf13/cobra"

	"github.com/mscclpp-go/mscclpp/bench"
	"github.com/mscclpp-go/mscclpp/bench/matrix"
	"github.com/mscclpp-go/mscclpp/cmd/mscclpp-run/internal/verb"
	"github.com/mscclpp-go/mscclpp/collectives/collectivetest"
	"github.com/mscclpp-go/mscclpp/framework"
)

// checkFlags are the flags of the verb check.
type checkFlags struct {
	tier   string
	device string
	cases  []string
	most   int
	list   bool

	chosen matrix.Tier
	parsed []matrix.Case
}

// Check verifies collectives over everything that can be combined.
func Check(env *verb.Env) *cobra.Command { return (&checkFlags{}).command(env) }

func (f *checkFlags) command(env *verb.Env) *cobra.Command {
	c := &cobra.Command{
		Args: func(c *cobra.Command, args []string) error {
			if len(f.cases) > 0 {
				if err := verb.Beside(c.Flags(), "--case", "the cases are named, and none of a tier runs", "tier", "at-most"); err != nil {
					return err
				}
			}
			return f.parse(args)
		},
		RunE: func(*cobra.Command, []string) error { return f.run(env) },
	}
	c.Flags().StringVar(&f.tier, "tier", matrix.Tiers[0].Name, "quick: every pair of values in some case; full: every combination")
	c.Flags().StringArrayVar(&f.cases, "case", nil, "run this case alone, as a failure prints it; may be repeated")
	c.Flags().IntVar(&f.most, "at-most", 0, "of the tier's cases this many, taken from all of them alike, for slow networks; 0: all")
	c.Flags().StringVar(&f.device, "device", "", "host, cuda, cuda:N, hip, hip:N or auto; default: as configured, else auto")
	c.Flags().BoolVar(&f.list, "list", false, "print the cases and run none")
	return c
}

func (f *checkFlags) parse(args []string) error {
	if len(args) != 0 {
		return fmt.Errorf("unexpected argument %q", args[0])
	}
	var names []string
	for _, t := range matrix.Tiers {
		if names = append(names, t.Name); t.Name == f.tier {
			f.chosen = t
		}
	}
	if f.chosen.Name == "" {
		return fmt.Errorf("--tier %q: expected %s", f.tier, strings.Join(names, " or "))
	}
	if f.most < 0 {
		return fmt.Errorf("--at-most %d: expected a number of cases, or 0 for all", f.most)
	}
	f.parsed = nil
	for _, text := range f.cases {
		c, err := matrix.ParseCase(text)
		if err != nil {
			return err
		}
		f.parsed = append(f.parsed, c)
	}
	return nil
}

func (f *checkFlags) run(env *verb.Env) error {
	return inJob(f.device, func(ctx context.Context, g *group) error {
		cases := f.parsed
		if len(cases) == 0 {
			cases = f.chosen.Cases(matrix.Support{Ranks: g.Size(), Algorithms: g.Algorithms, Runs: g.runs})
			cases = spread(cases, f.most)
		}
		if err := fit(cases, g.Size()); err != nil {
			return said(g, err)
		}
		if f.list {
			return list(env, g, cases)
		}
		return f.verify(ctx, env, g, cases)
	})
}

func (f *checkFlags) verify(ctx context.Context, env *verb.Env, g *group, cases []matrix.Case) error {
	line := verb.NewProgress(env.Stderr)
	defer line.Clear()
	failures := 0
	passed, failed, err := matrix.Run(ctx, g, cases, &bench.Verifier{Reference: collectivetest.Reference{}}, matrix.Observer{
		Starting: func(n, of int, c matrix.Case) { line.Show("%d of %d, %d failed: %s", n+1, of, failures, c) },
		Failed: func(c matrix.Case, why string) {
			failures++
			line.Clear()
			fmt.Fprintf(env.Stdout, "FAIL %s\n     alone: mscclpp-run -n %d check --case '%s'\n", why, g.Size(), c)
		},
	})
	if err == nil && len(f.parsed) == 0 && f.most == 0 {
		line.Show("operators for inference")
		right, wrong, stopped := operators(ctx, g, f.chosen.Name != matrix.Tiers[0].Name, func(why string) {
			line.Clear()
			fmt.Fprintf(env.Stdout, "FAIL rank %d: %s\n", g.Rank(), why)
		})
		passed, failed, err = passed+right, failed+wrong, stopped
	}
	line.Clear()
	if g.Rank() == 0 {
		err = verdict(env.Stdout, passed, failed, err)
	}
	if err == nil && failed > 0 {
		return &verb.Error{Code: 1} // all ranks know, and rank 0 has said it
	}
	return err
}

// verdict prints how it went. One that cannot be printed is an error: without a word, the
// exit code would say that all is well.
func verdict(w io.Writer, passed, failed int, stopped error) error {
	if stopped != nil {
		fmt.Fprintf(w, "stopped, cases not run count as failed: %v\n", stopped)
	}
	if _, err := fmt.Fprintf(w, "%d passed, %d failed\n", passed, failed); stopped == nil {
		return ofOutput(err)
	}
	return stopped
}

// spread takes at most n of the cases, at equal distances, the first one included: they are
// ordered by collective and type, so that each of these is left with its share. 0 is all.
func spread(cases []matrix.Case, n int) []matrix.Case {
	if n == 0 || n >= len(cases) {
		return cases
	}
	few := make([]matrix.Case, n)
	for i := range few {
		few[i] = cases[i*len(cases)/n]
	}
	return few
}

// fit refuses cases that were typed for another number of ranks, and a check of nothing: it
// would succeed.
func fit(cases []matrix.Case, ranks int) error {
	if len(cases) == 0 {
		return fmt.Errorf("%w: none of the cases can run with %d ranks here: no transport of the job has algorithms for them", framework.ErrUnsupported, ranks)
	}
	for _, c := range cases {
		if c.Root >= ranks {
			return fmt.Errorf("%w: case %s: root %d of %d ranks", framework.ErrInvalid, c, c.Root, ranks)
		}
	}
	return nil
}

func list(env *verb.Env, g *group, cases []matrix.Case) error {
	if g.Rank() != 0 {
		return nil
	}
	for _, c := range cases {
		if _, err := fmt.Fprintln(env.Stdout, c); err != nil {
			return ofOutput(err)
		}
	}
	return nil
}
