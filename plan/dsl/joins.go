package dsl

import (
	"slices"

	"github.com/mscclpp-go/mscclpp/plan/schema"
)

// joined writes the joins that signals, waits, flushes and semaphores ask for as operations.
func joined(ops []*op) []*op {
	var out []*op
	for _, o := range ops {
		o.body = joined(o.body)
		if o.syncs() && o.sync&Before != 0 {
			out = append(out, nop())
		}
		out = append(out, o)
		if o.syncs() && o.sync&After != 0 {
			out = append(out, nop())
		}
	}
	return out
}

func nop() *op { return &op{kind: kNop, name: schema.Nop} }

// ordered inserts a join before every operation whose local data an earlier one, since the last join, has touched, and
// one of the two writes it.
func ordered(ops []*op) []*op {
	var out []*op
	seen := accesses{}
	for _, o := range ops {
		if o.joins() {
			clear(seen)
			out = append(out, o)
			continue
		}
		if o.kind == kPipeline {
			o.body = ordered(o.body)
		}
		conflict := false
		for _, a := range o.accesses() {
			a.by = o
			conflict = seen.add(a) || conflict
		}
		if conflict {
			out = append(out, nop())
		}
		out = append(out, o)
	}
	return out
}

// access is what an operation does with a run of chunks of a local buffer.
type access struct {
	by         *op
	typ        schema.Buffer
	start, end int // inclusive; an empty run ends before it starts
	writes     bool
}

// accesses lists the local accesses of an operation as the analysis counts them: packets have flags of their own and need
// no join. Of a reduction of packets it leaves out the first source rather than the packets, as MSCCL++ does; this
// inserts joins that need not be, and hides none between operations that fuse.
func (o *op) accesses() []access {
	var out []access
	add := func(list []operand, writes bool) {
		for _, x := range list {
			out = append(out, access{typ: x.typ, start: x.index, end: x.index + x.size - 1, writes: writes})
		}
	}
	switch o.kind {
	case kCopy:
		if o.name != schema.UnpackPkt {
			add(o.src, false)
		}
		if o.name != schema.CopyPkt {
			add(o.dst, true)
		}
	case kPut:
		if o.name != schema.ReadPutPkt {
			add(o.src, false)
		}
	case kGet:
		add(o.dst, true)
	case kReduce:
		if o.packets {
			add(o.src[1:], false)
		} else {
			add(o.src, false)
		}
		add(o.dst, true)
	case kPipeline:
		for _, inner := range o.body {
			out = append(out, inner.accesses()...)
		}
	}
	return out
}

func (a access) overlaps(b access) bool { return a.start <= b.end && b.start <= a.end }

// accesses holds the runs touched since the last join, disjoint and ascending, of each buffer.
type accesses map[schema.Buffer][]access

// add enters an access and reports whether it conflicts with one of another operation. Then the join that follows from it
// orders everything before, which add forgets.
func (s accesses) add(a access) bool {
	for {
		list := s[a.typ]
		i := lowerBound(list, a.start)
		if len(list) == 0 || !a.overlaps(list[i]) {
			break
		}
		old := list[i]
		if a.by != old.by && (a.writes || old.writes) {
			clear(s)
			s[a.typ] = []access{a}
			return true
		}
		s[a.typ] = slices.Delete(list, i, i+1)
		if old.end > a.end {
			rest := old
			rest.start = a.end + 1
			s.insert(rest)
		}
		if old.start < a.start {
			rest := old
			rest.end = a.start - 1
			s.insert(rest)
		}
	}
	s.insert(a)
	return false
}

// lowerBound returns the first run that ends at start or later, or the last one.
func lowerBound(list []access, start int) int {
	low, high := 0, len(list)-1
	for low < high {
		mid := (low + high) / 2
		if start <= list[mid].end {
			high = mid
		} else {
			low = mid + 1
		}
	}
	return low
}

func (s accesses) insert(a access) {
	list := s[a.typ]
	i, same := slices.BinarySearchFunc(list, a, func(x, y access) int {
		if x.start != y.start {
			return x.start - y.start
		}
		return x.end - y.end
	})
	if !same { // two empty runs may be at one place
		s[a.typ] = slices.Insert(list, i, a)
	}
}
