package measure

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"time"

	"github.com/spf13/cobra"

	"github.com/mscclpp-go/mscclpp/bench"
	"github.com/mscclpp-go/mscclpp/cmd/mscclpp-run/internal/verb"
	"github.com/mscclpp-go/mscclpp/framework"
	"github.com/mscclpp-go/mscclpp/plan/attach"
	"github.com/mscclpp-go/mscclpp/plan/exec"
	"github.com/mscclpp-go/mscclpp/plan/schema"
	"github.com/mscclpp-go/mscclpp/plan/verify"
)

// planFlags are the flags of the verbs that run execution plans: those of bench, but for what the plan decides.
type planFlags struct {
	benchFlags
	file       string
	plan       *schema.Plan
	unverified bool
	once       bool // run, not bench
}

// PlanRun runs a plan.
func PlanRun(env *verb.Env) *cobra.Command { return (&planFlags{once: true}).command(env) }

// PlanBench measures one.
func PlanBench(env *verb.Env) *cobra.Command { return (&planFlags{}).command(env) }

func (f *planFlags) command(env *verb.Env) *cobra.Command {
	c := f.benchFlags.command(env)
	c.Use = "FILE"
	c.Args = func(_ *cobra.Command, args []string) error { return f.parse(args) }
	c.RunE = func(*cobra.Command, []string) error { return f.run(env) }
	flags := c.Flags()
	flags.BoolVar(&f.unverified, "unverified", false, "run a plan that is not right: it may hang until comm.deadline, or give wrong results")
	for _, name := range []string{"algorithm", "root", "vs"} {
		_ = flags.MarkHidden(name)
	}
	c.Long = "Measure an execution plan in the calls of its collective, as bench measures algorithms.\nSizes are rounded up to what the plan can be called with."
	if f.once {
		c.Long = "Run an execution plan: a few calls of its collective, of one size; plans of no collective on buffers of zeros."
		_ = flags.Set("bytes", "64K")
		_ = flags.Set("iters", "4")
		_ = flags.Set("calls", "1")
		_ = flags.Set("warmup", "0")
	}
	return c
}

func (f *planFlags) parse(args []string) (err error) {
	if len(args) != 1 {
		return fmt.Errorf("expected one file")
	}
	f.file = args[0]
	if f.plan, err = schema.ReadFile(f.file); err != nil {
		return err
	}
	if f.options.Algorithm != "" || f.versus != "" {
		return fmt.Errorf("a plan is the algorithm, and is compared with nothing: expected neither --algorithm nor --vs")
	}
	if _, err := bench.ParseCollective(f.plan.Collective); err != nil || f.plan.Collective == "sendrecv" {
		if !f.once || f.options.Check {
			return fmt.Errorf("plan %s is for %q: expected allreduce, allgather, reducescatter or alltoall", f.plan.Name, f.plan.Collective)
		}
		return nil
	}
	f.options.Algorithm = f.plan.Name
	if err := f.benchFlags.parse([]string{f.plan.Collective}); err != nil {
		return err
	}
	return f.round()
}

// round replaces sizes by the nearest that the plan accepts. A single size is kept as it was given.
func (f *planFlags) round() error {
	p := f.plan
	chunks := max(p.GPUs[0].InputChunks, p.GPUs[0].OutputChunks)
	if chunks == 0 {
		return fmt.Errorf("plan %s has neither input nor output", p.Name)
	}
	whole := int64(chunks) * int64(p.Alignment)
	for i := range f.all {
		s := &f.all[i].Sizes
		if s.Min == s.Max {
			if err := f.single(s.Min); err != nil {
				return err
			}
			continue
		}
		s.Min = max(s.Min, int64(min(p.MinSize, 1<<40)))
		s.Min = (s.Min + whole - 1) / whole * whole
		if p.MaxSize < uint64(s.Max) {
			s.Max = int64(p.MaxSize)
		}
		s.Max = max(s.Max/whole*whole, s.Min)
	}
	f.options = f.all[0]
	return nil
}

// single refuses a size that the plan cannot be called with.
func (f *planFlags) single(bytes int64) error {
	n := uint64(len(f.plan.GPUs))
	in, out := uint64(bytes), uint64(bytes)
	switch f.plan.Collective {
	case "allgather":
		in /= n
	case "reducescatter":
		out /= n
	}
	return exec.Fits(f.plan, 0, in, out)
}

// proven refuses a plan that is not right. Rank 0 finds out for all.
func (f *planFlags) proven(ctx context.Context, g *group) error {
	if f.unverified {
		return nil
	}
	var mine []byte
	if g.Rank() == 0 {
		if got := verify.Plan(f.plan); got.Verdict != verify.Right && got.Verdict != verify.RightOnce {
			mine = []byte(fmt.Sprintf("%s: the plan is not right, but %s: %s; expected a right one, or --unverified", f.file, got.Verdict, got.Reason))
		}
	}
	all, err := g.AllGather(ctx, mine)
	if err != nil {
		return err
	}
	if len(all[0]) > 0 {
		return said(g, fmt.Errorf("%w: %s", framework.ErrInvalid, all[0]))
	}
	return nil
}

func (f *planFlags) run(env *verb.Env) error {
	f.before = func(ctx context.Context, g *group) error {
		if err := f.proven(ctx, g); err != nil {
			return err
		}
		_, err := attach.To(ctx, g.job.Comm, f.plan)
		if errors.Is(err, framework.ErrUnsupported) {
			return said(g, err)
		}
		return err
	}
	if f.options.Algorithm != "" {
		return f.benchFlags.run(env)
	}
	return inJob(f.device, func(ctx context.Context, g *group) error { return f.alone(ctx, env, g) })
}

// ended is the outcome of a plan that is for no collective.
type ended struct {
	File     string  `json:"file"`
	Plan     string  `json:"plan"`
	Ranks    int     `json:"ranks"`
	Launches int     `json:"launches"`
	TimeUS   float64 `json:"time_us"`
}

// alone runs a plan that is for no collective.
func (f *planFlags) alone(ctx context.Context, env *verb.Env, g *group) error {
	if err := f.proven(ctx, g); err != nil {
		return err
	}
	e, err := exec.New(ctx, g.job.World, f.plan)
	if err != nil {
		return err
	}
	defer e.Close()
	x := &f.plan.GPUs[g.Rank()]
	chunk := int64(64 * f.plan.Alignment)
	in, err := g.Alloc(max(1, int64(x.InputChunks)*chunk), true)
	if err != nil {
		return err
	}
	out, err := g.Alloc(max(1, int64(x.OutputChunks)*chunk), true)
	if err != nil {
		return err
	}
	const launches = 4
	began := time.Now()
	for range launches {
		call := &exec.Call{Input: in.Addr, InputBytes: uint64(int64(x.InputChunks) * chunk), Output: out.Addr, OutputBytes: uint64(int64(x.OutputChunks) * chunk), Stream: g.opts.Stream}
		if err := e.Execute(call); err != nil {
			return err
		}
	}
	if q := g.Queue(); q != nil {
		if err := q.Finish(); err != nil {
			return err
		}
	}
	if g.Rank() != 0 {
		return nil
	}
	got := ended{f.file, f.plan.Name, g.Size(), launches, float64(time.Since(began).Microseconds()) / launches}
	if f.format == "json" {
		return json.NewEncoder(env.Stdout).Encode(got)
	}
	_, err = fmt.Fprintf(env.Stdout, "%s: plan %s ended %d times on %d ranks, in %.1f µs each\n", got.File, got.Plan, got.Launches, got.Ranks, got.TimeUS)
	return err
}
