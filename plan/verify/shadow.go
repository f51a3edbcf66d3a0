package verify

// access is one read or write of a cell.
type access struct {
	thread *thread
	tick   uint32
	launch int
	step   *step
	start  int32 // of the operand, and how long it is: they decide which thread of the block has the cell
	length int32
	class  class
	rank   int // of the memory, for messages
	buffer byte
	cell   int32
	writes bool
}

// class is how an operation divides its elements among the threads of a block. Two operations of one class and the
// same operand have the same thread at each element.
type class uint8

const (
	plain class = iota
	packets
	multimem
	engine
	host
)

// cell is a piece of memory that operations access as a whole.
type cell struct {
	value  value
	flag   uint32 // of a packet: the launch; 0 for plain data
	write  access // the last one; its thread is nil if there is none
	reads  []access
	sender clock // of a packet: what its writer had executed
	second bool  // a packet of the same launch was there before: one that waits for a packet may read either
}

// memory is a buffer of a rank.
type memory struct {
	rank   int
	buffer byte
	cells  []cell
}

// span is a part of a memory: n cells from lo.
type span struct {
	memory *memory
	lo, n  int32
}

// knows reports whether the point of a thread follows an access, in execution.
func (t *thread) knows(a *access, mine *access) bool {
	if t.now.execution[a.thread.id] >= a.tick {
		return true
	}
	return a.thread == t && a.start == mine.start && a.length == mine.length && a.class == mine.class
}

// sees reports whether the thread can read what a write stored. The end of a launch makes stores of its blocks
// visible, so that one that is ordered after that end sees them however it is ordered. Stores of the program between
// launches are of that kind.
func (t *thread) sees(w *access, mine *access) bool {
	if t.now.visible[w.thread.id] >= w.tick {
		return true
	}
	if w.thread == t {
		return t.knows(w, mine)
	}
	switch w.thread.kind {
	case userThread:
		return t.now.execution[w.thread.id] >= w.tick
	case blockThread:
		if w.launch <= len(w.thread.ended) {
			return t.now.execution[w.thread.id] >= w.thread.ended[w.launch-1]
		}
	}
	return false
}

// races are the conflicts that a run has found: the first within a launch, the first across launches, and the first
// store whose visibility rests on the end of a launch.
type races struct{ inside, across, weak *conflict }

// conflict is a pair of accesses that nothing orders.
type conflict struct {
	first, second access
	weak          bool // they are ordered, and the store need not be visible
}

// within reports whether the pair is of one launch: then no distance between launches helps.
func (c *conflict) within() bool {
	return c.first.launch == c.second.launch && c.first.thread.kind != userThread && c.second.thread.kind != userThread
}

// report keeps the first conflict of each kind.
func (r *races) report(c conflict) {
	to := &r.across
	if c.within() {
		to = &r.inside
	}
	if *to == nil {
		*to = &c
	}
}

func (r *races) weakly(c conflict) {
	if r.weak == nil {
		r.weak = &c
	}
}

// read accesses a cell for its value.
func (r *races) read(t *thread, c *cell, a access) value {
	r.checkRead(t, c, &a)
	c.note(a)
	return c.value
}

func (r *races) checkRead(t *thread, c *cell, a *access) {
	w := &c.write
	if w.thread == nil || t.sees(w, a) {
		return
	}
	known := t.knows(w, a)
	if known && (t.kind == userThread || a.class == engine && c.flag != 0) {
		// The end of the launch orders it; and an engine copies packets that its block has looked at.
		if t.kind == userThread {
			r.weakly(conflict{*w, *a, true})
		}
		return
	}
	r.report(conflict{*w, *a, known})
}

// note remembers a read, once for each thread.
func (c *cell) note(a access) {
	for i := range c.reads {
		if c.reads[i].thread == a.thread {
			c.reads[i] = a
			return
		}
	}
	c.reads = append(c.reads, a)
}

// store writes a cell. A packet that is there already may be written again: no reader can tell.
func (r *races) store(t *thread, c *cell, a access, v value, flag uint32, sender clock) {
	a.writes = true
	again := flag != 0 && c.flag == flag && c.value == v
	if w := &c.write; w.thread != nil && !again {
		switch {
		case !t.knows(w, &a):
			r.report(conflict{*w, a, false})
		case !t.sees(w, &a):
			r.weakly(conflict{*w, a, true})
		}
	}
	if again {
		if c.write.thread != t {
			c.note(c.write)
		}
		c.write = a
		return
	}
	for i := range c.reads {
		if rd := &c.reads[i]; !t.knows(rd, &a) {
			r.report(conflict{*rd, a, false})
		}
	}
	c.reads = c.reads[:0]
	c.second = flag != 0 && c.flag == flag
	c.value, c.flag, c.write, c.sender = v, flag, a, sender
}
