// Package sight shows what the ranks of a job do: it reads the memory in which they say it, and writes, reads and tells
// traces.
package sight

import (
	"cmp"
	"slices"

	"github.com/mscclpp-go/mscclpp/framework/observe"
)

// Trace holds the records of all ranks of a job. All times are those of the clock of rank 0, in ns.
type Trace struct {
	Job   string
	Ranks []*Rank
}

// Rank is one rank of a trace.
type Rank struct {
	Rank, Size   int
	Host, Device string
	PID          int
	State        string // running, …
	Failure      string
	Culprit      int   // of the failure; -1: none is known
	ClockError   int64 // ns; 0: the clock is that of rank 0
	Lost         uint64
	Calls        []Call
	Moments      []Moment
	Triggers     []Trigger
}

// Call is one call of a rank.
type Call struct {
	Comm      string
	Number    uint64 // among the calls of the communicator
	Kind      string
	Algorithm string
	Bytes     uint64
	Begin     int64
	Chosen    int64
	End       int64 // 0: it has not ended
	Guess     bool  // there are no records of it: its times are to a tenth of a second

	// From the calls of the others: which rank began it last, and when. Late is -1 where there are no others.
	Late int
	Met  int64
}

// meeting is one call, of all ranks.
type meeting struct {
	comm   string
	number uint64
}

func meetingOf(c *Call) meeting { return meeting{c.Comm, c.Number} }

// Waited is how long the rank waited in the call for the rank that came last.
func (c *Call) Waited() int64 { return max(0, c.Met-c.Chosen) }

// Moment is an event that takes no time, or of which the end is not known.
type Moment struct {
	Name string
	At   int64
	Peer int // -1: none
}

// Trigger is one request to a proxy.
type Trigger struct {
	Writer     string // the proxy
	Begin, End int64
	Bytes      uint64
}

// finish sorts a trace, and finds for each call the rank that came last.
func (t *Trace) finish() {
	slices.SortFunc(t.Ranks, func(a, b *Rank) int { return cmp.Compare(a.Rank, b.Rank) })
	begun := map[meeting][]*Call{}
	ranks := map[*Call]int{}
	for _, r := range t.Ranks {
		slices.SortStableFunc(r.Calls, func(a, b Call) int { return cmp.Compare(a.Begin, b.Begin) })
		slices.SortStableFunc(r.Moments, func(a, b Moment) int { return cmp.Compare(a.At, b.At) })
		slices.SortStableFunc(r.Triggers, func(a, b Trigger) int { return cmp.Compare(a.Begin, b.Begin) })
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
}

// clockOf is how the clock of a rank relates to that of rank 0. The ranks of a host have one clock, which only the first of them compares.
func clockOf(info *observe.Info, all []observe.Info) observe.Clock {
	if info.Clock.Pings > 0 {
		return info.Clock
	}
	for i := range all {
		if all[i].Job == info.Job && all[i].HostID == info.HostID && all[i].Clock.Pings > 0 {
			return all[i].Clock
		}
	}
	return observe.Clock{}
}
