package verify

import (
	"fmt"
	"strings"

	"github.com/mscclpp-go/mscclpp/plan/schema"
)

// where names a step.
func (s *step) where() string {
	text := fmt.Sprintf("rank %d, block %d, operation %d", s.rank, s.block, s.index)
	if s.inner >= 0 {
		text += fmt.Sprintf(".%d (turn %d)", s.inner, s.turn)
	}
	return text + fmt.Sprintf(" (%s)", s.op.Name)
}

// explainer puts into words where a run has come to.
type explainer struct{ *run }

// explain names two accesses, and why they are a conflict.
func (r explainer) explain(c *conflict) string {
	text := fmt.Sprintf("%s %s %s, and %s %s it", r.actor(c, &c.first), verb(&c.first), r.place(&c.first), r.actor(c, &c.second), verb(&c.second))
	switch {
	case c.weak && (c.second.writes || c.second.thread.kind == userThread):
		return text + ": relaxed signals or packets order them, so that the end of the launch, or a fence, has to make the first store visible"
	case c.weak:
		return text + ": relaxed signals, packets or a flush order them in execution alone, so that the store need not be visible"
	case c.first.thread == c.second.thread && c.first.thread.kind == blockThread && c.first.launch == c.second.launch:
		return text + ": no nop joins the threads of the block between the two"
	}
	return text + ": nothing orders the two"
}

func verb(a *access) string {
	if a.writes {
		return "writes"
	}
	return "reads"
}

// actor names the thread of an access, with the launch where the two are of several.
func (r explainer) actor(c *conflict, a *access) string {
	var text string
	switch a.thread.kind {
	case userThread:
		return fmt.Sprintf("the program of rank %d, after launch %d,", a.thread.rank, a.launch)
	case engineThread:
		text = fmt.Sprintf("the engine of port channel %d of rank %d, for %s,", a.thread.index, a.thread.rank, a.step.where())
	default:
		text = a.step.where()
	}
	if !c.within() {
		text += fmt.Sprintf(" of launch %d", a.launch)
	}
	return text
}

// place names the chunk of an access.
func (r explainer) place(a *access) string {
	per := int32(r.set.chunk / r.set.cell)
	name := map[byte]string{'i': "input", 'o': "output", 's': "scratch memory"}[a.buffer]
	switch {
	case a.buffer == 's' && a.step != nil && a.step.op.Name.Packets():
		per *= 2
	case a.buffer == 'i' && r.set.inPlace:
		name = "buffer (in place)"
	}
	return fmt.Sprintf("chunk %d of the %s of rank %d", a.cell/per, name, a.rank)
}

// left names the channels and semaphores of which a launch takes fewer than it gives: they grow over launches.
func (r explainer) left() []string {
	for rank := range r.ranks {
		for _, c := range r.mine[rank] {
			if n := c.issued - c.taken; n > 0 {
				return []string{fmt.Sprintf("rank %d: a channel or semaphore is raised %d times and taken %d times in each launch", rank, c.issued, c.taken)}
			}
		}
	}
	return nil
}

// stuck names the blocks of a run that does not go on, and the events that they wait for.
func (r explainer) stuck() string {
	var parts []string
	var first *thread
	blocked := 0
	for rank := range r.blocks {
		for _, t := range r.blocks[rank] {
			if t.pc < len(t.steps) {
				if blocked++; first == nil {
					first = t
				}
			}
		}
	}
	seen := map[*thread]bool{}
	for t := first; t != nil && len(parts) < 6; {
		seen[t] = true
		text, next := r.waiting(t)
		parts = append(parts, text)
		if next != nil && seen[next] {
			parts = append(parts, fmt.Sprintf("rank %d, block %d waits already: a circle", next.rank, next.index))
			break
		}
		t = next
	}
	text := strings.Join(parts, "; ")
	if first != nil && first.launch > 1 {
		text = fmt.Sprintf("launch %d: %s", first.launch, text)
	}
	if blocked > 1 {
		text += fmt.Sprintf("; %d blocks wait in all", blocked)
	}
	return text
}

// waiting says for what a block waits, and which block could give it.
func (r explainer) waiting(t *thread) (string, *thread) {
	s := t.steps[t.pc]
	switch s.op.Name {
	case schema.Barrier:
		return r.waitingAtBarrier(t, s)
	case schema.Wait, schema.RlxWait:
		if i := r.lacking(t, s); i >= 0 {
			c := s.counters[i]
			text := fmt.Sprintf("%s waits on %s channel %d for signal %d of rank %d, of which %d came", s.where(), s.op.Channel(), s.op.ChannelIDs[i], max(c.taken, c.issued)+1, s.ends[i].peer, c.issued)
			return r.giver(text, "signals that channel", func(x *thread, y *step) bool { return r.raises(x, y, c) })
		}
	case schema.SemAcquire:
		if i := r.lacking(t, s); i >= 0 {
			c := s.counters[i]
			text := fmt.Sprintf("%s waits for semaphore %d, which began at %d and was released %d times", s.where(), s.op.Semaphores[i], c.initial, c.issued)
			return r.giver(text, "releases it", func(x *thread, y *step) bool { return r.raises(x, y, c) })
		}
	}
	for i := range s.src {
		if p := &s.src[i]; p.packet && !r.arrived(p, t.launch) {
			text := fmt.Sprintf("%s waits for packets in chunk %d of scratch memory", s.where(), p.off/r.set.chunk)
			return r.giver(text, "sends packets there", func(_ *thread, y *step) bool { return sendsInto(y, p) })
		}
	}
	return s.where() + " waits", nil
}

func (r explainer) waitingAtBarrier(t *thread, s *step) (string, *thread) {
	for _, x := range r.blocks[t.rank] {
		if x == t {
			continue
		}
		for i, y := range x.steps[x.pc:] {
			if y.op.Name == schema.Barrier && y.op.Barrier == s.op.Barrier && (i > 0 || !x.arrived) {
				return fmt.Sprintf("%s waits for block %d at barrier %d", s.where(), x.index, s.op.Barrier), x
			}
		}
	}
	return fmt.Sprintf("%s waits at barrier %d for %d blocks, and no other one comes", s.where(), s.op.Barrier, s.op.Blocks), nil
}

// giver looks for a block that still has a step which gives what is waited for.
func (r explainer) giver(text, gives string, does func(*thread, *step) bool) (string, *thread) {
	for rank := range r.blocks {
		for _, t := range r.blocks[rank] {
			for _, s := range t.steps[t.pc:] {
				if does(t, s) {
					return fmt.Sprintf("%s (rank %d, block %d %s)", text, t.rank, t.index, gives), t
				}
			}
		}
	}
	return text + ", and no block that still runs " + gives, nil
}

// raises reports whether a step raises a counter.
func (r explainer) raises(t *thread, s *step, c *counter) bool {
	switch s.op.Name {
	case schema.Signal, schema.RlxSignal, schema.Pws, schema.Pwsf:
		for _, e := range s.ends {
			if r.counter(e.other()) == c {
				return true
			}
		}
	case schema.SemRelease:
		for _, id := range s.op.Semaphores {
			if r.sems[[2]int{t.rank, id}] == c {
				return true
			}
		}
	}
	return false
}

// sendsInto reports whether a step writes packets into a piece.
func sendsInto(s *step, p *piece) bool {
	for i := range s.dst {
		d := &s.dst[i]
		if !d.packet || d.buffer != p.buffer || d.off >= p.off+p.n || p.off >= d.off+d.n {
			continue
		}
		for _, rank := range d.ranks {
			if rank == p.ranks[0] {
				return true
			}
		}
	}
	return false
}

// scratchNote says up to which size scratch memory of a fixed size holds a message.
func scratchNote(p *schema.Plan) []string {
	room := int64(64 << 20)
	if p.DoubleScratch {
		room /= 2
	}
	chunks := 0
	for r := range p.GPUs {
		chunks = max(chunks, p.GPUs[r].ScratchChunks)
	}
	if !p.ReuseResources || chunks == 0 {
		return nil
	}
	a := int64(p.Alignment)
	each := ((room+int64(chunks)-1)/int64(chunks) + a - 1) / a * a
	g := &p.GPUs[0]
	n := g.InputChunks
	if p.Collective == "allgather" && g.OutputChunks > 0 || n == 0 {
		n = g.OutputChunks
	}
	if holds := uint64(each) * uint64(max(n, 1)); holds < p.MaxSize {
		return []string{fmt.Sprintf("the verdict is for messages of up to %d bytes: scratch memory holds no more at once", holds)}
	}
	return nil
}
