package verify

import (
	"encoding/binary"

	"github.com/mscclpp-go/mscclpp/plan/schema"
)

// value is the symbolic contents of a cell: a number in the table of a run.
type value int32

// unknown is the value of memory that nobody has written.
const unknown value = 0

// term is one element of an input, and how often it is in a value.
type term struct{ atom, count int32 }

// expression is what a value stands for: a reduction of elements of inputs, in any order.
type expression struct {
	op    schema.ReduceOp // "" for a single element
	terms []term          // by atom
	mixed bool            // of several reductions: equal to itself alone
}

// values is a table in which equal expressions have equal numbers.
type values struct {
	all     []expression
	numbers map[string]value
	reduced map[[2]value]map[schema.ReduceOp]value
	atoms   map[source]value
	sources []source // by atom
}

// source is an element of the input of a rank in a launch.
type source struct {
	rank, launch int32
	buffer       byte
	cell         int32
}

func newValues() *values {
	return &values{all: []expression{{}}, numbers: map[string]value{}, reduced: map[[2]value]map[schema.ReduceOp]value{},
		atoms: map[source]value{}}
}

// atom returns the value of one element.
func (v *values) atom(s source) value {
	if x, ok := v.atoms[s]; ok {
		return x
	}
	x := value(len(v.all))
	v.all = append(v.all, expression{terms: []term{{int32(len(v.sources)), 1}}})
	v.sources = append(v.sources, s)
	v.atoms[s] = x
	return x
}

// reduce returns the reduction of two values.
func (v *values) reduce(op schema.ReduceOp, a, b value) value {
	if a > b {
		a, b = b, a
	}
	if x, ok := v.reduced[[2]value{a, b}][op]; ok {
		return x
	}
	x := v.number(v.merge(op, a, b))
	if v.reduced[[2]value{a, b}] == nil {
		v.reduced[[2]value{a, b}] = map[schema.ReduceOp]value{}
	}
	v.reduced[[2]value{a, b}][op] = x
	return x
}

func (v *values) merge(op schema.ReduceOp, a, b value) expression {
	x, y := v.all[a], v.all[b]
	if a == unknown || x.mixed || y.mixed || x.op != "" && x.op != op || y.op != "" && y.op != op {
		return expression{op: op, terms: []term{{int32(a), 0}, {int32(b), 0}}, mixed: true}
	}
	out := expression{op: op}
	for i, k := 0, 0; i < len(x.terms) || k < len(y.terms); {
		switch {
		case k == len(y.terms) || i < len(x.terms) && x.terms[i].atom < y.terms[k].atom:
			out.terms = append(out.terms, x.terms[i])
			i++
		case i == len(x.terms) || y.terms[k].atom < x.terms[i].atom:
			out.terms = append(out.terms, y.terms[k])
			k++
		default:
			t := term{x.terms[i].atom, x.terms[i].count + y.terms[k].count}
			if op != schema.Sum {
				t.count = 1 // the least of an element and itself is the element
			}
			out.terms = append(out.terms, t)
			i, k = i+1, k+1
		}
	}
	return out
}

func (v *values) number(x expression) value {
	if len(x.terms) == 1 && x.terms[0].count == 1 && !x.mixed {
		return v.atoms[v.sources[x.terms[0].atom]] // the least of an element and itself
	}
	key := []byte(x.op)
	if x.mixed {
		key = append(key, '?')
	}
	for _, t := range x.terms {
		key = binary.AppendVarint(key, int64(t.atom))
		key = binary.AppendVarint(key, int64(t.count))
	}
	if n, ok := v.numbers[string(key)]; ok {
		return n
	}
	n := value(len(v.all))
	v.all = append(v.all, x)
	v.numbers[string(key)] = n
	return n
}
