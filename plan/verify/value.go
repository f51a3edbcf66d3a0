package verify

import (
	"encoding/binary"
	"sort"

	"github.com/mscclpp-go/mscclpp/plan/schema"
)

// value is the symbolic contents of a cell. Numbers below zero are elements of buffers, the others are in the table of
// a run.
type value int32

// unknown is the value of memory that nobody has written.
const unknown value = 0

// term is one element, and how often it is in a value.
type term struct{ atom, count int32 }

// expression is what a value stands for: a reduction of elements, in any order.
type expression struct {
	op    schema.ReduceOp // "" for a single element
	terms []term          // by atom
	mixed bool            // of several reductions: equal to itself alone
}

// values is a table in which equal expressions have equal numbers.
type values struct {
	all     []expression
	numbers map[string]value
	reduced map[reduction]value
	parts   []part
	first   map[contents]int32
	atoms   int32
}

type reduction struct {
	op   schema.ReduceOp
	a, b value
}

// contents is what a buffer of a rank holds when a launch begins.
type contents struct {
	rank, launch int
	buffer       byte
}

// part is contents whose elements have numbers from first on.
type part struct {
	contents
	first int32
}

func newValues() *values {
	return &values{all: []expression{{}}, numbers: map[string]value{}, reduced: map[reduction]value{}, first: map[contents]int32{}}
}

// element returns the value of one element of contents of n cells.
func (v *values) element(c contents, n, cell int32) value {
	first, ok := v.first[c]
	if !ok {
		first = v.atoms
		v.first[c] = first
		v.parts = append(v.parts, part{c, first})
		v.atoms += n
	}
	return -1 - value(first+cell)
}

// source returns the contents and the cell of an atom.
func (v *values) source(atom int32) (contents, int32) {
	i := sort.Search(len(v.parts), func(i int) bool { return v.parts[i].first > atom }) - 1
	return v.parts[i].contents, atom - v.parts[i].first
}

// expression returns what a value stands for.
func (v *values) expression(x value) expression {
	if x < 0 {
		return expression{terms: []term{{int32(-1 - x), 1}}}
	}
	return v.all[x]
}

// reduce returns the reduction of two values.
func (v *values) reduce(op schema.ReduceOp, a, b value) value {
	key := reduction{op, min(a, b), max(a, b)}
	x, ok := v.reduced[key]
	if !ok {
		x = v.number(v.merge(op, key.a, key.b))
		v.reduced[key] = x
	}
	return x
}

func (v *values) merge(op schema.ReduceOp, a, b value) expression {
	x, y := v.expression(a), v.expression(b)
	if a == unknown || b == unknown || x.mixed || y.mixed || x.op != "" && x.op != op || y.op != "" && y.op != op {
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
		return -1 - value(x.terms[0].atom) // the least of an element and itself
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
