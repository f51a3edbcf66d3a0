package verify

import (
	"slices"

	"github.com/mscclpp-go/mscclpp/plan/schema"
)

// run is one simulated run of a plan: all ranks, some launches, buffers of one size.
type run struct {
	plan     *schema.Plan
	set      setting
	launches int
	watch    map[watched]bool // cells of scratch memory that the program looks at; nil where nobody looks between launches

	threads []*thread
	order   []int       // in which ranks get on
	blocks  [][]*thread // by rank, in the order in which they get on
	engines [][]*thread // by rank and port channel
	users   []*thread   // by rank

	ranks    []*rankMemory
	values   *values
	counters map[end]*counter
	sems     map[[2]int]*counter
	meetings map[[2]int]*meeting
	mine     map[int][]*counter // from which blocks of a rank take

	races
	trace    *tracer
	reduced  func(*schema.Op, value) // is shown the results of reductions, unless it is nil
	wrong    string
	distance int // of a send and receive, plus 1
}

// setting is the size of a run, and how buffers lie.
type setting struct {
	chunk   int64 // bytes of a chunk
	cell    int64 // of which all offsets and sizes are multiples
	inPlace bool
}

// watched is a cell of scratch memory.
type watched struct {
	rank int
	cell int32
}

// meeting is a barrier between blocks of a rank.
type meeting struct{ blocks []*thread }

func newRun(p *schema.Plan, set setting, x *program, launches int) *run {
	r := &run{plan: p, set: set, launches: launches, values: newValues(), counters: map[end]*counter{},
		sems: map[[2]int]*counter{}, meetings: map[[2]int]*meeting{}, mine: map[int][]*counter{}}
	for i := range p.GPUs {
		m := newRankMemory(&p.GPUs[i], set)
		if p.DoubleScratch {
			m.halves()
		}
		r.ranks = append(r.ranks, m)
		r.addThreads(&p.GPUs[i], x)
		r.order = append(r.order, i)
	}
	n := len(r.threads)
	for _, t := range r.threads {
		t.now, t.pending, t.event = newTimes(n), map[int]times{}, -1
	}
	for _, t := range r.threads {
		for _, s := range t.steps {
			r.expect(t, s)
		}
	}
	return r
}

func (r *run) addThreads(g *schema.GPU, x *program) {
	add := func(kind threadKind, index int) *thread {
		t := &thread{id: len(r.threads), kind: kind, rank: g.ID, index: index}
		r.threads = append(r.threads, t)
		return t
	}
	var blocks, engines []*thread
	for b := range g.Blocks {
		t := add(blockThread, b)
		t.steps = x.steps(g.ID, b)
		blocks = append(blocks, t)
	}
	for k := range g.Peers(schema.Port) {
		engines = append(engines, add(engineThread, k))
	}
	r.blocks, r.engines, r.users = append(r.blocks, blocks), append(r.engines, engines), append(r.users, add(userThread, 0))
	for i, s := range g.Semaphores {
		c := newCounter(s.Init)
		r.sems[[2]int{g.ID, i}] = c
		r.mine[g.ID] = append(r.mine[g.ID], c)
	}
}

// counter returns the counter at an end of a channel.
func (r *run) counter(e end) *counter {
	c := r.counters[e]
	if c == nil {
		c = newCounter(0)
		r.counters[e] = c
		r.mine[e.rank] = append(r.mine[e.rank], c)
	}
	return c
}

// other is the end that signals from e arrive at. A channel of a rank to itself is its own other end.
func (e end) other() end { return end{e.peer, e.rank, e.kind, e.ordinal} }

// expect announces the signals of a step.
func (r *run) expect(t *thread, s *step) {
	switch s.op.Name {
	case schema.Signal, schema.RlxSignal, schema.Pws, schema.Pwsf:
		for i, e := range s.ends {
			r.counter(e.other()).expect(r.signals(t, s, i).id)
		}
	case schema.SemRelease:
		for _, id := range s.op.Semaphores {
			r.sems[[2]int{t.rank, id}].expect(t.id)
		}
	}
}

// signals returns the thread that raises the counter: the engine where the channel has one.
func (r *run) signals(t *thread, s *step, i int) *thread {
	if s.op.Channel() == schema.Port {
		return r.engines[t.rank][s.engines[i]]
	}
	return t
}

// all runs all launches of all ranks as far as they go, and reports whether all ended.
func (r *run) all() bool {
	for rank := range r.plan.GPUs {
		r.start(rank, 1, newTimes(len(r.threads)))
	}
	ended := make([]int, len(r.plan.GPUs))
	for moved := true; moved; {
		moved = false
		for _, rank := range r.order {
			if ended[rank] == r.launches {
				continue
			}
			moved = r.advance(rank) || moved
			if r.idle(rank) {
				ended[rank]++
				moved = true
				r.end(rank, ended[rank])
			}
		}
	}
	for _, n := range ended {
		if n < r.launches {
			return false
		}
	}
	return true
}

// backwards is all, with the last rank and block first: a race may be one between going on and waiting forever.
func (r *run) backwards() bool {
	slices.Reverse(r.order)
	for _, blocks := range r.blocks {
		slices.Reverse(blocks)
	}
	return r.all()
}

// advance runs the blocks of a rank as far as they go.
func (r *run) advance(rank int) bool {
	moved := false
	for again := true; again; {
		again = false
		for _, t := range r.blocks[rank] {
			for t.pc < len(t.steps) && r.do(t, t.steps[t.pc]) {
				t.pc++
				t.arrived = false
				again = true
			}
		}
		moved = moved || again
	}
	return moved
}

// idle reports whether all blocks of the rank have ended the launch.
func (r *run) idle(rank int) bool {
	for _, t := range r.blocks[rank] {
		if t.pc < len(t.steps) {
			return false
		}
	}
	return true
}

// start begins a launch of a rank.
func (r *run) start(rank, launch int, before times) {
	r.ranks[rank].fill(r.values, launch)
	for _, t := range r.blocks[rank] {
		t.begin(launch, before)
	}
}

// end ends a launch of a rank. The program looks at the results and writes new input, in the order of the stream, and
// the next launch follows.
func (r *run) end(rank, launch int) {
	u := r.users[rank]
	for _, t := range r.blocks[rank] {
		t.tick++
		t.meet()
		t.ended = append(t.ended, t.tick)
		u.now.join(t.now, true)
	}
	for _, c := range r.mine[rank] {
		c.ended()
	}
	if r.watch == nil {
		return
	}
	u.launch = launch
	u.tick++
	u.meet()
	r.look(u, launch)
	if launch == r.launches {
		return
	}
	r.refill(u)
	r.start(rank, launch+1, u.now.clone())
}
