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

type counts struct {
	signals, waits int
	last           site // the line of the last of them
}

func (p *pairing) count(from, to int, channel schema.ChannelType) *counts {
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
	c.last = here()
	return c
}

func (p *pairing) signal(from, to int, channel schema.ChannelType) {
	p.count(from, to, channel).signals++
}
func (p *pairing) wait(from, to int, channel schema.ChannelType) { p.count(from, to, channel).waits++ }

func (p *pairing) check() *Error {
	i := slices.IndexFunc(p.order, func(k pair) bool { return p.of[k].signals != p.of[k].waits })
	if i < 0 {
		return nil
	}
	k := p.order[i]
	c := p.of[k]
	return c.last.fault(RuntimeError, "Signal/Wait mismatch on %s: rank %d issues %d signal(s) to rank %d, but rank %d performs %d wait(s) "+
		"for rank %d. Every signal must be matched by a corresponding wait on the peer rank over a channel of the same type.",
		k.channel, k.from, c.signals, k.to, k.to, c.waits, k.from)
}
