package traces

import (
	"cmp"
	"maps"
	"math/bits"
	"slices"
)

// LinkTime is how long puts took over one link: from the put, or the wait for it if that began later, to the end of the wait.
type LinkTime struct {
	From      int    `json:"from"`
	To        int    `json:"to"`
	Transport string `json:"transport"`
	SameHost  bool   `json:"same_host"`
	Puts      int    `json:"puts"`  // that a rank waited for
	Bytes     uint64 `json:"bytes"` // of these
	Waited    int64  `json:"waited_ns"`

	// Of the sizes in which the link is slowest, compared with the others of its kind: of its transport, and likewise between hosts or not.
	UpTo   uint64 `json:"up_to_bytes"`
	Counts int    `json:"puts_of_it"`
	Median int64  `json:"median_ns"`
	Others int64  `json:"median_of_others_ns"` // 0: there are none
	Links  int    `json:"others"`
	Slow   bool   `json:"slow"`

	times map[int][]int64 // by class of sizes
}

// A link is slow if it takes so many times as long as the others of its kind, and so much longer. A median of fewer puts says nothing.
const (
	slowTimes  = 2
	slowBy     = 200_000 // ns; more than a rank usually waits for a processor
	fewPuts    = 8
	mostTimes  = 8192 // kept of a link and class
	shortWaits = 2000 // ns: what was waited for had been there
)

// classOf is the class of sizes up to the next power of two.
func classOf(n uint64) int { return bits.Len64(max(n, 1) - 1) }

type linkKey struct {
	from, to  int
	transport string
}

// links are those over which a rank has waited for bytes.
func (t *Trace) links() []LinkTime {
	all := map[linkKey]*LinkTime{}
	for _, r := range t.Ranks {
		for i := range r.Waits {
			w := &r.Waits[i]
			if w.Sent == 0 || w.Bytes == 0 {
				continue // a signal by itself may be held back by its sender
			}
			at := linkKey{w.Peer, r.Rank, w.Transport}
			l := all[at]
			if l == nil {
				from := t.RankOf(w.Peer)
				l = &LinkTime{From: w.Peer, To: r.Rank, Transport: w.Transport, SameHost: from != nil && from.Host == r.Host, times: map[int][]int64{}}
				all[at] = l
			}
			l.Puts++
			l.Bytes += w.Bytes
			l.Waited += max(0, w.End-w.Begin)
			if c := classOf(w.Bytes); w.End-w.Begin > shortWaits {
				if l.times[c] = append(l.times[c], max(0, w.End-max(w.Begin, w.Sent))); len(l.times[c]) > mostTimes {
					l.times[c] = thinned(l.times[c])
				}
			}
		}
	}
	list := make([]LinkTime, 0, len(all))
	for _, l := range all {
		list = append(list, *l)
	}
	return list
}

func median(list []int64) int64 {
	if len(list) == 0 {
		return 0
	}
	slices.Sort(list)
	return list[len(list)/2]
}

// compare finds for each link the class in which it lags most behind the others of its kind; one in which it is slow comes before others.
func compare(links []LinkTime, clocks int64) {
	type kind struct {
		transport string
		sameHost  bool
		class     int
	}
	medians := map[kind][]int64{}
	for i := range links {
		for c, times := range links[i].times {
			if len(times) >= fewPuts {
				k := kind{links[i].Transport, links[i].SameHost, c}
				medians[k] = append(medians[k], median(times))
			}
		}
	}
	for i := range links {
		l := &links[i]
		l.Slow, l.UpTo, l.Counts, l.Median, l.Others, l.Links = false, 0, 0, 0, 0, 0
		worst := 0.0
		for _, c := range slices.Sorted(maps.Keys(l.times)) {
			times := l.times[c]
			if len(times) < fewPuts {
				continue
			}
			own := median(times)
			others := slices.Clone(medians[kind{l.Transport, l.SameHost, c}])
			n, _ := slices.BinarySearch(sorted(others), own)
			others = slices.Delete(others, n, n+1)
			typical := median(others)
			lag := float64(own) / float64(max(typical, 1))
			if len(others) == 0 {
				lag = 0
			}
			slow := len(others) > 0 && lag >= slowTimes && own-typical >= slowBy+2*clocks
			if slow && !l.Slow || slow == l.Slow && (lag > worst || l.Counts == 0) {
				worst, l.Slow = lag, slow
				l.UpTo, l.Counts, l.Median, l.Others, l.Links = 1<<c, len(times), own, typical, len(others)
			}
		}
	}
	slices.SortFunc(links, func(a, b LinkTime) int {
		return cmp.Or(-cmp.Compare(truth(a.Slow), truth(b.Slow)), cmp.Compare(b.Waited, a.Waited), cmp.Compare(a.From, b.From), cmp.Compare(a.To, b.To), cmp.Compare(a.Transport, b.Transport))
	})
}

func sorted(list []int64) []int64 {
	slices.Sort(list)
	return list
}
