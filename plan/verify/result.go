package verify

import (
	"fmt"
	"slices"
	"strings"

	"github.com/mscclpp-go/mscclpp/plan/schema"
)

// operator returns the operation of a plan's reductions: that of the first one.
func operator(p *schema.Plan) schema.ReduceOp {
	for r := range p.GPUs {
		for b := range p.GPUs[r].Blocks {
			for _, o := range p.GPUs[r].Blocks[b].Ops {
				for _, x := range append([]schema.Op{o}, o.Ops...) {
					if x.Name.Reduces() {
						return x.Reduce
					}
				}
			}
		}
	}
	return schema.Sum
}

// judge compares the results of a run with those of its collective.
type judge struct{ *run }

// results says what is wrong with the results of a launch at a rank, "" for nothing. Those of a test, or of a
// collective of the author's own, are unknown.
func (r judge) results(rank, launch int) string {
	n, m := len(r.plan.GPUs), r.ranks[rank]
	var inputs func(c int32) []value
	switch r.plan.Collective {
	case "allreduce":
		inputs = func(c int32) []value { return r.column(launch, c) }
	case "reducescatter":
		inputs = func(c int32) []value { return r.column(launch, int32(rank)*m.outN+c) }
	case "allgather":
		part := max(1, m.outN/int32(n))
		inputs = func(c int32) []value { return r.part(launch, int(c/part), c%part) }
	case "alltoall":
		part := max(1, m.outN/int32(n))
		inputs = func(c int32) []value { return r.part(launch, int(c/part), int32(rank)*part+c%part) }
	case "sendrecv":
		return r.passedOn(rank, launch)
	default:
		return ""
	}
	op := operator(r.plan)
	for c := range m.outN {
		want := r.fold(op, inputs(c))
		if got := m.output.cells[m.outLo+c].value; got != want {
			return r.differ(rank, launch, c, got, want)
		}
	}
	return ""
}

// column returns element c of the inputs of all ranks.
func (r judge) column(launch int, c int32) []value {
	var out []value
	for _, m := range r.ranks {
		out = append(out, m.input(r.values, launch, c))
	}
	return out
}

// part returns element c of the input of one rank.
func (r judge) part(launch, rank int, c int32) []value {
	return []value{r.ranks[min(rank, len(r.ranks)-1)].input(r.values, launch, c)}
}

func (r judge) fold(op schema.ReduceOp, list []value) value {
	out := list[0]
	for _, v := range list[1:] {
		out = r.values.reduce(op, out, v)
	}
	return out
}

// passedOn checks send and receive: the output is the input of the rank that stands at the same place in the group
// before, whatever the size of groups.
func (r judge) passedOn(rank, launch int) string {
	n, m := len(r.plan.GPUs), r.ranks[rank]
	first := ""
	for from := range n {
		peer := (rank + n - 1 - from) % n
		problem := ""
		for c := range m.outN {
			want := r.ranks[peer].input(r.values, launch, c)
			if got := m.output.cells[m.outLo+c].value; got != want {
				problem = r.differ(rank, launch, c, got, want)
				break
			}
		}
		if problem == "" {
			return r.sameDistance((rank-peer+n)%n, rank)
		}
		if first == "" {
			first = problem
		}
	}
	return first
}

// sameDistance checks that all ranks receive from equally far.
func (r judge) sameDistance(distance, rank int) string {
	if r.distance == 0 {
		r.distance = distance + 1
	}
	if r.distance != distance+1 {
		return fmt.Sprintf("rank %d receives from the rank %d before it, and another one from the rank %d before", rank, distance, r.distance-1)
	}
	return ""
}

func (r judge) differ(rank, launch int, c int32, got, want value) string {
	per := int32(r.set.chunk / r.set.cell)
	return fmt.Sprintf("chunk %d of the output of rank %d is %s; expected %s", c/per, rank, r.describe(got, launch), r.describe(want, launch))
}

// describe names the inputs in a value.
func (r judge) describe(v value, launch int) string {
	x := r.values.expression(v)
	if x.mixed {
		return "a mixture of reductions"
	}
	var parts []string
	for _, t := range x.terms {
		parts = append(parts, r.element(t, launch))
	}
	if len(parts) > 6 {
		parts = append(parts[:5], fmt.Sprintf("%d more", len(parts)-5))
	}
	if op := string(x.op); op != "" {
		return op + " of " + strings.Join(parts, ", ")
	}
	if len(parts) == 0 {
		return "nothing"
	}
	return parts[0]
}

func (r judge) element(t term, launch int) string {
	s, cell := r.values.source(t.atom)
	chunk := cell / int32(r.set.chunk/r.set.cell)
	text := fmt.Sprintf("chunk %d of the input of rank %d", chunk, s.rank)
	switch {
	case s.buffer == 'o':
		text = fmt.Sprintf("what the output of rank %d held before", s.rank)
	case s.buffer == 's':
		text = fmt.Sprintf("what the scratch memory of rank %d held before", s.rank)
	case s.launch != launch:
		text += fmt.Sprintf(" of launch %d", s.launch)
	}
	if t.count != 1 {
		text += fmt.Sprintf(" %d times", t.count)
	}
	return text
}

// checkResults compares the results of all ranks.
func (r *run) checkResults(launch int) {
	for rank := range r.ranks {
		if r.wrong == "" {
			r.wrong = judge{r}.results(rank, launch)
		}
	}
}

// look has the program look at what the launch gave its rank: the output; and, where nobody knows what the plan is to
// give, everything.
func (r *run) look(u *thread, launch int) {
	m := r.ranks[u.rank]
	u.tick++
	u.meet()
	r.lookAt(u, m.span(schema.Output, 0, m.outN, launch), nil)
	if !collective(r.plan.Collective) {
		r.lookAt(u, m.span(schema.Input, 0, m.inN, launch), nil)
		r.lookAt(u, m.span(schema.Scratch, 0, m.scratchCells, launch), r.watch)
	}
	if r.wrong == "" {
		if problem := (judge{r}).results(u.rank, launch); problem != "" {
			r.wrong = fmt.Sprintf("launch %d: %s", launch, problem)
		}
	}
}

func (r *run) lookAt(u *thread, x span, which map[watched]bool) {
	for i := range x.n {
		if which != nil && !which[watched{u.rank, x.lo + i}] {
			continue
		}
		r.read(u, &x.memory.cells[x.lo+i], touch(u, nil, x, i, host))
	}
}

// collective reports whether the name says what the results are.
func collective(name string) bool {
	return slices.Contains([]string{"allreduce", "allgather", "reducescatter", "alltoall", "sendrecv"}, name)
}

// refill has the program write the input of the next launch.
func (r *run) refill(u *thread) {
	u.tick++
	u.meet()
	m := r.ranks[u.rank]
	x := m.span(schema.Input, 0, m.inN, u.launch)
	for i := range x.n {
		r.store(u, &x.memory.cells[x.lo+i], touch(u, nil, x, i, host), m.input(r.values, u.launch+1, i), 0, nil)
	}
}

// unread returns the cells of scratch memory that a launch has written and read nowhere: its results.
func (r *run) unread() map[watched]bool {
	out := map[watched]bool{}
	for _, m := range r.ranks {
		for i := range m.scratch[1].cells {
			if c := &m.scratch[1].cells[i]; c.write.thread != nil && len(c.reads) == 0 {
				out[watched{m.rank, int32(i)}] = true
			}
		}
	}
	return out
}
