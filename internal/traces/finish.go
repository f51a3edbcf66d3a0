package traces

import (
	"cmp"
	"slices"
)

// Finish sorts a trace, and finds for each call the rank that came last.
func (t *Trace) Finish() {
	slices.SortFunc(t.Ranks, func(a, b *Rank) int { return cmp.Compare(a.Rank, b.Rank) })
	begun := map[meeting][]*Call{}
	ranks := map[*Call]int{}
	for _, r := range t.Ranks {
		slices.SortStableFunc(r.Calls, func(a, b Call) int { return cmp.Compare(a.Begin, b.Begin) })
		slices.SortStableFunc(r.Moments, func(a, b Moment) int { return cmp.Compare(a.At, b.At) })
		slices.SortStableFunc(r.Triggers, func(a, b Trigger) int { return cmp.Compare(a.Begin, b.Begin) })
		slices.SortStableFunc(r.Transfers, func(a, b Transfer) int { return cmp.Compare(a.Begin, b.Begin) })
		slices.SortStableFunc(r.Puts, func(a, b Put) int { return cmp.Compare(a.At, b.At) })
		slices.SortStableFunc(r.Waits, func(a, b Wait) int { return cmp.Compare(a.Begin, b.Begin) })
		for i := range r.Calls {
			c := &r.Calls[i]
			if c.Late = -1; c.Guess {
				continue
			}
			ranks[c] = r.Rank
			begun[meetingOf(c)] = append(begun[meetingOf(c)], c)
		}
	}
	for _, calls := range begun {
		last := slices.MaxFunc(calls, func(a, b *Call) int { return cmp.Compare(a.Begin, b.Begin) })
		for _, c := range calls {
			if c.Late = -1; len(calls) > 1 {
				c.Late, c.Met = ranks[last], last.Chosen
			}
		}
	}
	t.join()
}

// signal is one signal of a channel.
type signal struct {
	comm     string
	to       int
	sem      int
	number   uint32
	sequence int // of those with one number: semaphores are used again by other channels
}

// join finds for each wait the put that ends it. Both are in their order.
func (t *Trace) join() {
	waits := map[signal]*Wait{}
	count := map[signal]int{}
	for _, r := range t.Ranks {
		for i := range r.Waits {
			w := &r.Waits[i]
			w.Sent, w.Bytes = 0, 0
			at := signal{comm: w.Comm, to: r.Rank, sem: w.Semaphore, number: w.Number}
			n := count[at]
			count[at]++
			at.sequence = n
			waits[at] = w
		}
	}
	clear(count)
	for _, r := range t.Ranks {
		bytes := map[Channel]uint64{} // of puts whose signal comes later
		for i := range r.Puts {
			p := &r.Puts[i]
			p.Got = 0
			bytes[p.Channel] += p.Bytes
			if !p.Signal {
				continue
			}
			at := signal{comm: p.Comm, to: p.Peer, sem: p.Semaphore, number: p.Number}
			n := count[at]
			count[at]++
			at.sequence = n
			if w := waits[at]; w != nil && w.Peer == r.Rank {
				w.Sent, w.Bytes, p.Got = p.At, bytes[p.Channel], w.End
			}
			delete(bytes, p.Channel)
		}
	}
}
