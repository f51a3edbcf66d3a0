package verify

// clock says, for each thread, how far its past is known.
type clock []uint32

func (c clock) clone() clock { return append(clock(nil), c...) }

// join takes over what another clock knows.
func (c clock) join(other clock) {
	for i, n := range other {
		if n > c[i] {
			c[i] = n
		}
	}
}

// times are what a point in a run is known to follow. Execution is what happened before; visible is that part of it
// whose stores can be read. Relaxed signals and packets carry the first alone.
type times struct{ execution, visible clock }

func newTimes(n int) times { return times{make(clock, n), make(clock, n)} }

func (t times) clone() times { return times{t.execution.clone(), t.visible.clone()} }

func (t times) join(other times, strong bool) {
	t.execution.join(other.execution)
	if strong {
		t.visible.join(other.visible)
	}
}

// thread is one line of execution: a thread block, the engine of a port channel, or the program between the launches
// of a rank.
type thread struct {
	id    int
	kind  threadKind
	rank  int
	index int // of the block, or of the port channel

	tick uint32

	// now is what all threads of the block know: its own entry is the last point at which they met. An operation
	// since then is known to no other thread of the block.
	now times

	// pending is what thread i of the block has waited for since: it becomes the knowledge of all when they meet.
	pending map[int]times

	launch int
	ended  []uint32 // the last tick of each launch that has ended

	steps []*step
	pc    int

	arrived bool // at the barrier at which it stands

	event, time, arrival int // of a trace: the current event, the next time, and when the thread came to a barrier

	snapshot *times // the last one that was published, of version snapped
	version  int
	snapped  int

	sent   clock // the knowledge in packets of the operation at tick sentAt
	sentAt uint32
}

type threadKind int

const (
	blockThread threadKind = iota
	engineThread
	userThread
)

// meet joins the threads of a block: all know all that any of them did or waited for.
func (t *thread) meet() {
	for _, p := range t.pending {
		t.now.join(p, true)
	}
	clear(t.pending)
	t.version++
	t.now.execution[t.id], t.now.visible[t.id] = t.tick, t.tick
}

// published is the knowledge in a signal of thread i of the block: all that the block had done when it last met, and all
// that thread has waited for since.
func (t *thread) published(i int) times {
	p, ok := t.pending[i]
	if !ok && t.snapshot != nil && t.snapped == t.version {
		return *t.snapshot
	}
	out := t.now.clone()
	if ok {
		out.join(p, true)
	} else {
		t.snapshot, t.snapped = &out, t.version
	}
	return out
}

// learn records what thread i of the block has waited for.
func (t *thread) learn(i int, x times, strong bool) {
	p, ok := t.pending[i]
	if !ok {
		p = newTimes(len(t.now.execution))
		t.pending[i] = p
	}
	p.join(x, strong)
}

// begin starts a launch after everything of before.
func (t *thread) begin(launch int, before times) {
	t.launch, t.pc, t.arrived = launch, 0, false
	t.version++
	t.tick++
	copy(t.now.execution, before.execution)
	copy(t.now.visible, before.visible)
	t.now.execution[t.id], t.now.visible[t.id] = t.tick, t.tick
}
