package traces

import (
	"cmp"
	"fmt"
	"slices"
)

// Story summarizes a trace in numbers.
type Story struct {
	Job     string       `json:"job"`
	Ranks   int          `json:"ranks"`
	Calls   int          `json:"calls"`
	Slowest *SlowCall    `json:"slowest,omitempty"`
	Late    []LateRank   `json:"late"` // the rank for which the others usually waited longest comes first
	Split   []TimeSplit  `json:"split"`
	Kernels []KernelTime `json:"kernels"` // of ranks whose kernels write records, or wait long
	Devices []DeviceTime `json:"devices"` // of ranks whose streams take the times of calls
	Open    []OpenCall   `json:"open"`    // calls that have not ended
	Failed  []Failure    `json:"failed"`
	Proxies []ProxyTime  `json:"proxies"`
	Links   []LinkTime   `json:"links"`   // slow ones come first, then those over which ranks waited longest
	Lost    uint64       `json:"lost"`    // records that were overwritten before they were read
	Dropped uint64       `json:"dropped"` // the oldest ones, of which there were more than are kept
	Error   int64        `json:"clock_error_ns"`
}

// SlowCall is the call that took longest, from its first beginning to its last end.
type SlowCall struct {
	Comm      string `json:"communicator"`
	Number    uint64 `json:"number"`
	Kind      string `json:"collective"`
	Algorithm string `json:"algorithm"`
	Bytes     uint64 `json:"bytes"`
	Took      int64  `json:"took_ns"`
	Late      int    `json:"late"`    // the rank that began it last, or -1
	LateBy    int64  `json:"late_ns"` // behind the first one
}

// LateRank is how often a rank came last, and how long the others waited for it.
type LateRank struct {
	Rank   int   `json:"rank"`
	Times  int   `json:"times"`
	Cost   int64 `json:"cost_ns"`   // all waits of all others
	Median int64 `json:"median_ns"` // by which it came behind the first one
	lates  []int64
}

// usual is how much the others usually waited: one long wait does not make a rank a slow one.
func (l *LateRank) usual() int64 { return int64(l.Times) * l.Median }

// standsOut reports whether the others waited for the first of the list most of all.
func (s *Story) standsOut() bool {
	all := int64(0)
	for i := range s.Late {
		all += s.Late[i].usual()
	}
	return len(s.Late) > 0 && 2*s.Late[0].usual() > all && 2*s.Late[0].Times > s.Calls
}

// Straggler names the rank that everybody waited for, with the evidence, or is empty.
func (s *Story) Straggler() string {
	if !s.standsOut() {
		return ""
	}
	l := s.Late[0]
	return fmt.Sprintf("everybody waited for rank %d: it came last in %d of %s, %s behind the first in the middle, and cost the others %s",
		l.Rank, l.Times, Counted(s.Calls, "call"), Took(l.Median), Took(l.Cost))
}

// TimeSplit is where a rank spent its time.
type TimeSplit struct {
	Rank   int   `json:"rank"`
	Choose int64 `json:"choose_ns"`
	Wait   int64 `json:"wait_ns"` // until the last rank began the call
	Work   int64 `json:"work_ns"`
	Beside int64 `json:"beside_ns"` // between calls
}

// OpenCall is a call that some ranks are in.
type OpenCall struct {
	Comm    string `json:"communicator"`
	Number  uint64 `json:"number"`
	Kind    string `json:"collective"`
	Bytes   uint64 `json:"bytes"`
	In      []int  `json:"in"`
	Without []int  `json:"without"` // ranks of the communicator that have not begun it
}

// Failure is the reason that a rank gave for the end of the job.
type Failure struct {
	Rank    int    `json:"rank"`
	Culprit int    `json:"culprit"`
	Text    string `json:"text"`
}

// ProxyTime counts the transfers of a proxy, and their time.
type ProxyTime struct {
	Rank     int    `json:"rank"`
	Proxy    string `json:"proxy"`
	Triggers int    `json:"triggers"`
	Bytes    uint64 `json:"bytes"`
	Took     int64  `json:"took_ns"`
}

// meetings groups the calls of all ranks by communicator and number.
func (t *Trace) meetings() [][]*Call {
	index := map[meeting]int{}
	var all [][]*Call
	for _, r := range t.Ranks {
		for i := range r.Calls {
			c := &r.Calls[i]
			if c.Guess {
				continue
			}
			n, known := index[meetingOf(c)]
			if !known {
				n = len(all)
				index[meetingOf(c)] = n
				all = append(all, nil)
			}
			all[n] = append(all[n], c)
		}
	}
	return all
}

// Tell finds the story of a trace.
func (t *Trace) Tell() *Story {
	s := &Story{Job: t.Job, Ranks: len(t.Ranks), Late: []LateRank{}, Split: []TimeSplit{}, Open: []OpenCall{}, Failed: []Failure{}, Proxies: []ProxyTime{}, Kernels: []KernelTime{}, Devices: []DeviceTime{}, Links: t.links()}
	late := map[int]*LateRank{}
	for _, calls := range t.meetings() {
		s.Calls++
		s.meet(calls, late)
	}
	for _, l := range late {
		s.Late = append(s.Late, *l)
	}
	for _, r := range t.Ranks {
		s.Lost += r.Lost
		s.Dropped += r.Dropped
		s.Error = max(s.Error, r.ClockError)
		s.Split = append(s.Split, split(r))
		s.Kernels = append(s.Kernels, kernelTime(r)...)
		s.Devices = append(s.Devices, deviceTime(r)...)
		s.Proxies = append(s.Proxies, proxies(r)...)
		if r.Failure != "" {
			s.Failed = append(s.Failed, Failure{r.Rank, r.Culprit, r.Failure})
		}
	}
	s.open(t)
	s.rank()
	return s
}

// meet takes one call, as all ranks saw it.
func (s *Story) meet(calls []*Call, late map[int]*LateRank) {
	first, last, done := calls[0], calls[0], true
	end := int64(0)
	for _, c := range calls {
		if c.Begin < first.Begin {
			first = c
		}
		if c.Begin > last.Begin {
			last = c
		}
		end, done = max(end, c.End), done && c.End > 0
	}
	if len(calls) > 1 {
		l := late[last.Late]
		if l == nil {
			l = &LateRank{Rank: last.Late}
			late[last.Late] = l
		}
		l.Times++
		l.lates = append(l.lates, last.Begin-first.Begin)
		for _, c := range calls {
			if c != last {
				l.Cost += c.Waited()
			}
		}
	}
	if took := end - first.Begin; done && (s.Slowest == nil || took > s.Slowest.Took) {
		s.Slowest = &SlowCall{
			Comm: first.Comm, Number: first.Number, Kind: first.Kind, Algorithm: first.Algorithm, Bytes: first.Bytes,
			Took: took, Late: last.Late, LateBy: last.Begin - first.Begin,
		}
	}
}

func split(r *Rank) TimeSplit {
	x := TimeSplit{Rank: r.Rank}
	until := map[string]int64{}
	for i := range r.Calls {
		c := &r.Calls[i]
		if c.End == 0 || c.Guess {
			continue
		}
		wait := min(c.Waited(), c.End-c.Chosen)
		x.Choose += c.Chosen - c.Begin
		x.Wait += wait
		x.Work += c.End - c.Chosen - wait
		if before, known := until[c.Comm]; known {
			x.Beside += max(0, c.Begin-before)
		}
		until[c.Comm] = c.End
	}
	return x
}

func proxies(r *Rank) []ProxyTime {
	var all []ProxyTime
	for i := range r.Triggers {
		x := &r.Triggers[i]
		n := slices.IndexFunc(all, func(p ProxyTime) bool { return p.Proxy == x.Writer })
		if n < 0 {
			n = len(all)
			all = append(all, ProxyTime{Rank: r.Rank, Proxy: x.Writer})
		}
		all[n].Triggers++
		all[n].Bytes += x.Bytes
		all[n].Took += x.End - x.Begin
	}
	return all
}

// open lists the calls that have not ended, and the ranks that are missing in them: the last call of those is an earlier one.
func (s *Story) open(t *Trace) {
	lasts := map[string]map[int]*Call{} // by communicator and rank
	for _, r := range t.Ranks {
		for i := range r.Calls {
			c := &r.Calls[i]
			if lasts[c.Comm] == nil {
				lasts[c.Comm] = map[int]*Call{}
			}
			if l := lasts[c.Comm][r.Rank]; l == nil || l.Number < c.Number {
				lasts[c.Comm][r.Rank] = c
			}
		}
	}
	for comm, ranks := range lasts {
		open := map[uint64]*OpenCall{}
		for rank, c := range ranks {
			if c.End != 0 {
				continue
			}
			if open[c.Number] == nil {
				open[c.Number] = &OpenCall{Comm: comm, Number: c.Number, Kind: c.Kind, Bytes: c.Bytes, Without: []int{}}
			}
			open[c.Number].In = append(open[c.Number].In, rank)
		}
		for number, o := range open {
			for rank, c := range ranks {
				if c.Number < number {
					o.Without = append(o.Without, rank)
				}
			}
			slices.Sort(o.In)
			slices.Sort(o.Without)
			s.Open = append(s.Open, *o)
		}
	}
	slices.SortFunc(s.Open, func(a, b OpenCall) int { return cmp.Or(cmp.Compare(a.Comm, b.Comm), cmp.Compare(a.Number, b.Number)) })
}

// rank finds the medians, and which ranks and links are worst.
func (s *Story) rank() {
	for i := range s.Late {
		s.Late[i].Median = median(s.Late[i].lates)
	}
	slices.SortFunc(s.Late, func(a, b LateRank) int {
		return cmp.Or(cmp.Compare(b.usual(), a.usual()), cmp.Compare(a.Rank, b.Rank))
	})
	compare(s.Links, s.Error)
}
