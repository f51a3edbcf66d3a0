package exec

import (
	"errors"

	"github.com/mscclpp-go/mscclpp/plan/schema"
)

// Averages says why the plan gives no averages, or nil: those of sums that it completes. It may be called at any time; the first call
// takes as long as a part of the plan's check.
func (e *Executor) Averages() error {
	_, err := e.completed()
	return err
}

// divide marks the reductions that an average divides.
func (t *tables) divide(last map[*schema.Op]bool) {
	for i, o := range t.reductions {
		if last[o] {
			t.ops[i].Flags |= completes
		}
	}
}

// divides marks the reductions that an average divides, when the first one is called. Launches that run take no notice.
func (e *Executor) divides() error {
	if e.divided {
		return nil
	}
	last, err := e.completed()
	if err != nil {
		return err
	}
	e.tables.divide(last)
	var b builder
	put(&b, e.tables.ops)
	var errs []error
	for _, a := range e.arenas {
		errs = append(errs, writeAt(e.comm.Device(), a.args.Ops, b.bytes))
	}
	err = errors.Join(errs...)
	e.divided = err == nil
	return err
}
