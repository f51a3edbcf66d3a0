package measure

import (
	"context"
	"errors"
	"fmt"
	"slices"

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
	plans      []planFile
	packets    int
	unverified bool
	once       bool // run, not bench
}

// planFile is a plan and its file.
type planFile struct {
	name  string
	plan  *schema.Plan
	alone bool // it is for no collective
}

// PlanRun runs plans.
func PlanRun(env *verb.Env) *cobra.Command { return (&planFlags{once: true}).command(env) }

// PlanBench measures them.
func PlanBench(env *verb.Env) *cobra.Command { return (&planFlags{}).command(env) }

func (f *planFlags) command(env *verb.Env) *cobra.Command {
	f.native = true
	c := f.benchFlags.command(env)
	c.Use = "FILE..."
	c.Args = func(_ *cobra.Command, args []string) error { return f.parse(args) }
	c.RunE = func(*cobra.Command, []string) error { return f.run(env) }
	flags := c.Flags()
	flags.IntVar(&f.packets, "packets", int(exec.LL16), "format of packets: 16 bytes, or 8")
	flags.BoolVar(&f.unverified, "unverified", false, "run a plan that is not right: it may hang until comm.deadline, or give wrong results")
	flags.Lookup("vs").Usage = "an algorithm of the library to measure in turns, on the same buffers; auto: the one that it would choose"
	for _, name := range []string{"algorithm", "root"} {
		_ = flags.MarkHidden(name)
	}
	c.Long = "Measure execution plans in the calls of their collectives, as bench measures algorithms.\nSizes are rounded up to what a plan can be called with."
	if f.once {
		c.Long = "Run execution plans: a few calls of their collectives, of one size; plans of no collective on buffers of zeros."
		_ = flags.Set("bytes", "64K")
		_ = flags.Set("iters", "4")
		_ = flags.Set("warmup", "0")
		_ = flags.MarkHidden("vs")
	}
	return c
}

func (f *planFlags) parse(args []string) error {
	switch {
	case len(args) == 0:
		return fmt.Errorf("expected a file")
	case f.options.Algorithm != "":
		return fmt.Errorf("a plan is the algorithm: expected no --algorithm")
	case f.packets != int(exec.LL8) && f.packets != int(exec.LL16):
		return fmt.Errorf("--packets %d: expected 8 or 16", f.packets)
	case f.once && f.versus != "":
		return fmt.Errorf("--vs is for plan bench")
	}
	f.plans = nil
	calls := f.options.Plan.Calls
	var all []bench.Options
	for _, name := range args {
		f.options.Plan.Calls, f.options.Plan.Graph = calls, false
		some, err := f.one(name)
		if err != nil {
			return err
		}
		all = append(all, some...)
	}
	if f.all = all; len(all) > 0 {
		f.options = all[0]
	}
	return nil
}

// one reads a plan, and says what is to be measured of it; nothing if it is for no collective.
func (f *planFlags) one(name string) ([]bench.Options, error) {
	p, err := schema.ReadFile(name)
	if err != nil {
		return nil, err
	}
	if slices.ContainsFunc(f.plans, func(o planFile) bool { return o.plan.Name == p.Name && o.plan.Collective == p.Collective }) {
		p.Name = fmt.Sprintf("%s (%d)", p.Name, len(f.plans)+1)
	}
	x := planFile{name: name, plan: p}
	if _, err := bench.ParseCollective(p.Collective); err != nil || p.Collective == "sendrecv" {
		if !f.once || f.options.Check {
			return nil, fmt.Errorf("plan %s is for %q: expected allreduce, allgather, reducescatter or alltoall", p.Name, p.Collective)
		}
		x.alone = true
		f.plans = append(f.plans, x)
		return nil, nil
	}
	f.plans = append(f.plans, x)
	if err := f.benchFlags.parse([]string{p.Collective}); err != nil {
		return nil, err
	}
	for i := range f.all {
		o := &f.all[i]
		if o.Algorithm = p.Name; f.once && !o.Plan.Graph && o.Plan.Calls == 0 {
			o.Plan.Calls = 1
		}
		if err := f.round(p, &f.all[i]); err != nil {
			return nil, err
		}
	}
	return f.all, nil
}

// round replaces sizes by the nearest that the plan accepts. A single size is kept as it was given.
func (f *planFlags) round(p *schema.Plan, o *bench.Options) error {
	chunks := max(p.GPUs[0].InputChunks, p.GPUs[0].OutputChunks)
	if chunks == 0 {
		return fmt.Errorf("plan %s has neither input nor output", p.Name)
	}
	whole := int64(chunks) * int64(p.Alignment)
	s := &o.Sizes
	if s.Min == s.Max && len(f.plans) == 1 {
		return single(p, s.Min)
	}
	s.Min = max(s.Min, int64(min(p.MinSize, 1<<40)))
	s.Min = (s.Min + whole - 1) / whole * whole
	if p.MaxSize < uint64(s.Max) {
		s.Max = int64(p.MaxSize)
	}
	s.Max = max(s.Max/whole*whole, s.Min)
	return nil
}

// single refuses a size that the plan cannot be called with.
func single(p *schema.Plan, bytes int64) error {
	n := uint64(len(p.GPUs))
	in, out := uint64(bytes), uint64(bytes)
	switch p.Collective {
	case "allgather":
		in /= n
	case "reducescatter":
		out /= n
	}
	return exec.Fits(p, 0, in, out)
}

// proven refuses plans that are not right. Rank 0 finds out for all.
func (f *planFlags) proven(ctx context.Context, g *group) error {
	if f.unverified {
		return nil
	}
	var mine []byte
	for i := 0; g.Rank() == 0 && mine == nil && i < len(f.plans); i++ {
		x := &f.plans[i]
		if got := verify.Known(x.plan); got.Verdict != verify.Right && got.Verdict != verify.RightOnce {
			mine = []byte(fmt.Sprintf("%s: the plan is not right, but %s: %s; expected a right one, or --unverified", x.name, got.Verdict, got.Reason))
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
		for i := range f.plans {
			x := &f.plans[i]
			if x.alone {
				if err := f.alone(ctx, env, g, x); err != nil {
					return err
				}
				continue
			}
			_, err := attach.Options{Packet: exec.Packet(f.packets)}.To(ctx, g.job.Comm, x.plan)
			if errors.Is(err, framework.ErrUnsupported) {
				return said(g, err)
			}
			if err != nil {
				return err
			}
		}
		return nil
	}
	if len(f.all) > 0 {
		return f.benchFlags.run(env)
	}
	return inJob(f.device, f.before)
}
