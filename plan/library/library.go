// Package library has plans that are ready for use, each a program of plan/dsl of at most 30 lines: programs to begin with
// for authors of their own.
package library

import (
	"fmt"
	"slices"
	"strings"

	"github.com/mscclpp-go/mscclpp/framework"
	"github.com/mscclpp-go/mscclpp/plan/dsl"
	"github.com/mscclpp-go/mscclpp/plan/schema"
)

// Shape is for whom a plan is made. A field that is 0 has its default.
type Shape struct {
	Ranks    int
	PerHost  int  // GPUs of each host; default: all ranks are of one host
	InPlace  bool // the plan works on one buffer, the input
	Blocks   int  // thread blocks, or instances of the program; default 4
	MinSize  uint64
	MaxSize  uint64 // 0 for any
	Upstream bool   // byte for byte as MSCCL++ would compile the program
}

func (s Shape) hosts() int { return s.Ranks / s.PerHost }

// options are those of all plans of the shape.
func (s Shape) options() dsl.Options {
	return dsl.Options{MinSize: s.MinSize, MaxSize: s.MaxSize, Upstream: s.Upstream}
}

// packets are the options of plans whose scratch holds packets. Launches alternate between its halves, so that no packet
// is overwritten before it was read.
func (s Shape) packets() dsl.Options {
	o := s.options()
	o.Protocol, o.DoubleScratch = dsl.LL, true
	return o
}

// replicated are the options of plans that have their blocks as instances.
func (s Shape) replicated() dsl.Options {
	o := s.options()
	o.Instances = s.Blocks
	return o
}

// Entry is a plan of the library.
type Entry struct {
	Name       string
	Collective string
	Summary    string
	InPlace    bool // only in place
	OneHost    bool // only inside of a host
	TwoLevels  bool // only over several hosts with several GPUs each
	program    func(Shape) *dsl.Program
}

var entries = []Entry{
	{Name: "allreduce-1pa", Collective: "allreduce", OneHost: true, program: onePhase,
		Summary: "every rank sends all to all others as packets: the fewest steps"},
	{Name: "allreduce-2pa-packets", Collective: "allreduce", OneHost: true, program: twoPhasePackets,
		Summary: "every rank reduces its part and shares it, as packets"},
	{Name: "allreduce-2pa-chunks", Collective: "allreduce", OneHost: true, program: twoPhaseChunks,
		Summary: "every rank reads its part of all inputs, and writes the result to all"},
	{Name: "allreduce-2pa-ports", Collective: "allreduce", program: twoPhasePorts,
		Summary: "every rank reduces its part and shares it, over ports"},
	{Name: "allreduce-2pa-switch", Collective: "allreduce", OneHost: true, InPlace: true, program: twoPhaseSwitch,
		Summary: "the switch reduces a part for every rank and shares it"},
	{Name: "allreduce-pipelined", Collective: "allreduce", OneHost: true, program: pipelined,
		Summary: "reduction and sharing at the same time, by unit"},
	{Name: "allreduce-hierarchical-packets", Collective: "allreduce", TwoLevels: true, program: hierarchicalPackets,
		Summary: "inside of hosts by memory, across by ports, as packets"},
	{Name: "allreduce-hierarchical-chunks", Collective: "allreduce", TwoLevels: true, program: hierarchicalChunks,
		Summary: "inside of hosts by memory, across by ports"},
	{Name: "allgather-packets", Collective: "allgather", OneHost: true, program: gatherPackets,
		Summary: "every rank sends its part to all others as packets"},
	{Name: "allgather-chunks", Collective: "allgather", OneHost: true, program: gatherChunks,
		Summary: "every rank writes its part to all others"},
	{Name: "alltoall", Collective: "alltoall", program: allToAll,
		Summary: "by memory inside of hosts, and by ports across"},
}

// Plans lists the library.
func Plans() []Entry { return slices.Clone(entries) }

// Compile makes the plan of a name for a shape.
func Compile(name string, s Shape) (*schema.Plan, error) {
	i := slices.IndexFunc(entries, func(e Entry) bool { return e.Name == name })
	if i < 0 {
		return nil, fmt.Errorf("library: no plan %q: there are %s: %w", name, strings.Join(names(), ", "), framework.ErrInvalid)
	}
	return entries[i].Compile(s)
}

func names() []string {
	var out []string
	for _, e := range entries {
		out = append(out, e.Name)
	}
	return out
}

// Compile makes the plan for a shape. Its name has the shape in it.
func (e Entry) Compile(s Shape) (*schema.Plan, error) {
	if s.PerHost == 0 {
		s.PerHost = s.Ranks
	}
	if s.Blocks == 0 {
		s.Blocks = 4
	}
	if err := e.fits(s); err != nil {
		return nil, fmt.Errorf("library: %s for %d ranks, %d of each host: %w: %w", e.Name, s.Ranks, s.PerHost, err, framework.ErrInvalid)
	}
	plan, err := e.program(s).Compile()
	if err != nil {
		return nil, fmt.Errorf("library: %s: %w", e.Name, err)
	}
	plan.Name = fmt.Sprintf("%s-%dx%d-%dblocks", e.Name, s.hosts(), s.PerHost, s.Blocks)
	if s.InPlace {
		plan.Name += "-inplace"
	}
	return plan, nil
}

// mostRanks is for how many a plan is made: that takes a minute and 3 GB.
const mostRanks = 512

func (e Entry) fits(s Shape) error {
	switch {
	case s.Ranks < 2:
		return fmt.Errorf("expected at least 2 ranks")
	case s.PerHost < 1 || s.Ranks%s.PerHost != 0:
		return fmt.Errorf("expected as many ranks on every host")
	case s.Ranks > mostRanks:
		return fmt.Errorf("expected at most %d ranks: a plan has operations for every pair of them", mostRanks)
	case s.Blocks < 1 || s.Blocks > schema.DefaultLimits.Blocks:
		return fmt.Errorf("expected 1 to %d thread blocks, not %d", schema.DefaultLimits.Blocks, s.Blocks)
	case e.OneHost && s.PerHost != s.Ranks:
		return fmt.Errorf("expected all ranks on one host")
	case e.TwoLevels && (s.PerHost < 2 || s.hosts() < 2):
		return fmt.Errorf("expected at least 2 hosts with at least 2 ranks each")
	case e.InPlace && !s.InPlace:
		return fmt.Errorf("expected one buffer, in place")
	}
	return nil
}
