package collectives

import (
	"fmt"
	"maps"
	"slices"
	"strings"

	"github.com/mscclpp-go/mscclpp/collectives/internal/kernelargs"
	"github.com/mscclpp-go/mscclpp/framework"
	"github.com/mscclpp-go/mscclpp/framework/device"
)

// Selector returns the name of the algorithm for a call, or "" to leave the choice to
// the tables. It is called in every call that names no algorithm, and must return the
// same on all ranks. If calls must not allocate, neither may the selector.
type Selector func(*Request) string

// Row is one line of the table of algorithms; the first row that fits a call is used.
// The zero value of all fields but Algorithm fits every call. A row whose algorithm is not
// offered here, or does not serve the call, is passed over. Messages have no rows.
type Row struct {
	Collective Collective
	MaxBytes   uint64 // of the larger buffer
	MinRanks   int
	MaxRanks   int
	Registered *bool
	Algorithm  string

	// How the kernel is launched on a GPU; 0: what the algorithm suggests.
	Blocks  int
	Threads int
}

func (w *Row) fits(r *Request) bool {
	return (w.Collective == 0 || w.Collective == r.Collective) && (w.MaxBytes == 0 || r.Bytes <= w.MaxBytes) &&
		r.Ranks >= w.MinRanks && (w.MaxRanks == 0 || r.Ranks <= w.MaxRanks) &&
		(w.Registered == nil || *w.Registered == r.Registered)
}

var yes, no = true, false

// hostTable is what measurements on CPUs suggest. Between cores a line of memory
// that was just written is what costs, and packets need twice as many, so they win
// for single lines only. Stages beat pulling where two processors share caches, and
// lose by far where they do not: two ranks that could pull try both, see trial.go.
var hostTable = []Row{
	{Collective: AllReduce, MaxBytes: 128, Algorithm: "allpair_ll8"},
	{Collective: AllReduce, MaxBytes: 8 << 10, Algorithm: "allpair_chunk"},
	{Collective: AllReduce, Registered: &yes, Algorithm: "zerocopy"},
	{Collective: AllReduce, MaxBytes: 32 << 10, MaxRanks: 2, Algorithm: "allpair_chunk"},
	{Collective: AllReduce, MaxRanks: 2, Algorithm: "pull"},
	{Collective: AllReduce, Algorithm: "twophase_chunk"},
	{Collective: AllGather, MaxBytes: 128, Algorithm: "ll8"},
	{Collective: AllGather, MaxBytes: 8 << 10, Algorithm: "chunk"},
	{Collective: AllGather, Registered: &yes, Algorithm: "zerocopy"},
	{Collective: AllGather, MaxRanks: 2, Algorithm: "pull"},
	{Collective: AllGather, Algorithm: "chunk"},
	{Collective: ReduceScatter, MaxBytes: 128, Algorithm: "ll8"},
	{Collective: ReduceScatter, MaxBytes: 8 << 10, Algorithm: "chunk"},
	{Collective: ReduceScatter, Registered: &yes, Algorithm: "zerocopy"},
	{Collective: ReduceScatter, Algorithm: "chunk"},
	{Collective: AllToAll, MaxBytes: 128, Algorithm: "ll8"},
	{Collective: AllToAll, MaxBytes: 8 << 10, Algorithm: "chunk"},
	{Collective: AllToAll, Registered: &yes, Algorithm: "zerocopy"},
	{Collective: AllToAll, Algorithm: "chunk"},
	{Collective: Broadcast, Algorithm: "chunk"},
	{Collective: Reduce, Algorithm: "chunk"},
	{Collective: Barrier, Algorithm: "signal"},
}

// choices remembers what the tables said. Programs repeat themselves: one entry a
// collective is enough.
type choices [collectives]struct {
	request Request
	chosen  *algorithm
	launch  device.Launch
}

func (c *choices) reset() { *c = choices{} }

// RegisterSelector sets the program's selector; nil removes it. All ranks register the
// same selector.
func (c *Comm) RegisterSelector(s Selector) {
	c.mu.Lock()
	defer c.mu.Unlock()
	c.selector = s
}

// choose finds the algorithm for a call, and how it is launched.
func (c *Comm) choose(r *Request, name string) (*algorithm, device.Launch, error) {
	cached := &c.choices[r.Collective]
	if name == "" && c.selector == nil && cached.chosen != nil && cached.request == *r {
		return cached.chosen, cached.launch, nil
	}
	a, row, err := c.find(r, name)
	if err != nil {
		return nil, device.Launch{}, err
	}
	l := c.shape(a, r, row)
	if name == "" && c.selector == nil {
		cached.request, cached.chosen, cached.launch = *r, a, l
	}
	return a, l, nil
}

// find looks for the algorithm. The row is that of the table, if one decided.
func (c *Comm) find(r *Request, name string) (*algorithm, *Row, error) {
	if name == "" && c.selector != nil {
		name = c.selector(r)
	}
	if name != "" {
		a := find(c.algorithms[r.Collective], name)
		if a == nil {
			return nil, nil, fmt.Errorf("%w: algorithm %q: expected one of %s", framework.ErrInvalid, name, names(c.algorithms[r.Collective]))
		}
		return a, c.named(a, r), a.fits(r)
	}
	for t, table := range [][]Row{c.table, c.builtin} {
		for i := range table {
			beaten := t == 1 && c.trial == stagesWin && table[i].Algorithm == pull
			if beaten || !table[i].fits(r) {
				continue
			}
			if a := find(c.algorithms[r.Collective], table[i].Algorithm); a != nil && a.fits(r) == nil {
				return a, &table[i], nil
			}
		}
	}
	for _, a := range c.algorithms[r.Collective] {
		if a.own == nil && a.fits(r) == nil {
			return a, nil, nil
		}
	}
	return nil, nil, c.lacking(r)
}

// lacking says why no algorithm serves a call.
func (c *Comm) lacking(r *Request) error {
	types := map[string]bool{}
	for _, a := range c.algorithms[r.Collective] {
		for _, t := range a.kernel.Types {
			types[t] = true
		}
	}
	switch {
	case len(c.algorithms[r.Collective]) == 0:
		return c.noKernel(r.Collective.String(), r.Collective.String())
	case r.Collective.Reduces() && len(types) > 0 && !types[r.Type.String()]:
		return fmt.Errorf("%w: no kernel for %v of %v: expected one of %s", framework.ErrUnsupported, r.Collective, r.Type,
			strings.Join(slices.Sorted(maps.Keys(types)), " "))
	}
	return c.noKernel(fmt.Sprintf("%v of %v with %v", r.Collective, r.Type, r.Op), r.Collective.String())
}

// noKernel says why no transport has kernels of a kind, and what to do.
func (c *Comm) noKernel(what, kind string) error {
	return c.comm.NoKernel(what, kernelargs.Layout(), func(k framework.KernelInfo) bool { return k.Collective == kind })
}

// named is the row of the table that would launch an algorithm that the caller named.
func (c *Comm) named(a *algorithm, r *Request) *Row {
	for i := range c.table {
		if c.table[i].Algorithm == a.name && c.table[i].fits(r) {
			return &c.table[i]
		}
	}
	return nil
}

func names(list []*algorithm) string {
	s := ""
	for i, a := range list {
		if i > 0 {
			s += " "
		}
		s += a.name
	}
	return s
}
