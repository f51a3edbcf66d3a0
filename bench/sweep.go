package bench

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"strings"

	"github.com/mscclpp-go/mscclpp/bench/report"
	"github.com/mscclpp-go/mscclpp/bench/sizes"
	"github.com/mscclpp-go/mscclpp/framework"
	"github.com/mscclpp-go/mscclpp/framework/kernel"
	"github.com/mscclpp-go/mscclpp/internal/suggest"
)

// Options is one run of the benchmark: one collective over a range of sizes.
type Options struct {
	Collective Collective
	Sizes      sizes.Range // of the larger buffer, in bytes
	Type       kernel.DataType
	Op         kernel.Op
	Root       int
	Algorithm  string // "" leaves the choice to the selector
	Plan       Plan   // fields of 0 are chosen by size; Warmup -1 means none; see GraphPlan
	InPlace    bool
	Registered bool
	Check      bool
	Peer       Peer // to compare with; nil: none
}

// Served says what provides the links between the ranks.
type Served struct {
	Device    string
	Transport string
	Process   bool // of its own
	Source    string
}

// mostIterations is how many times of iterations are kept.
const mostIterations = 10_000_000

// Validate reports what is wrong with the options before any rank is involved.
func (o Options) Validate(ranks int) error {
	fault := func(format string, args ...any) error {
		return fmt.Errorf("%w: bench %s: %s", framework.ErrInvalid, o.Collective, fmt.Sprintf(format, args...))
	}
	switch {
	case !slices.Contains(All(), o.Collective):
		return fault("cannot be measured")
	case o.InPlace && !o.Collective.HasInPlace():
		return fault("has no in-place form")
	case o.Root < 0 || o.Root >= ranks:
		return fault("root %d: expected 0 to %d", o.Root, ranks-1)
	case o.Root != 0 && !o.Collective.Rooted():
		return fault("has no root, root %d was given", o.Root)
	case o.Plan.Iterations < 0 || o.Plan.Calls < 0 || o.Plan.Warmup < -1:
		return fault("a negative number of iterations")
	case max(o.Plan.Iterations, o.Plan.Calls, o.Plan.Warmup) > mostIterations:
		return fault("%d iterations or calls: expected at most %d", max(o.Plan.Iterations, o.Plan.Calls, o.Plan.Warmup), mostIterations)
	case o.Plan.Graph && o.Plan.Calls == 0:
		return fault("a graph without a number of calls")
	case o.Sizes.Max > 1<<40:
		return fault("%s: more than 1T", sizes.Format(o.Sizes.Max))
	}
	return nil
}

// Fits is Validate for an existing group. All its ranks get the same answer.
func (o Options) Fits(g Group) error {
	if err := o.Validate(g.Size()); err != nil {
		return err
	}
	if o.Plan.Graph && g.Queue() == nil {
		return fmt.Errorf("%w: bench %s: graphs are for GPUs, and the job runs on the host", framework.ErrInvalid, o.Collective)
	}
	names := g.Algorithms(o.Collective)
	if o.Algorithm != "" && !slices.Contains(names, o.Algorithm) {
		return fmt.Errorf("%w: bench %s: algorithm %q%s: expected one of %s", framework.ErrInvalid, o.Collective, o.Algorithm, suggest.Hint(suggest.Name(o.Algorithm, names)), strings.Join(names, " "))
	}
	return nil
}

// ErrStop is returned by emit when its reader wants no more rows. It ends the measurement on
// all ranks in good order, and Run and RunAll return it there.
var ErrStop = errors.New("bench: no more rows are wanted")

// Run measures every size and passes the rows to emit, on rank 0 only. Every rank calls
// it with equal options. Starting is called on rank 0 before each size; it may be nil.
func Run(ctx context.Context, g Group, o Options, served Served, v *Verifier, starting func(c Collective, bytes int64), emit func(report.Row) error) error {
	return RunAll(ctx, g, []Options{o}, served, v, starting, emit)
}

// RunAll is Run for several kinds of call, one after the other in the same buffers.
// Kind of buffers and peer of the first apply to all.
func RunAll(ctx context.Context, g Group, all []Options, served Served, v *Verifier, starting func(c Collective, bytes int64), emit func(report.Row) error) error {
	shared, most := true, int64(0)
	for _, o := range all {
		if err := o.Fits(g); err != nil {
			return err
		}
		shared, most = shared && o.InPlace, max(most, o.Sizes.Max)
	}
	first := all[0]
	w, err := NewWindow(g, most, shared, first.Registered)
	if err != nil {
		return fmt.Errorf("bench %s: buffers of %s: %w", first.Collective, sizes.Format(most), err)
	}
	peer, err := prepared(first, w)
	if err != nil {
		return fmt.Errorf("bench %s: registered buffers of the peer: %w", first.Collective, err)
	}
	for _, o := range all {
		o.Peer = peer
		if err := o.sweep(ctx, g, w.placed(o.InPlace), served, v, starting, emit); err != nil {
			return err
		}
	}
	if peer == nil || !first.Registered {
		return nil
	}
	if err := peer.Release(); err != nil {
		return fmt.Errorf("bench %s: registered buffers of the peer: %w", first.Collective, err)
	}
	return nil
}

// prepared is the peer with the buffers made known to it. One that cannot have them so
// is measured all the same, under a name that says why. NCCL has kernels for symmetric
// windows for some collectives; the others are measured without, as windows change nothing there.
func prepared(o Options, w Window) (Peer, error) {
	if o.Peer == nil || !o.Registered || !slices.Contains(symmetric, o.Collective) {
		return o.Peer, nil
	}
	switch err := o.Peer.Prepare(w.memories()...); {
	case errors.Is(err, framework.ErrUnsupported):
		return unprepared{o.Peer, err}, nil
	case err != nil:
		return nil, err
	}
	return o.Peer, nil
}

// symmetric are the collectives for which NCCL has kernels for symmetric windows.
var symmetric = []Collective{AllReduce, AllGather, ReduceScatter, AllToAll}

type unprepared struct {
	Peer
	why error
}

func (u unprepared) Name() string {
	return fmt.Sprintf("%s without registered buffers (%v)", u.Peer.Name(), u.why)
}

// sweep measures every size in buffers that are there.
func (o Options) sweep(ctx context.Context, g Group, w Window, served Served, v *Verifier, starting func(c Collective, bytes int64), emit func(report.Row) error) error {
	for _, bytes := range o.Sizes.List() {
		if starting != nil && g.Rank() == 0 {
			starting(o.Collective, bytes)
		}
		row, err := o.point(ctx, g, w, v, bytes)
		if err != nil {
			return fmt.Errorf("bench %s of %s: %w", o.Collective, sizes.Format(bytes), err)
		}
		row.Device = served.Device
		row.Transport, row.TransportProcess, row.TransportSource = served.Transport, served.Process, served.Source
		if err := agreed(ctx, g, row, emit); err != nil {
			return err
		}
	}
	return nil
}

// agreed passes a row on, and has all ranks end where rank 0 wants no more of them.
func agreed(ctx context.Context, g Group, row report.Row, emit func(report.Row) error) error {
	more := []byte{1}
	if g.Rank() == 0 {
		err := emit(row)
		if err != nil && !errors.Is(err, ErrStop) {
			return err
		}
		if err != nil {
			more[0] = 0
		}
	}
	all, err := g.AllGather(ctx, more)
	if err != nil {
		return fmt.Errorf("agreement to go on: %w", err)
	}
	if len(all[0]) != 1 || all[0][0] == 0 {
		return ErrStop
	}
	return nil
}

// point measures one size.
func (o Options) point(ctx context.Context, g Group, w Window, v *Verifier, bytes int64) (report.Row, error) {
	c := &Call{Collective: o.Collective, Type: o.Type, Op: o.Op, Root: o.Root, Algorithm: o.Algorithm, Scale: 0.5}
	if c.Type >= kernel.Int8 && c.Type <= kernel.Uint64 {
		c.Scale = 3 // half of an integer is none
	}
	c.Count = Count(o.Collective, bytes, o.Type.Size(), g.Size())
	if c.Collective == AllToAllV {
		c.V = UnevenBlocks(c.Count, g.Size(), g.Rank())
	}
	w.Place(c, g.Rank(), 0)
	row := o.describe(c, g.Size())
	_, err := g.Chosen(c) // one that cannot be had is refused before any call
	if err != nil {
		return row, err
	}
	plan := o.plan(row.Bytes)
	row.Iterations, row.Calls = plan.Iterations, plan.Calls
	if plan.Graph {
		row.Graph = plan.Calls
	}
	if o.Check {
		if row.Errors, err = v.verify(ctx, g, c, w); err != nil {
			return row, err
		}
	}
	if err := w.ones(c.Type, row.Bytes); err != nil {
		return row, err
	}
	if err := o.measure(ctx, g, c, plan, &row); err != nil {
		return row, err
	}
	if row.Algorithm, err = g.Chosen(c); err != nil { // the first call may have tried which is best
		return row, err
	}
	if o.Check { // again: the many calls in between must have left nothing behind
		after, err := v.verify(ctx, g, c, w)
		if err != nil {
			return row, err
		}
		*row.Errors += *after
	}
	row.AlgBW = float64(row.Bytes) / row.TimeUS / 1e3
	row.BusBW = row.AlgBW * o.Collective.BusFactor(g.Size())
	return row, nil
}

// measure fills in the times.
func (o Options) measure(ctx context.Context, g Group, c *Call, plan Plan, row *report.Row) error {
	libraries := []library{repeated(g.Do)}
	if o.Peer != nil && o.Peer.Supports(c) {
		libraries = append(libraries, o.Peer.Do)
	}
	times, err := measure(ctx, g, c, plan, libraries...)
	if err != nil {
		return err
	}
	row.TimeUS = times[0]
	if o.Peer != nil {
		row.Peer = o.Peer.Name()
	}
	if len(times) > 1 {
		speedup := times[1] / times[0]
		row.PeerTimeUS, row.Speedup = &times[1], &speedup
	}
	return nil
}

func (o Options) describe(c *Call, ranks int) report.Row {
	row := report.Row{
		Collective: o.Collective.String(), Count: int64(c.Count), DType: o.Type.String(), Op: "none", Root: -1, Ranks: ranks,
		Bytes:   Larger(o.Collective, c.Count, ranks) * int64(o.Type.Size()),
		InPlace: o.InPlace, Registered: o.Registered,
	}
	if o.Collective.Reduces() {
		row.Op = o.Op.String()
	}
	if o.Collective.Rooted() {
		row.Root = o.Root
	}
	return row
}

func (o Options) plan(bytes int64) Plan {
	p := DefaultPlan(bytes)
	if o.Plan.Graph {
		p = GraphPlan(bytes, o.Plan.Calls)
	}
	if o.Plan.Iterations > 0 {
		p.Iterations = o.Plan.Iterations
	}
	if o.Plan.Calls > 0 && !o.Plan.Graph {
		p.Calls = o.Plan.Calls
	}
	if o.Plan.Warmup != 0 {
		p.Warmup = max(o.Plan.Warmup, 0)
	}
	p.Fastest = o.Plan.Fastest
	return p
}
