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
	t.joinKernels()
	t.joinSpans()
}

// signal is one signal of a channel.
type signal struct {
	comm     string
	from, to int
	sem      int
	number   uint32
}

// sent is a put with a signal, and the bytes that came with that.
type sent struct {
	put   *Put
	bytes uint64
}

// join finds for each wait the put that ends it. There are several puts and waits with one number where semaphores were used again by
// other channels, and some of them may be missing: a wait belongs to the last put before its end. Both are in their order.
func (t *Trace) join() {
	puts := map[signal][]sent{}
	for _, r := range t.Ranks {
		bytes := map[Channel]uint64{} // of puts whose signal comes later
		for i := range r.Puts {
			p := &r.Puts[i]
			p.Got = 0
			bytes[p.Channel] += p.Bytes
			if p.Signal {
				at := signal{p.Comm, r.Rank, p.Peer, p.Semaphore, p.Number}
				puts[at] = append(puts[at], sent{p, bytes[p.Channel]})
				delete(bytes, p.Channel)
			}
		}
	}
	for _, r := range t.Ranks {
		for i := range r.Waits {
			w := &r.Waits[i]
			w.Sent, w.Bytes = 0, 0
			at := signal{w.Comm, w.Peer, r.Rank, w.Semaphore, w.Number}
			end := w.End + r.ClockError
			if from := t.RankOf(w.Peer); from != nil {
				end += from.ClockError
			}
			list := puts[at]
			n, _ := slices.BinarySearchFunc(list, end, func(s sent, end int64) int { return cmp.Compare(s.put.At, end+1) })
			if n > 0 && list[n-1].put.Got == 0 {
				p := list[n-1]
				w.Sent, w.Bytes, p.put.Got = p.put.At, p.bytes, w.End
			}
		}
	}
}
