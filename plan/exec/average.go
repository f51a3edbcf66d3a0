package exec

import "github.com/mscclpp-go/mscclpp/plan/schema"

// Averages says why the plan performs no averages, or nil. The sum of all ranks is divided where it is complete, before it is
// rounded: an operation that gives such sums in one place and parts of them in another cannot be part of an average. It may be called at any time;
// the first call takes a part of the time of `plan check`.
func (e *Executor) Averages() error {
	_, err := e.totals()
	return err
}

// divide notes in the tables, also in those that were uploaded, which operations divide.
func (e *Executor) divide() error {
	if e.divides {
		return nil
	}
	totals, err := e.totals()
	if err != nil {
		return err
	}
	e.tables.divide(totals)
	for _, a := range e.arenas {
		var b builder
		put(&b, reachable(e.tables, a.table, a.window != nil))
		if err := write(e.comm.Device(), a.args.Ops, b.bytes); err != nil {
			return err
		}
	}
	e.divides = true
	return nil
}

// divide notes which operations give results.
func (t *tables) divide(totals map[*schema.Op]bool) {
	for i, o := range t.reductions {
		if totals[o] {
			t.ops[i].Flags |= total
		}
	}
}
