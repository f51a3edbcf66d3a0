package verify

import (
	"fmt"

	"github.com/mscclpp-go/mscclpp/framework"
	"github.com/mscclpp-go/mscclpp/plan/schema"
)

// Results of a reduction.
const (
	partly uint8 = 1 << iota // the parts of some ranks
	wholly                   // those of all, each once
)

// Completing returns the reductions of a plan that give the sum of all ranks: those that an average has to divide. A plan has no
// average, and the error says why, if it does not reduce, if its results are not right, or if a reduction gives such sums and others.
func Completing(p *schema.Plan) (map[*schema.Op]bool, error) {
	if p.Collective != "allreduce" && p.Collective != "reducescatter" {
		return nil, fmt.Errorf("%w: plan %s: an average of %q: expected allreduce or reducescatter", framework.ErrUnsupported, p.Name, p.Collective)
	}
	if operator(p) != schema.Sum {
		return nil, fmt.Errorf("%w: plan %s: an average: its reductions are %s: expected sum", framework.ErrUnsupported, p.Name, operator(p))
	}
	sizes, err := chunks(p)
	if err != nil {
		return nil, fmt.Errorf("%w: plan %s: %w", framework.ErrUnsupported, p.Name, err)
	}
	seen := map[*schema.Op]uint8{}
	in, out := touches(p)
	for _, inPlace := range []bool{p.InPlace || in != out, false} {
		if err = given(p, sizes, inPlace, seen); err == nil {
			return complete(p, seen)
		}
	}
	return nil, err
}

// given notes what the reductions of a launch give.
func given(p *schema.Plan, sizes []int64, inPlace bool, seen map[*schema.Op]uint8) error {
	ran := false
	for _, chunk := range sizes {
		x := newProgram(p, chunk)
		set, ok := settingOf(p, x, inPlace)
		if !ok {
			continue
		}
		once := newRun(p, set, x, 1)
		once.given, ran = seen, true
		if !once.all() {
			return fmt.Errorf("%w: plan %s: an average: it does not end", framework.ErrUnsupported, p.Name)
		}
		if once.checkResults(1); once.wrong != "" {
			return fmt.Errorf("%w: plan %s: an average: %s", framework.ErrUnsupported, p.Name, once.wrong)
		}
	}
	if !ran {
		return fmt.Errorf("%w: plan %s: an average: it is too large to find the reductions that complete its results", framework.ErrUnsupported, p.Name)
	}
	return nil
}

func complete(p *schema.Plan, seen map[*schema.Op]uint8) (map[*schema.Op]bool, error) {
	last := map[*schema.Op]bool{}
	for r := range p.GPUs {
		for b := range p.GPUs[r].Blocks {
			ops := p.GPUs[r].Blocks[b].Ops
			for i := range ops {
				inner := ops[i].Ops
				for k := -1; k < len(inner); k++ {
					o := &ops[i]
					if k >= 0 {
						o = &inner[k]
					}
					if seen[o] == partly|wholly {
						return nil, fmt.Errorf("%w: plan %s: an average: rank %d, block %d, operation %d (%s) completes some of its results, and others are parts",
							framework.ErrUnsupported, p.Name, r, b, i, o.Name)
					}
					last[o] = seen[o] == wholly
				}
			}
		}
	}
	return last, nil
}

// gives notes the result of a reduction.
func (r *run) gives(o *schema.Op, v value) {
	if r.given == nil || !o.Name.Reduces() {
		return
	}
	x := r.values.expression(v)
	whole := !x.mixed && len(x.terms) == len(r.plan.GPUs)
	for _, t := range x.terms {
		whole = whole && t.count == 1
	}
	if whole {
		r.given[o] |= wholly
	} else {
		r.given[o] |= partly
	}
}
