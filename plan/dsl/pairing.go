package dsl

import (
	"slices"

	"github.com/mscclpp-go/mscclpp/plan/schema"
)

// pairing counts signals and the waits for them: of each pair of ranks and type of channel there must be as many of one
// as of the other.
type pairing struct {
	order []pair
	of    map[pair]*counts
}

type pair struct {
	from, to int
	channel  schema.ChannelType
}

type counts struct{ signals, waits tally }

// tally is how many of one kind there are, and the line of the last one.
type tally struct {
	n    int
	last site
}

func (p *pairing) pair(from, to int, channel schema.ChannelType) *counts {
	k := pair{from, to, channel}
	if p.of == nil {
		p.of = map[pair]*counts{}
	}
	c := p.of[k]
	if c == nil {
		c = &counts{}
		p.of[k] = c
		p.order = append(p.order, k)
	}
	return c
}

func (t *tally) count() {
	t.n++
	t.last = here()
}

func (p *pairing) signal(from, to int, channel schema.ChannelType) {
	p.pair(from, to, channel).signals.count()
}
func (p *pairing) wait(from, to int, channel schema.ChannelType) {
	p.pair(from, to, channel).waits.count()
}

func (p *pairing) check() *Error {
	i := slices.IndexFunc(p.order, func(k pair) bool { return p.of[k].signals.n != p.of[k].waits.n })
	if i < 0 {
		return nil
	}
	k := p.order[i]
	c := p.of[k]
	tooMany := c.signals
	if c.waits.n > c.signals.n {
		tooMany = c.waits
	}
	return tooMany.last.fault(RuntimeError, "Signal/Wait mismatch on %s: rank %d issues %d signal(s) to rank %d, but rank %d performs %d wait(s) "+
		"for rank %d. Every signal must be matched by a corresponding wait on the peer rank over a channel of the same type.",
		k.channel, k.from, c.signals.n, k.to, k.to, c.waits.n, k.from)
}
