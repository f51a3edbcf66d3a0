package dsl

import "slices"

// pythonOrder returns the channels of a signal, wait or flush in the order in which MSCCL++ writes them. It keeps them in a
// set of CPython, united from sets of one channel as operations are merged, and copied as a list when instances are made;
// such a set lists its elements by their places in a hash table. Only blocks with more than seven channels show it.
func pythonOrder(ids []int) []int {
	s := newHashSet(ids[:1])
	for _, id := range ids[1:] {
		u := newHashSet(nil)
		u.merge(s)
		u.merge(newHashSet([]int{id}))
		s = newHashSet(nil)
		s.merge(u)
	}
	return newHashSet(s.list()).list()
}

// hashSet is a set of integers with open addressing, as in CPython 3.7 and later.
type hashSet struct {
	table []int // free, or an element
	used  int
}

const free = -1

func newHashSet(ids []int) *hashSet {
	s := &hashSet{table: slices.Repeat([]int{free}, 8)}
	for _, id := range ids {
		s.add(id)
	}
	return s
}

func (s *hashSet) list() []int {
	return slices.DeleteFunc(slices.Clone(s.table), func(id int) bool { return id == free })
}

// place returns where an element is or would be: a few neighbors of a slot are tried before the next slot.
func (s *hashSet) place(id int) int {
	const neighbors, shift = 9, 5
	mask := len(s.table) - 1
	for i, perturb := id&mask, id; ; {
		last := i
		if i+neighbors <= mask {
			last = i + neighbors
		}
		for j := i; j <= last; j++ {
			if s.table[j] == free || s.table[j] == id {
				return j
			}
		}
		perturb >>= shift
		i = (i*5 + 1 + perturb) & mask
	}
}

func (s *hashSet) add(id int) {
	at := s.place(id)
	if s.table[at] == id {
		return
	}
	s.table[at] = id
	s.used++
	if s.full(s.used) {
		s.grow(s.used * 4)
	}
}

func (s *hashSet) full(used int) bool { return used*5 >= (len(s.table)-1)*3 }

// grow makes room for more than n elements and places all of them anew.
func (s *hashSet) grow(n int) {
	size := 8
	for size <= n {
		size *= 2
	}
	old := s.list()
	s.table = slices.Repeat([]int{free}, size)
	for _, id := range old {
		s.table[s.place(id)] = id
	}
}

func (s *hashSet) merge(o *hashSet) {
	if s.full(s.used + o.used) {
		s.grow((s.used + o.used) * 2)
	}
	if s.used == 0 && len(s.table) == len(o.table) {
		copy(s.table, o.table)
		s.used = o.used
		return
	}
	for _, id := range o.list() {
		s.add(id)
	}
}
