package traces

import (
	"bufio"
	"bytes"
	"compress/gzip"
	"encoding/json"
	"fmt"
	"io"
	"slices"

	"github.com/mscclpp-go/mscclpp/framework"
	"github.com/mscclpp-go/mscclpp/framework/observe"
)

// Part is the trace of one rank by its own clock, on its way to the rank that puts all of them together.
type Part struct {
	Host  string         // ranks with the same one have the same clock
	Clock observe.Clock  // of the rank that compares it for its host
	Comms map[string]int // which rank it is of each communicator

	trace *Trace
}

// Part is what was read of the only rank; nil: of none.
func (c *Collector) Part() *Part {
	c.mu.Lock()
	defer c.mu.Unlock()
	for _, l := range c.logs {
		p := &Part{Host: l.info.HostID, Clock: l.info.Clock, Comms: map[string]int{}}
		for _, s := range l.states {
			p.Comms[s.Name] = s.Rank
		}
		own := *l
		own.info.Clock = observe.Clock{}
		p.trace = &Trace{Job: l.info.Job, Ranks: []*Rank{own.rank(nil, nil)}}
		p.trace.Finish()
		return p
	}
	return nil
}

// Rank is the number of its rank; -1: it has none.
func (p *Part) Rank() int {
	if len(p.trace.Ranks) == 0 {
		return -1
	}
	return p.trace.Ranks[0].Rank
}

// Copy is the part for Assemble, where the part itself is wanted once more.
func (p *Part) Copy() *Part {
	c := *p
	c.trace = &Trace{Job: p.trace.Job}
	for _, r := range p.trace.Ranks {
		x := *r
		x.Calls, x.Moments, x.Triggers = slices.Clone(r.Calls), slices.Clone(r.Moments), slices.Clone(r.Triggers)
		x.Transfers, x.Puts, x.Waits = slices.Clone(r.Transfers), slices.Clone(r.Puts), slices.Clone(r.Waits)
		x.Launches, x.Pieces, x.Signs, x.Spans = slices.Clone(r.Launches), slices.Clone(r.Pieces), slices.Clone(r.Signs), slices.Clone(r.Spans)
		c.trace.Ranks = append(c.trace.Ranks, &x)
	}
	return &c
}

// Encode is the part as bytes.
func (p *Part) Encode() ([]byte, error) {
	var b bytes.Buffer
	z := gzip.NewWriter(&b)
	if err := json.NewEncoder(z).Encode(p); err != nil { // a line
		return nil, err
	}
	if err := p.trace.WritePerfetto(z); err != nil {
		return nil, err
	}
	if err := z.Close(); err != nil {
		return nil, err
	}
	return b.Bytes(), nil
}

// mostOfRecord is more bytes than a record makes of a trace, and mostBeside than the rest of a part has.
const (
	mostOfRecord = 1 << 10
	mostBeside   = 1 << 20
)

// DecodePart is the part of so many records at most that Encode made bytes of.
func DecodePart(b []byte, records int) (*Part, error) {
	fail := func(err error) (*Part, error) {
		return nil, fmt.Errorf("%w: expected a part of a trace: %w", framework.ErrInvalid, err)
	}
	z, err := gzip.NewReader(bytes.NewReader(b))
	if err != nil {
		return fail(err)
	}
	most := int64(records)*mostOfRecord + mostBeside
	limited := &io.LimitedReader{R: z, N: most + 1}
	r := bufio.NewReader(limited)
	head, err := r.ReadBytes('\n')
	if err != nil {
		return fail(err)
	}
	p := &Part{}
	if err := json.Unmarshal(head, p); err != nil {
		return fail(err)
	}
	rest, err := io.ReadAll(r)
	if err != nil {
		return fail(err)
	}
	if limited.N <= 0 {
		return fail(fmt.Errorf("it has more than %d bytes, of at most %d records", most, records))
	}
	if p.trace, err = Read(rest); err != nil {
		return fail(err)
	}
	return p, nil
}

// Assemble makes one trace of parts of one job, with the clock of rank 0. It changes the parts.
func Assemble(parts []*Part) *Trace {
	t := &Trace{}
	clocks := map[string]observe.Clock{}
	world := worldOf{}
	for _, p := range parts {
		if p.Clock.Pings > 0 {
			clocks[p.Host] = p.Clock
		}
		for name, rank := range p.Comms {
			if world[name] == nil {
				world[name] = map[int]int{}
			}
			for _, r := range p.trace.Ranks {
				world[name][rank] = r.Rank
			}
		}
	}
	for _, p := range parts {
		t.Job = p.trace.Job
		clock := clocks[p.Host]
		for _, r := range p.trace.Ranks {
			r.shift(&clock)
			for i := range r.Puts {
				r.Puts[i].Peer = world.rank(r.Puts[i].Comm, r.Puts[i].Peer)
			}
			for i := range r.Waits {
				r.Waits[i].Peer = world.rank(r.Waits[i].Comm, r.Waits[i].Peer)
			}
			for i := range r.Launches {
				r.Launches[i].For = world.rank(r.Launches[i].Comm, r.Launches[i].For)
			}
			for i := range r.Pieces {
				r.Pieces[i].Peer = world.rank(r.Pieces[i].Comm, r.Pieces[i].Peer)
			}
			for i := range r.Signs {
				r.Signs[i].Peer = world.rank(r.Signs[i].Comm, r.Signs[i].Peer)
			}
			t.Ranks = append(t.Ranks, r)
		}
	}
	t.Finish()
	return t
}

// shift turns the times of a rank into those of rank 0.
func (r *Rank) shift(c *observe.Clock) {
	r.ClockError = c.Error
	to := func(times ...*int64) {
		for _, t := range times {
			if *t != 0 {
				*t = c.To(*t)
			}
		}
	}
	for i := range r.Calls {
		to(&r.Calls[i].Begin, &r.Calls[i].Chosen, &r.Calls[i].End)
	}
	for i := range r.Moments {
		to(&r.Moments[i].At)
	}
	for i := range r.Triggers {
		to(&r.Triggers[i].Begin, &r.Triggers[i].End)
	}
	for i := range r.Transfers {
		to(&r.Transfers[i].Begin, &r.Transfers[i].End)
	}
	for i := range r.Puts {
		to(&r.Puts[i].At)
	}
	for i := range r.Waits {
		to(&r.Waits[i].Begin, &r.Waits[i].End)
	}
	for i := range r.Launches {
		to(&r.Launches[i].Begin, &r.Launches[i].End)
	}
	for i := range r.Pieces {
		to(&r.Pieces[i].Begin, &r.Pieces[i].End)
	}
	for i := range r.Signs {
		to(&r.Signs[i].At)
	}
	for i := range r.Spans {
		to(&r.Spans[i].Begin, &r.Spans[i].End)
	}
}
