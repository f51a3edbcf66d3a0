// Package choose chooses algorithms: it knows which there are, the tables, a model for machines without
// measurements, and how kernels are launched. Its functions depend on their arguments alone.
package choose

import (
	"fmt"
	"maps"
	"slices"
	"strings"

	"github.com/mscclpp-go/mscclpp/collectives/internal/engine"
	"github.com/mscclpp-go/mscclpp/framework"
	"github.com/mscclpp-go/mscclpp/framework/collective"
	"github.com/mscclpp-go/mscclpp/framework/kernel"
	"github.com/mscclpp-go/mscclpp/internal/suggest"
)

// Tables are rows, in the order in which they are asked.
type Tables struct {
	Program []engine.Row // of the configuration
	Builtin []engine.Row
	Last    []engine.Row // for calls that no other algorithm serves

	Unplaced []engine.Unplaced // algorithms that are not offered, with the reason

	// NoKernel says why no transport has kernels of a kind, and what to do.
	NoKernel func(what, kind string) error
}

// Find looks for the algorithm for a call among those that are offered for the collective: the one of the name,
// or, for "", that of the first row that fits. The row is that of the table, if one decided.
func Find(t *Tables, offered []*engine.Algorithm, q *engine.Query, name string) (*engine.Algorithm, *engine.Row, error) {
	if name != "" {
		a := engine.Find(offered, name)
		if a == nil {
			return nil, nil, NoSuch(offered, t.Unplaced, q.Collective, name)
		}
		// A call of nothing reaches no memory of peers. It goes by the tables where the algorithm would need to.
		if err := fits(a, q); err == nil || !q.Empty() {
			return a, t.launches(a, q), err
		}
	}
	if a, row := byRow(t.Program, offered, q, false); a != nil {
		return a, row, nil
	}
	if a, row := byRow(t.Builtin, offered, q, true); a != nil {
		return a, row, nil
	}
	for _, a := range offered {
		if !a.ByRow && fits(a, q) == nil {
			return a, nil, nil
		}
	}
	if a, row := byRow(t.Last, offered, q, true); a != nil {
		return a, row, nil
	}
	return nil, nil, t.lacking(offered, q)
}

// byRow is the algorithm of the first row that fits, and whose algorithm serves the call.
func byRow(table []engine.Row, offered []*engine.Algorithm, q *engine.Query, builtin bool) (*engine.Algorithm, *engine.Row) {
	for i := range table {
		if !table[i].Fits(&q.Request) {
			continue
		}
		a := engine.Find(offered, table[i].Algorithm)
		if a == nil || builtin && a.Beaten.Load() || fits(a, q) != nil {
			continue
		}
		return a, &table[i]
	}
	return nil, nil
}

func fits(a *engine.Algorithm, q *engine.Query) error {
	if a.Fits == nil {
		return nil
	}
	return a.Fits(q)
}

// launches is the row of the program's table that would launch an algorithm that the caller named.
func (t *Tables) launches(a *engine.Algorithm, q *engine.Query) *engine.Row {
	for i := range t.Program {
		if t.Program[i].Algorithm == a.Name && t.Program[i].Fits(&q.Request) {
			return &t.Program[i]
		}
	}
	return nil
}

// NoSuch says why nothing is offered under a name.
func NoSuch(offered []*engine.Algorithm, unplaced []engine.Unplaced, k collective.Kind, name string) error {
	names := Names(offered)
	if reason := engine.Why(unplaced, k, name); reason != nil {
		return fmt.Errorf("algorithm %s of %v is not offered: %w: there are %s", name, k, reason, strings.Join(names, " "))
	}
	if slices.Contains(Existing(k), name) {
		return fmt.Errorf("%w: algorithm %s of %v is not offered: no transport of this job has it for its device: expected one of %s", framework.ErrInvalid, name, k, strings.Join(names, " "))
	}
	text := strings.Join(names, " ")
	for i := range unplaced { // the list of names has the reasons of the others
		if u := &unplaced[i]; name == "?" && u.Collective == k {
			text += fmt.Sprintf("; %s is not offered: %v", u.Name, u.Reason)
		}
	}
	return fmt.Errorf("%w: algorithm %q%s: expected one of %s", framework.ErrInvalid, name, suggest.Hint(suggest.Name(name, names)), text)
}

// Names lists the names of algorithms.
func Names(list []*engine.Algorithm) []string {
	var names []string
	for _, a := range list {
		if !slices.Contains(names, a.Name) {
			names = append(names, a.Name)
		}
	}
	return names
}

// lacking says why no algorithm serves a call.
func (t *Tables) lacking(offered []*engine.Algorithm, q *engine.Query) error {
	types := map[string]bool{}
	for _, a := range offered {
		for _, typ := range a.Types {
			types[typ] = true
		}
	}
	switch {
	case len(offered) == 0:
		return t.noKernel(q.Collective.String(), q.Collective)
	case q.Collective.Reduces() && len(types) > 0 && !types[q.Type.String()]:
		return fmt.Errorf("%w: no kernel for %v of %v: expected one of %s", framework.ErrUnsupported, q.Collective, q.Type,
			strings.Join(slices.Sorted(maps.Keys(types)), " "))
	}
	err := t.noKernel(fmt.Sprintf("%v of %v with %v", q.Collective, q.Type, q.Op), q.Collective)
	for _, a := range offered {
		if reason := fits(a, q); reason != nil {
			err = fmt.Errorf("%w; %v", err, reason)
		}
	}
	return err
}

func (t *Tables) noKernel(what string, k collective.Kind) error {
	if t.NoKernel == nil {
		return fmt.Errorf("%w: no transport has a kernel for %s", framework.ErrUnavailable, what)
	}
	return t.NoKernel(what, k.String())
}

// All lists the algorithms that the tables choose for calls of a collective: of sizes between any two rows, with
// and without registered buffers.
func All(t *Tables, offered []*engine.Algorithm, k collective.Kind, typ kernel.DataType, ranks int, device string) []*engine.Algorithm {
	var all []*engine.Algorithm
	q := engine.Query{Request: engine.Request{Collective: k, Type: typ, Ranks: ranks, Device: device}}
	for _, q.Bytes = range t.bounds(k) {
		q.Count = q.Bytes / uint64(typ.Size())
		if k.Wide() {
			q.Count /= uint64(q.Ranks)
		}
		for _, q.Registered = range []bool{false, true} {
			q.Reached = 0
			if q.Registered {
				q.Reached = engine.ReachInputs | engine.ReachOutputs
			}
			for _, q.InPlace = range []bool{false, true} {
				for _, q.NoCopies = range []bool{false, true} { // copies may not be prepared when a call is captured
					if a, _, err := Find(t, offered, &q, ""); err == nil && !slices.Contains(all, a) {
						all = append(all, a)
					}
				}
			}
		}
	}
	return all
}

// bounds are sizes of which one falls under each row of the tables, and some between.
func (t *Tables) bounds(k collective.Kind) []uint64 {
	var sizes []uint64
	for _, table := range [][]engine.Row{t.Program, t.Builtin, t.Last} {
		for i := range table {
			if (table[i].Collective == 0 || table[i].Collective == k) && table[i].MaxBytes > 0 {
				sizes = append(sizes, table[i].MaxBytes, table[i].MaxBytes+1)
			}
		}
	}
	for bytes := uint64(1); bytes <= mostInPieces; bytes *= 2 {
		sizes = append(sizes, bytes)
	}
	return sizes
}
