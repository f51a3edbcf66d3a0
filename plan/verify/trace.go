package verify

import (
	"errors"

	"github.com/mscclpp-go/mscclpp/framework"
	"github.com/mscclpp-go/mscclpp/plan/schema"
)

// Trace runs one launch of a plan with its smallest messages, and returns the events in an order in which they may happen.
// A plan that hangs has events up to there, and an error of class ErrInvalid that says who waits.
func Trace(p *schema.Plan) ([]Event, error) {
	if err := p.Check(); err != nil {
		return nil, err
	}
	sizes, err := chunks(p)
	if err != nil {
		return nil, &schema.Error{Problem: err.Error()}
	}
	x := newProgram(p, sizes[0])
	set, ok := settingOf(p, x, p.InPlace)
	if !ok {
		return nil, &schema.Error{Problem: "the plan is too large to trace"}
	}
	r := newRun(p, set, x, 1)
	r.trace = &tracer{acted: map[actor]int{}}
	if !r.all() {
		err = errors.Join(framework.ErrInvalid, errors.New(explainer{r}.stuck()))
	}
	return r.trace.events, err
}
