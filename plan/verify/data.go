package verify

import "github.com/mscclpp-go/mscclpp/plan/schema"

// cells returns where a piece lies, at each of its ranks.
func (r *run) spans(p *piece, launch int) []span {
	lo, n := int32(p.off/r.set.cell), int32(p.n/r.set.cell)
	if p.packet {
		lo, n = 2*lo, 2*n
	}
	out := make([]span, len(p.ranks))
	for i, rank := range p.ranks {
		out[i] = r.ranks[rank].span(p.buffer, lo, n, launch)
	}
	return out
}

// touch is an access of a thread to cell i of a span.
func touch(t *thread, s *step, x span, i int32, c class) access {
	return access{thread: t, tick: t.tick, launch: t.launch, step: s, start: x.lo, length: x.n, class: c,
		rank: x.memory.rank, buffer: x.memory.buffer, cell: x.lo + i}
}

// classOf says how an operation divides its elements among threads.
func classOf(o *schema.Op) class {
	switch {
	case o.Name.Packets():
		return packets
	case o.Channel() == schema.Switch:
		return multimem
	}
	return plain
}

// arrived reports whether all packets of a piece are there.
func (r *run) arrived(p *piece, launch int) bool {
	for _, x := range r.spans(p, launch) {
		for i := range x.n {
			if x.memory.cells[x.lo+i].flag != uint32(launch) {
				return false
			}
		}
	}
	return true
}

// load reads element i of a piece; packets are known to be there. Of several ranks it reads the reduction.
func (r *run) load(t *thread, s *step, p *piece, at []span, i int32) value {
	out := unknown
	for k, x := range at {
		var v value
		if p.packet {
			v = r.loadPacket(t, s, x, i)
		} else {
			v = r.read(t, &x.memory.cells[x.lo+i], touch(t, s, x, i, classOf(s.op)))
		}
		if k == 0 {
			out = v
		} else {
			out = r.values.reduce(s.op.Reduce, out, v)
		}
	}
	return out
}

// loadPacket reads the two cells of a packet. The thread has seen the flag, so that it follows the writer.
func (r *run) loadPacket(t *thread, s *step, x span, i int32) value {
	for k := range int32(2) {
		c := &x.memory.cells[x.lo+2*i+k]
		a := touch(t, s, x, 2*i+k, packets)
		if c.second && !t.knows(&c.write, &a) {
			r.report(conflict{c.write, a, false})
		}
		if c.sender != nil && t.now.execution[c.write.thread.id] < c.write.tick {
			t.now.execution.join(c.sender)
			t.version++
		}
		r.trace.followStep(t, &c.write)
		c.note(a)
	}
	return x.memory.cells[x.lo+2*i].value
}

// save writes element i of a piece at all its ranks.
func (r *run) save(t *thread, s *step, p *piece, at []span, i int32, v value) {
	for _, x := range at {
		if !p.packet {
			r.store(t, &x.memory.cells[x.lo+i], touch(t, s, x, i, classOf(s.op)), v, 0, nil)
			continue
		}
		for k := range int32(2) {
			r.store(t, &x.memory.cells[x.lo+2*i+k], touch(t, s, x, 2*i+k, packets), v, uint32(t.launch), r.sender(t))
		}
	}
}

// sender is what a packet of the thread says: all that the block has done up to its operation.
func (r *run) sender(t *thread) clock {
	if t.sent == nil || t.sentAt != t.tick {
		t.sent, t.sentAt = t.now.execution.clone(), t.tick
		t.sent[t.id] = t.tick
	}
	return t.sent
}

func (r *run) allSpans(ps []piece, launch int) [][]span {
	out := make([][]span, len(ps))
	for i := range ps {
		out[i] = r.spans(&ps[i], launch)
	}
	return out
}

// elements is how many elements a piece has.
func elements(p *piece, at []span) int32 {
	if p.packet {
		return at[0].n / 2
	}
	return at[0].n
}

// move copies source i to destination i, for each i.
func (r *run) move(t *thread, s *step) {
	src, dst := r.allSpans(s.src, t.launch), r.allSpans(s.dst, t.launch)
	for k := range s.src {
		for i := range elements(&s.src[k], src[k]) {
			r.save(t, s, &s.dst[k], dst[k], i, r.load(t, s, &s.src[k], src[k], i))
		}
	}
}

// spread reduces all sources, and writes the result to all destinations.
func (r *run) spread(t *thread, s *step) {
	src, dst := r.allSpans(s.src, t.launch), r.allSpans(s.dst, t.launch)
	for i := range elements(&s.src[0], src[0]) {
		v := r.load(t, s, &s.src[0], src[0], i)
		for k := 1; k < len(s.src); k++ {
			v = r.values.reduce(s.op.Reduce, v, r.load(t, s, &s.src[k], src[k], i))
		}
		if r.reduced != nil && s.op.Name.Reduces() {
			r.reduced(s.op, v)
		}
		for k := range s.dst {
			r.save(t, s, &s.dst[k], dst[k], i, v)
		}
	}
}

// transfer is what the engine of a port channel does: it copies cells as they are, packets with their flags.
func (r *run) transfer(e *thread, s *step, src, dst *piece) {
	from, to := r.spans(src, e.launch)[0], r.spans(dst, e.launch)[0]
	for i := range from.n {
		c := &from.memory.cells[from.lo+i]
		v := r.read(e, c, touch(e, s, from, i, engine))
		r.store(e, &to.memory.cells[to.lo+i], touch(e, s, to, i, engine), v, c.flag, r.sender(e))
	}
}
