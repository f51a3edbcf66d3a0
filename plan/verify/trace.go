package verify

import (
	"fmt"

	"github.com/mscclpp-go/mscclpp/framework"
	"github.com/mscclpp-go/mscclpp/plan/schema"
)

// Trace runs one launch of a plan, and returns the events in an order in which they may happen. Messages are the smallest
// ones, or the first at which the plan hangs. It then has events up to there, and an error of class ErrInvalid that says who
// waits.
func Trace(p *schema.Plan) ([]Event, error) {
	if err := p.Check(); err != nil {
		return nil, err
	}
	sizes, err := chunks(p)
	if err != nil {
		return nil, &schema.Error{Problem: err.Error()}
	}
	var events []Event
	for _, chunk := range sizes {
		x := newProgram(p, chunk)
		set, ok := settingOf(p, x, p.InPlace)
		if !ok {
			continue
		}
		r := newRun(p, set, x, 1)
		r.trace = &tracer{acted: map[actor]int{}}
		if !r.all() {
			return r.trace.events, fmt.Errorf("%w: %s", framework.ErrInvalid, explainer{r}.stuck())
		}
		if events == nil {
			events = r.trace.events
		}
	}
	if events == nil {
		return nil, &schema.Error{Problem: "the plan is too large to trace, or has no operations"}
	}
	return events, nil
}
