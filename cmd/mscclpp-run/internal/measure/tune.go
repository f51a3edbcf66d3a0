package measure

import (
	"context"
	"fmt"
	"io"
	"path/filepath"
	"slices"
	"time"

	"github.com/spf13/cobra"

	"github.com/mscclpp-go/mscclpp/bench"
	"github.com/mscclpp-go/mscclpp/bench/sizes"
	"github.com/mscclpp-go/mscclpp/bench/tune"
	"github.com/mscclpp-go/mscclpp/cmd/mscclpp-run/internal/verb"
	"github.com/mscclpp-go/mscclpp/collectives"
	"github.com/mscclpp-go/mscclpp/framework/kernel"
	"github.com/mscclpp-go/mscclpp/internal/atomicfile"
	"github.com/mscclpp-go/mscclpp/internal/setup"
	"github.com/mscclpp-go/mscclpp/internal/version"
	"github.com/mscclpp-go/mscclpp/plan/attach"
)

// tuneFlags are the flags of the verb tune as they were typed.
type tuneFlags struct {
	bytes, dtype, op, buffers, device, out string
	factor                                 int64
	options                                tune.Options
}

// Tune measures the algorithms and writes a table of the fastest.
func Tune(env *verb.Env) *cobra.Command { return (&tuneFlags{}).command(env) }

var tuned = []bench.Collective{bench.AllReduce, bench.AllGather, bench.ReduceScatter, bench.AllToAll, bench.Broadcast, bench.Reduce}

func (f *tuneFlags) command(env *verb.Env) *cobra.Command {
	c := &cobra.Command{
		Use: "[COLLECTIVE...]",
		Long: `Measure the algorithms of each collective, and on GPUs how many blocks and threads
they are best launched with, over a range of sizes; write the fastest as rows of
collectives.table, a configuration file to be used with --config. The rows hold for the
number of ranks of this job, up to the largest size measured; what is not in the table is
chosen as before. The element type and the reduction are those measured with, the table
does not depend on them. Without a name: every collective that goes by the table.`,
		Args: func(_ *cobra.Command, args []string) error { return f.parse(args) },
		RunE: func(*cobra.Command, []string) error { return f.run(env) },
	}
	flags := c.Flags()
	flags.SortFlags = false
	flags.StringVarP(&f.bytes, "bytes", "b", "1K:16M", "MIN:MAX size of the larger buffer, or one size; smaller ones use the row of the smallest")
	flags.Int64VarP(&f.factor, "factor", "f", 4, "each size is so many times the one before")
	flags.StringVarP(&f.dtype, "dtype", "d", "f32", "element type to measure with")
	flags.StringVarP(&f.op, "op", "o", defaultOp, "reduction to measure with")
	flags.StringVar(&f.buffers, "buffers", "both", "ordinary, registered or both")
	flags.DurationVar(&f.options.Budget, "budget", time.Minute, "time for it all; sizes for which none is left are left out")
	flags.StringVar(&f.device, "device", "", "host, cuda, cuda:N, hip, hip:N or auto; default: as configured, else auto")
	flags.StringVar(&f.out, "out", "", "file to write; default: standard output")
	return c
}

// parse is called before ranks are started, and in each of them.
func (f *tuneFlags) parse(args []string) error {
	f.options.Collectives = nil
	for _, name := range args {
		c, err := bench.ParseCollective(name)
		if err != nil {
			return err
		}
		if !slices.Contains(tuned, c) {
			return fmt.Errorf("%v does not go by a table: expected among %v", c, tuned)
		}
		f.options.Collectives = append(f.options.Collectives, c)
	}
	if len(args) == 0 {
		f.options.Collectives = tuned
	}
	var err error
	if f.options.Sizes, err = sizes.ParseRange(f.bytes, f.factor); err != nil {
		return err
	}
	if f.options.Type, err = kernel.ParseDataType(f.dtype); err != nil {
		return err
	}
	if f.options.Op, err = kernel.ParseOp(f.op); err != nil {
		return err
	}
	if f.op != defaultOp && !slices.ContainsFunc(f.options.Collectives, bench.Collective.Reduces) {
		return fmt.Errorf("--op %s: none of the collectives reduces", f.op)
	}
	var ok bool
	if f.options.Registered, ok = map[string][]bool{"both": {false, true}, "ordinary": {false}, "registered": {true}}[f.buffers]; !ok {
		return fmt.Errorf("--buffers %q: expected ordinary, registered or both", f.buffers)
	}
	if f.options.Budget <= 0 {
		return fmt.Errorf("--budget %v: expected more than 0", f.options.Budget)
	}
	return nil
}

func (f *tuneFlags) run(env *verb.Env) error {
	return inJob(f.device, func(ctx context.Context, g *group) error {
		if err := writable(ctx, g, "tune: --out", f.out); err != nil {
			return err
		}
		var err error
		if g.plans, err = attach.Names(setup.PlanSources(g.job.Config.Collectives.Plans)); err != nil {
			return err
		}
		line := verb.NewProgress(env.Stderr)
		defer line.Clear()
		found, err := tune.Run(ctx, g, f.options, func(c bench.Collective, bytes int64) { line.Show("%s of %s", c, sizes.Format(bytes)) })
		line.Clear()
		if err != nil || g.Rank() != 0 {
			return err
		}
		if found.Skipped > 0 {
			fmt.Fprintf(env.Stderr, "mscclpp-run: tune: no time for %d of the sizes: they have no row; see --budget\n", found.Skipped)
		}
		s := served(g.job)
		return ofOutput(f.write(env.Stdout, found.Rows, named(found.Rows, g.plans),
			fmt.Sprintf("Measured by mscclpp-run tune %s with %d ranks%s, %v", version.Full(), g.Size(), hosts(g.job.Comm.Shared()), f.options.Type),
			fmt.Sprintf("and %v where something is reduced; device of rank 0: %s, transport: %s.", f.options.Op, s.Device, s.Transport)))
	})
}

// named are the plans of a configuration that rows name, where every job finds them.
func named(rows []tune.Row, plans map[string]attach.Source) (out []tune.Plan) {
	for _, r := range rows {
		s, ok := plans[r.Algorithm]
		if !ok {
			continue
		}
		p := tune.Plan{Path: s.Path, Unverified: s.Unverified, Packets: s.Packets}
		if abs, err := filepath.Abs(s.Path); err == nil {
			p.Path = abs
		}
		if !slices.Contains(out, p) {
			out = append(out, p)
		}
	}
	return out
}

func (f *tuneFlags) write(stdout io.Writer, rows []tune.Row, plans []tune.Plan, about ...string) error {
	if f.out == "" {
		return tune.WithPlans(stdout, rows, plans, about...)
	}
	if err := atomicfile.File(f.out, func(w io.Writer) error { return tune.WithPlans(w, rows, plans, about...) }); err != nil {
		return fmt.Errorf("tune: %w", err)
	}
	return nil
}

// hosts says in the table's head that the ranks are of one host, where they share its memory.
func hosts(shared bool) string {
	if shared {
		return " of one host"
	}
	return ""
}

// UseTable has calls without a named algorithm follow rows of a measurement.
func (g *group) UseTable(rows []tune.Row) error {
	table := make([]collectives.Row, 0, len(rows))
	for _, r := range rows {
		c, err := collectives.ParseCollective(r.Collective.String())
		if err != nil {
			return err
		}
		registered := r.Registered
		table = append(table, collectives.Row{
			Collective: c, MaxBytes: uint64(r.MaxBytes), MinRanks: r.Ranks, MaxRanks: r.Ranks, Registered: &registered,
			Algorithm: r.Algorithm, Blocks: r.Blocks, Threads: r.Threads,
		})
	}
	return g.job.UseTable(table)
}
