package bench

import "github.com/mscclpp-go/mscclpp/framework/collective"

// Collective names an operation that can be measured and checked.
type Collective int

// The collectives, in the order of the documentation.
const (
	AllReduce Collective = iota
	AllGather
	ReduceScatter
	Broadcast
	Reduce
	AllToAll
	AllToAllV
	Gather
	Scatter
	SendRecv // every rank sends to the next and receives from the one before, in one group
	collectives
)

func one(float64) float64        { return 1 }
func othersOf(n float64) float64 { return (n - 1) / n }

// table has what each of them is, and its factor between algorithm bandwidth and bus bandwidth.
var table = [collectives]struct {
	collective.Kind
	busbw func(ranks float64) float64
}{
	AllReduce:     {collective.AllReduce, func(n float64) float64 { return 2 * (n - 1) / n }},
	AllGather:     {collective.AllGather, othersOf},
	ReduceScatter: {collective.ReduceScatter, othersOf},
	Broadcast:     {collective.Broadcast, one},
	Reduce:        {collective.Reduce, one},
	AllToAll:      {collective.AllToAll, othersOf},
	AllToAllV:     {collective.AllToAllV, othersOf},
	Gather:        {collective.Gather, othersOf},
	Scatter:       {collective.Scatter, othersOf},
	SendRecv:      {collective.SendRecv, one},
}

// All returns every collective.
func All() []Collective {
	all := make([]Collective, collectives)
	for i := range all {
		all[i] = Collective(i)
	}
	return all
}

// ParseCollective is the inverse of String. Case, '-' and '_' do not matter.
func ParseCollective(name string) (Collective, error) {
	var names []string
	for _, t := range table {
		names = append(names, t.String())
	}
	c, err := collective.Find(name, names)
	return Collective(c), err
}

// String returns the name as on the command line.
func (c Collective) String() string { return table[c].Kind.String() }

// Reduces reports whether the collective takes a reduction.
func (c Collective) Reduces() bool { return table[c].Kind.Reduces() }

// Rooted reports whether the collective takes a root.
func (c Collective) Rooted() bool { return table[c].Kind.Rooted() }

// HasInPlace reports whether the collective has an in-place form, as NCCL defines it.
func (c Collective) HasInPlace() bool { return table[c].Kind.HasInPlace() }

// BusFactor returns the factor between algorithm bandwidth and bus bandwidth, as in
// nccl-tests. All-to-all-v has the factor of all-to-all.
func (c Collective) BusFactor(ranks int) float64 { return table[c].busbw(float64(ranks)) }

// Count returns the number of elements to pass to the call so that its larger buffer
// holds at most bytes.
func (c Collective) Count(bytes int64, elementSize, ranks int) int {
	n := bytes / int64(elementSize)
	if table[c].Wide() {
		n /= int64(ranks)
	}
	return int(n)
}

// Elements returns how many elements the input and the output of a rank hold. A
// rank that is not the root has no output in Reduce and Gather and no input in
// Broadcast and Scatter.
func (c Collective) Elements(count, ranks, rank, root int) (in, out int) {
	in, out = count, count
	switch c {
	case AllGather:
		out = count * ranks
	case ReduceScatter:
		in = count * ranks
	case AllToAll, AllToAllV:
		in, out = count*ranks, count*ranks
	case Gather:
		out = count * ranks
	case Scatter:
		in = count * ranks
	}
	if c.Rooted() && rank != root {
		switch c {
		case Reduce, Gather:
			out = 0
		case Broadcast, Scatter:
			in = 0
		}
	}
	return in, out
}

// Larger returns the number of elements of the larger buffer, over all ranks.
func (c Collective) Larger(count, ranks int) int64 {
	if c == AllToAllV {
		return int64(blockUnit(count, ranks) * ranks * (ranks + 1) / 2)
	}
	if table[c].Wide() {
		return int64(count) * int64(ranks)
	}
	return int64(count)
}

// SharedAt returns where input and output start, in elements, in the single buffer of
// an in-place call.
func (c Collective) SharedAt(count, rank, root int) (in, out int) {
	switch {
	case c == AllGather, c == Gather && rank == root:
		return rank * count, 0
	case c == ReduceScatter, c == Scatter && rank == root:
		return 0, rank * count
	}
	return 0, 0
}
