package main

import (
	"context"
	"errors"
	"fmt"
	"os"
	"strings"

	"github.com/spf13/cobra"

	"github.com/mscclpp-go/mscclpp/bench"
	"github.com/mscclpp-go/mscclpp/bench/nccl"
	"github.com/mscclpp-go/mscclpp/bench/report"
	"github.com/mscclpp-go/mscclpp/bench/sizes"
	"github.com/mscclpp-go/mscclpp/collectives/collectivetest"
	"github.com/mscclpp-go/mscclpp/framework"
	"github.com/mscclpp-go/mscclpp/framework/device"
)

// benchFlags are the flags of the verb bench as they were typed.
type benchFlags struct {
	bytes, last, dtype, op, format, plot string
	factor                               int64
	warmup, graph                        int
	device, versus                       string
	options                              bench.Options
}

// benchCommand measures one collective over a range of sizes.
func benchCommand(a *app) *cobra.Command { return (&benchFlags{}).command(a) }

func (f *benchFlags) command(a *app) *cobra.Command {
	c := &cobra.Command{
		Use:  "COLLECTIVE",
		Args: func(_ *cobra.Command, args []string) error { return f.parse(args) },
		RunE: func(*cobra.Command, []string) error { return f.run(a) },
	}
	flags := c.Flags()
	flags.SortFlags = false
	flags.StringVarP(&f.bytes, "bytes", "b", "1K:16M", "MIN:MAX size of the larger buffer, or one size")
	flags.StringVarP(&f.last, "maxbytes", "e", "", "MAX, as nccl-tests takes it beside -b MIN")
	flags.Int64VarP(&f.factor, "factor", "f", 2, "each size is so many times the one before")
	flags.StringVarP(&f.dtype, "dtype", "d", "f32", "element type")
	flags.StringVarP(&f.op, "op", "o", "sum", "reduction")
	flags.IntVarP(&f.options.Root, "root", "r", 0, "root, for collectives that have one")
	flags.StringVar(&f.options.Algorithm, "algorithm", "", "algorithm; default: what the selector chooses")
	// Without the letter that nccl-tests has for it: -n is the number of ranks.
	flags.IntVar(&f.options.Plan.Iterations, "iters", 0, "timed iterations; default by size")
	flags.IntVarP(&f.options.Plan.Calls, "calls", "m", 0, "calls back to back in an iteration; default by size")
	flags.IntVarP(&f.warmup, "warmup", "w", 5, "iterations before the timed ones")
	flags.BoolVar(&f.options.InPlace, "in-place", false, "measure in place instead of out of place")
	flags.BoolVar(&f.options.Registered, "registered", false, "use buffers registered with the communicator")
	flags.BoolVarP(&f.options.Check, "check", "c", false, "verify the results")
	flags.StringVar(&f.device, "device", "", "host, cuda, cuda:N or auto; default: as configured, else auto")
	flags.IntVarP(&f.graph, "graph", "G", 0, "on GPUs, record so many calls in a CUDA graph and time its launches; 0: none")
	flags.StringVar(&f.versus, "vs", "", "nccl: measure the installed NCCL in turns, on the same buffers")
	flags.StringVar(&f.format, "format", "table", "table, or json with one object a line")
	flags.StringVar(&f.plot, "plot", "", "also draw the results into this SVG file")
	return c
}

// parse is called before ranks are started, and in each of them.
func (f *benchFlags) parse(args []string) error {
	if len(args) != 1 {
		return fmt.Errorf("expected one collective, such as allreduce")
	}
	var err error
	if f.options.Collective, err = bench.ParseCollective(args[0]); err != nil {
		return err
	}
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
	if f.options.Type, err = device.ParseDataType(f.dtype); err != nil {
		return err
	}
	if f.options.Op, err = device.ParseOp(f.op); err != nil {
		return err
	}
	if f.format != "table" && f.format != "json" {
		return fmt.Errorf("--format %q: expected table or json", f.format)
	}
	if f.versus != "" && f.versus != "nccl" {
		return fmt.Errorf("--vs %q: expected nccl", f.versus)
	}
	if f.graph < 0 || f.graph > 0 && f.options.Plan.Calls != 0 {
		return fmt.Errorf("--graph %d: expected the calls of one graph, and no --calls beside it", f.graph)
	}
	if f.graph > 0 {
		f.options.Plan.Graph, f.options.Plan.Calls = true, f.graph
	}
	if f.warmup < 0 {
		return fmt.Errorf("--warmup %d: expected 0 or more", f.warmup)
	}
	if f.options.Plan.Warmup = f.warmup; f.warmup == 0 {
		f.options.Plan.Warmup = -1
	}
	return f.options.Validate(f.options.Root + 1) // the number of ranks is checked later
}

func (f *benchFlags) run(a *app) error {
	return inJob(f.device, func(ctx context.Context, g *group) error {
		if err := f.options.Fits(g); err != nil {
			return said(g, err)
		}
		leave, err := f.meetPeer(ctx, g)
		if err != nil {
			return err
		}
		defer leave()
		out := report.Table(a.stdout)
		if f.format == "json" {
			out = report.JSON(a.stdout)
		}
		line := newProgress(a.stderr)
		defer line.clear()
		var rows []report.Row
		err = bench.Run(ctx, g, f.options, served(g.job), &bench.Verifier{Reference: collectivetest.Reference{}},
			func(bytes int64) { line.show("%s of %s", f.options.Collective, sizes.Format(bytes)) },
			func(r report.Row) error {
				line.clear()
				rows = append(rows, r)
				return out.Row(r)
			})
		if err != nil || g.Rank() != 0 {
			return err
		}
		if err := errors.Join(out.Close(), f.draw(rows)); err != nil {
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
	f.options.Peer = peer
	return func() { peer.Close() }, nil
}

func (f *benchFlags) draw(rows []report.Row) error {
	if f.plot == "" {
		return nil
	}
	file, err := os.Create(f.plot)
	if err != nil {
		return fmt.Errorf("plot: %w", err)
	}
	if err := errors.Join(report.Plot(file, rows), file.Close()); err != nil {
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
