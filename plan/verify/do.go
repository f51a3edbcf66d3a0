package verify

import "github.com/mscclpp-go/mscclpp/plan/schema"

// do runs one step of a block, and reports false if it has to wait.
func (r *run) do(t *thread, s *step) bool {
	if !r.ready(t, s) {
		return false
	}
	t.tick++
	r.trace.enter(t, s)
	switch s.op.Name {
	case schema.Nop:
		t.meet()
	case schema.Barrier:
		t.meet()
		r.trace.waited(t)
	case schema.Wait, schema.RlxWait:
		r.wait(t, s)
	case schema.Signal, schema.RlxSignal:
		r.signal(t, s)
	case schema.SemAcquire:
		for i, id := range s.op.Semaphores {
			r.sems[[2]int{t.rank, id}].take(t, r.trace, func(x times, strong bool) { t.learn(i, x, strong) })
		}
	case schema.SemRelease:
		for i, id := range s.op.Semaphores {
			r.sems[[2]int{t.rank, id}].raise(t, t.published(i), true)
		}
	case schema.Flush:
		for i := range s.ends {
			r.complete(t, s, i)
		}
	default:
		r.operate(t, s)
	}
	return true
}

// ready reports whether the step need not wait any more.
func (r *run) ready(t *thread, s *step) bool {
	switch s.op.Name {
	case schema.Barrier:
		return r.gather(t, s)
	case schema.Wait, schema.RlxWait, schema.SemAcquire:
		if r.lacking(t, s) >= 0 {
			return false
		}
	}
	for i := range s.src {
		if s.src[i].packet && s.op.Name != schema.PutPkt && !r.arrived(&s.src[i], t.launch) {
			return false
		}
	}
	return true
}

// lacking returns which of its channels or semaphores a step waits for, -1 for none. One may stand there twice.
func (r *run) lacking(t *thread, s *step) int {
	for i, c := range r.taken(t, s) {
		n := 0
		for _, x := range r.taken(t, s)[:i+1] {
			if x == c {
				n++
			}
		}
		if !c.ready(n) {
			return i
		}
	}
	return -1
}

// taken returns the counters from which a step takes.
func (r *run) taken(t *thread, s *step) []*counter {
	if s.counters == nil {
		for _, e := range s.ends {
			s.counters = append(s.counters, r.counter(e))
		}
		for _, id := range s.op.Semaphores {
			s.counters = append(s.counters, r.sems[[2]int{t.rank, id}])
		}
	}
	return s.counters
}

// gather brings a block to a barrier. The last one lets all of them through, and knows what all know.
func (r *run) gather(t *thread, s *step) bool {
	if t.arrived {
		g := r.meetings[[2]int{t.rank, s.op.Barrier}]
		for _, x := range g.blocks {
			if x == t {
				return false
			}
		}
		return true
	}
	key := [2]int{t.rank, s.op.Barrier}
	g := r.meetings[key]
	if g == nil {
		g = &meeting{}
		r.meetings[key] = g
	}
	t.arrived = true
	t.tick++
	t.meet()
	g.blocks = append(g.blocks, t)
	if len(g.blocks) < s.op.Blocks {
		return false
	}
	all := newTimes(len(r.threads))
	for _, x := range g.blocks {
		all.join(x.now, true)
	}
	for _, x := range g.blocks {
		x.now.join(all, true)
		x.version++
	}
	r.trace.together(g.blocks)
	g.blocks = nil
	return true
}

func (r *run) wait(t *thread, s *step) {
	strong := s.op.Name == schema.Wait || s.op.Channel() == schema.Port
	for i, e := range s.ends {
		r.counter(e).take(t, r.trace, func(x times, released bool) { t.learn(i, x, strong && released) })
	}
}

func (r *run) signal(t *thread, s *step) {
	strong := s.op.Name == schema.Signal || s.op.Channel() == schema.Port
	for i, e := range s.ends {
		if s.op.Channel() == schema.Port {
			x := r.request(t, s, i)
			r.counter(e.other()).raise(x, x.published(0), true)
			continue
		}
		r.counter(e.other()).raise(t, t.published(i), strong)
	}
}

// request brings a request of thread i of the block to the engine of channel i, which is then done with all earlier
// ones and at the new one.
func (r *run) request(t *thread, s *step, i int) *thread {
	e := r.engines[t.rank][s.engines[i]]
	e.now.join(t.published(i), true)
	e.version++
	e.launch = t.launch
	e.tick++
	e.meet()
	r.trace.enter(e, s)
	r.trace.follow(e, t.event)
	return e
}

// complete has thread i of the block wait until the engine of channel i has read all that it was asked to send.
func (r *run) complete(t *thread, s *step, i int) {
	e := r.engines[t.rank][s.engines[i]]
	t.learn(i, e.now, false)
	r.trace.follow(t, e.event)
}

// operate runs an operation with operands.
func (r *run) operate(t *thread, s *step) {
	o := s.op
	if o.Channel() == schema.Port {
		r.send(t, s)
		return
	}
	switch o.Name {
	case schema.Put, schema.Get, schema.PutPkt, schema.Pws, schema.Pwsf:
		r.move(t, s)
	default:
		r.spread(t, s)
	}
	if o.Name == schema.Pws || o.Name == schema.Pwsf {
		t.meet()
		for i, e := range s.ends {
			r.counter(e.other()).raise(t, t.published(i), true)
		}
	}
}

// send hands transfers to the engines of port channels.
func (r *run) send(t *thread, s *step) {
	if s.op.Name == schema.ReadPutPkt {
		src := r.spans(&s.src[0], t.launch)[0]
		for i := range elements(&s.src[0], []span{src}) {
			r.loadPacket(t, s, src, i)
		}
		t.meet()
	}
	for i := range s.dst {
		e := r.request(t, s, i)
		src := &s.src[min(i, len(s.src)-1)]
		r.transfer(e, s, src, &s.dst[i])
		if s.op.Name == schema.Pws || s.op.Name == schema.Pwsf {
			r.counter(s.ends[i].other()).raise(e, e.published(0), true)
		}
		if s.op.Name == schema.Pwsf {
			r.complete(t, s, i)
		}
	}
}
