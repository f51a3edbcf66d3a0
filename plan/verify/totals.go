package verify

import (
	"fmt"

	"github.com/mscclpp-go/mscclpp/framework"
	"github.com/mscclpp-go/mscclpp/plan/schema"
)

// Totals returns the reductions of a plan whose results have an element of every rank. The others give parts of such results.
// In an average it is the totals that are divided. It is an error of class ErrUnsupported if a plan does not sum over all
// ranks, or an operation gives both.
func Totals(p *schema.Plan) (map[*schema.Op]bool, error) {
	if p.Collective != "allreduce" && p.Collective != "reducescatter" {
		return nil, unsupported(p, "is for %q: expected allreduce or reducescatter", p.Collective)
	}
	var other schema.ReduceOp
	each(p, func(o *schema.Op) {
		if o.Name.Reduces() && o.Reduce != schema.Sum {
			other = o.Reduce
		}
	})
	if other != "" {
		return nil, unsupported(p, "has a reduction by %s: expected sums", other)
	}
	in, out := touches(p)
	found, err := totals(p, p.InPlace || in != out)
	if err != nil && p.InPlace && in && out { // the plan may be one for separate buffers
		if other, err := totals(p, false); err == nil {
			return other, nil
		}
	}
	return found, err
}

func totals(p *schema.Plan, inPlace bool) (map[*schema.Op]bool, error) {
	sizes, err := chunks(p)
	if err != nil {
		return nil, unsupported(p, "%w", err)
	}
	found, ran := map[*schema.Op]bool{}, false
	var mixed *schema.Op
	for _, chunk := range sizes {
		x := newProgram(p, chunk)
		set, ok := settingOf(p, x, inPlace)
		if !ok {
			continue
		}
		r := newRun(p, set, x, 1)
		r.reduced = func(o *schema.Op, v value) {
			all := r.values.total(v, len(p.GPUs))
			if before, ok := found[o]; ok && before != all {
				mixed = o
			}
			found[o] = all
		}
		if !r.all() {
			return nil, unsupported(p, "does not end: %s", explainer{r}.stuck())
		}
		if r.checkResults(1); r.wrong != "" {
			return nil, unsupported(p, "is wrong: %s", r.wrong)
		}
		ran = true
	}
	switch {
	case !ran:
		return nil, unsupported(p, "is too large to check")
	case mixed != nil:
		return nil, unsupported(p, "has an operation (%s) that gives results in one place, and parts of them in another", mixed.Name)
	}
	return found, nil
}

func unsupported(p *schema.Plan, format string, args ...any) error {
	return fmt.Errorf("%w: an average: plan %s "+format, append([]any{framework.ErrUnsupported, p.Name}, args...)...)
}

// total reports whether a value is the sum of one element of each of so many ranks.
func (v *values) total(x value, ranks int) bool {
	e := v.expression(x)
	if e.mixed || len(e.terms) != ranks || ranks > 1 && e.op != schema.Sum {
		return false
	}
	seen := map[int]bool{}
	for _, t := range e.terms {
		c, _ := v.source(t.atom)
		if t.count != 1 || seen[c.rank] {
			return false
		}
		seen[c.rank] = true
	}
	return true
}
