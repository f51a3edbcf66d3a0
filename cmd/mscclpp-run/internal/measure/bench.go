package measure

import (
	"context"
	"errors"
	"fmt"
	"io"
	"slices"
	"strings"

	"github.com/spf13/cobra"

	"github.com/mscclpp-go/mscclpp/bench"
	"github.com/mscclpp-go/mscclpp/bench/nccl"
	"github.com/mscclpp-go/mscclpp/bench/report"
	"github.com/mscclpp-go/mscclpp/bench/sizes"
	"github.com/mscclpp-go/mscclpp/cmd/mscclpp-run/internal/verb"
	"github.com/mscclpp-go/mscclpp/collectives/collectivetest"
	"github.com/mscclpp-go/mscclpp/framework"
	"github.com/mscclpp-go/mscclpp/framework/kernel"
	"github.com/mscclpp-go/mscclpp/internal/atomicfile"
)

// benchFlags are the flags of the verb bench as they were typed.
type benchFlags struct {
	bytes, last, dtype, op, format, plot string
	factor                               int64
	warmup                               int
	graphs                               []int
	inPlace                              string
	device, versus                       string
	native                               bool            // versus is an algorithm of the library
	rival                                *other          // that one
	options                              bench.Options   // the options that all of them have in common, and the first
	all                                  []bench.Options // one for each collective, place and length of graph

	before func(context.Context, *group) error // nil, or what has to be done in the job first
}

// Bench measures collectives over a range of sizes.
func Bench(env *verb.Env) *cobra.Command { return (&benchFlags{}).command(env) }

func (f *benchFlags) command(env *verb.Env) *cobra.Command {
	c := &cobra.Command{
		Use:  "COLLECTIVE...",
		Args: func(_ *cobra.Command, args []string) error { return f.parse(args) },
		RunE: func(*cobra.Command, []string) error { return f.run(env) },
	}
	flags := c.Flags()
	flags.SortFlags = false
	flags.StringVarP(&f.bytes, "bytes", "b", "1K:16M", "MIN:MAX size of the larger buffer, or one size")
	flags.StringVarP(&f.last, "maxbytes", "e", "", "MAX, as nccl-tests takes it beside -b MIN")
	flags.Int64VarP(&f.factor, "factor", "f", 2, "each size is so many times the one before")
	flags.StringVarP(&f.dtype, "dtype", "d", "f32", "element type")
	flags.StringVarP(&f.op, "op", "o", defaultOp, "reduction")
	flags.IntVarP(&f.options.Root, "root", "r", 0, "root, for collectives that have one")
	flags.StringVar(&f.options.Algorithm, "algorithm", "", "algorithm, ? to list those of the collective; default: what the selector chooses")
	// Without the letter that nccl-tests has for it: -n is the number of ranks.
	flags.IntVar(&f.options.Plan.Iterations, "iters", 0, "timed iterations; default by size")
	flags.IntVarP(&f.options.Plan.Calls, "calls", "m", 0, "calls back to back in an iteration; default by size")
	flags.IntVarP(&f.warmup, "warmup", "w", -1, "iterations before the timed ones; default by size")
	flags.StringVar(&f.inPlace, "in-place", "false", "measure in place instead of out of place; =both: one after the other, where there is such a form")
	flags.Lookup("in-place").NoOptDefVal = "true"
	flags.BoolVar(&f.options.Registered, "registered", false, "use buffers registered with the communicator")
	flags.BoolVarP(&f.options.Check, "check", "c", false, "verify the results")
	flags.StringVar(&f.device, "device", "", "host, cuda, cuda:N, hip, hip:N or auto; default: as configured, else auto")
	flags.IntSliceVarP(&f.graphs, "graph", "G", []int{0}, "on GPUs, record so many calls in a CUDA graph (fewer of large ones) and time its launches; 0: none; a list: in turn")
	flags.StringVar(&f.versus, "vs", "", "nccl: measure the installed NCCL in turns, on the same buffers")
	flags.BoolVar(&f.options.Plan.Fastest, "fastest", false, "report the fastest iteration, not the median: on machines with other work")
	flags.StringVar(&f.format, "format", "table", "table, or json with one object a line")
	flags.StringVar(&f.plot, "plot", "", "also draw the results into this SVG file")
	return c
}

// parse is called before ranks are started, and in each of them.
func (f *benchFlags) parse(args []string) error {
	if len(args) == 0 {
		return fmt.Errorf("expected a collective, such as allreduce")
	}
	var err error
	if f.last != "" && strings.Contains(f.bytes, ":") {
		return fmt.Errorf("--bytes %s names both ends, and -e %s another: leave one out", f.bytes, f.last)
	}
	span := f.bytes
	if f.last != "" {
		span += ":" + f.last
	}
	if f.options.Sizes, err = sizes.ParseRange(span, f.factor); err != nil {
		return err
	}
	if f.options.Type, err = kernel.ParseDataType(f.dtype); err != nil {
		return err
	}
	if f.options.Op, err = kernel.ParseOp(f.op); err != nil {
		return err
	}
	if f.format != "table" && f.format != "json" {
		return fmt.Errorf("--format %q: expected table or json", f.format)
	}
	if f.versus != "" && f.versus != "nccl" && !f.native {
		return fmt.Errorf("--vs %q: expected nccl", f.versus)
	}
	if f.warmup < -1 {
		return fmt.Errorf("--warmup %d: expected 0 or more", f.warmup)
	}
	switch f.warmup {
	case -1:
		f.options.Plan.Warmup = 0 // by size
	case 0:
		f.options.Plan.Warmup = -1 // none
	default:
		f.options.Plan.Warmup = f.warmup
	}
	return f.combine(args)
}

// combine lists what is to be measured.
func (f *benchFlags) combine(names []string) error {
	places, ok := map[string][]bool{"false": {false}, "true": {true}, "both": {false, true}}[f.inPlace]
	if !ok {
		return fmt.Errorf("--in-place=%s: expected true, false or both", f.inPlace)
	}
	f.all = nil
	for _, name := range names {
		o := f.options
		var err error
		if o.Collective, err = bench.ParseCollective(name); err != nil {
			return err
		}
		if len(names) > 1 && !o.Collective.Rooted() {
			o.Root = 0
		}
		for _, inPlace := range places {
			if o.InPlace = inPlace; inPlace && f.inPlace == "both" && !o.Collective.HasInPlace() {
				continue
			}
			for _, calls := range f.graphs {
				if calls < 0 || calls > 0 && f.options.Plan.Calls != 0 {
					return fmt.Errorf("--graph %d: expected the calls of one graph, and no --calls beside it", calls)
				}
				if o.Plan.Graph = calls > 0; calls > 0 {
					o.Plan.Calls = calls
				} else {
					o.Plan.Calls = f.options.Plan.Calls
				}
				if err := o.Validate(o.Root + 1); err != nil { // the number of ranks is checked later
					return err
				}
				f.all = append(f.all, o)
			}
		}
	}
	if len(f.all) == 0 {
		return fmt.Errorf("--graph: expected at least one number of calls")
	}
	if f.options.Root != 0 && !some(f.all, bench.Collective.Rooted) {
		return fmt.Errorf("--root %d: none of the collectives has a root", f.options.Root)
	}
	if f.op != defaultOp && !some(f.all, bench.Collective.Reduces) {
		return fmt.Errorf("--op %s: none of the collectives reduces", f.op)
	}
	f.options = f.all[0]
	return nil
}

// defaultOp is the reduction that is measured where none is named.
const defaultOp = "sum"

// some reports whether one of the collectives is such.
func some(all []bench.Options, such func(bench.Collective) bool) bool {
	return slices.ContainsFunc(all, func(o bench.Options) bool { return such(o.Collective) })
}

func (f *benchFlags) run(env *verb.Env) error {
	return inJob(f.device, func(ctx context.Context, g *group) error {
		if f.before != nil {
			if err := f.before(ctx, g); err != nil {
				return err
			}
		}
		for _, o := range f.all {
			if err := o.Fits(g); err != nil {
				return said(g, err)
			}
		}
		if err := writable(ctx, g, "bench: --plot", f.plot); err != nil {
			return err
		}
		leave, err := f.meetPeer(ctx, g)
		if err != nil {
			return err
		}
		defer leave()
		out := report.Table(env.Stdout)
		if f.format == "json" {
			out = report.JSON(env.Stdout)
		}
		line := verb.NewProgress(env.Stderr)
		defer line.Clear()
		var rows []report.Row
		var lost error
		err = bench.RunAll(ctx, g, f.all, served(g.job), &bench.Verifier{Reference: collectivetest.Reference{}},
			func(c bench.Collective, bytes int64) { line.Show("%s of %s", c, sizes.Format(bytes)) },
			func(r report.Row) error {
				line.Clear()
				rows = append(rows, r)
				fmt.Fprint(env.Stderr, f.rival.missing(&r))
				if lost = ofOutput(out.Row(r)); lost != nil || env.OutputClosed() {
					return bench.ErrStop
				}
				return nil
			})
		if errors.Is(err, bench.ErrStop) {
			return lost
		}
		if err != nil || g.Rank() != 0 {
			return err
		}
		if err := ofOutput(errors.Join(out.Close(), f.draw(rows))); err != nil {
			return err
		}
		return wrongResults(rows)
	})
}

// meetPeer opens the library to compare with, on all ranks.
func (f *benchFlags) meetPeer(ctx context.Context, g *group) (leave func(), err error) {
	if f.versus == "" {
		return func() {}, nil
	}
	if f.native {
		f.rival = &other{group: g, algorithm: f.versus}
		for i := range f.all {
			if err := f.rival.known(f.all[i].Collective); err != nil {
				return nil, said(g, err)
			}
			f.all[i].Peer = f.rival
		}
		return func() {}, nil
	}
	if g.queue == nil {
		return nil, said(g, fmt.Errorf("%w: --vs nccl: NCCL is for GPUs, and the job runs on the host", framework.ErrInvalid))
	}
	library, err := nccl.Open()
	if err != nil {
		return nil, err
	}
	peer, err := nccl.Join(ctx, library, g, g.queue.dev, g.queue.stream)
	if err != nil {
		return nil, err
	}
	for i := range f.all {
		f.all[i].Peer = peer
	}
	return func() { peer.Close() }, nil
}

func (f *benchFlags) draw(rows []report.Row) error {
	if f.plot == "" {
		return nil
	}
	if err := atomicfile.File(f.plot, func(w io.Writer) error { return report.Plot(w, rows) }); err != nil {
		return fmt.Errorf("plot %s: %w", f.plot, err)
	}
	return nil
}

func wrongResults(rows []report.Row) error {
	for _, r := range rows {
		if r.Errors != nil && *r.Errors > 0 {
			return fmt.Errorf("%s of %d bytes: %d wrong elements", r.Collective, r.Bytes, *r.Errors)
		}
	}
	return nil
}
