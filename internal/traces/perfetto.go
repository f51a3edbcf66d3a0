package traces

import (
	"bufio"
	"cmp"
	"fmt"
	"hash/fnv"
	"io"
	"slices"
)

// WritePerfetto writes the trace as Perfetto reads it.
func (t *Trace) WritePerfetto(w io.Writer) error {
	var described, packets []byte
	var all []packet
	waiters, lates := t.waiters(), t.lates()
	for i, r := range t.Ranks {
		name := fmt.Sprintf("rank %d on %s, %s", r.Rank, r.Host, r.Device)
		described = appendTrack(described, track(r.Rank, trackRank), 0, name, r.Rank+1, i == 0)
		names := &tracks{rank: r.Rank, numbers: map[string]int{}, to: &described}
		for _, events := range []func() []event{
			func() []event { return t.lifeOf(r, &described) },
			func() []event { return callsOf(r, waiters, names) },
			func() []event { return triggersOf(r, names) },
			func() []event { return transfersOf(r, names) },
			func() []event { return channelsOf(r, names) },
			func() []event { return kernelsOf(r, names) },
			func() []event { return spansOf(r, lates[r.Rank], names) },
		} {
			for _, e := range events() { // as packets they take a third of the memory
				from := len(packets)
				packets = e.append(packets)
				all = append(all, packet{e.at, from, len(packets)})
			}
		}
	}
	// Events of one track come in their order, also those of one time.
	slices.SortStableFunc(all, func(x, y packet) int { return cmp.Compare(x.at, y.at) })
	out := bufio.NewWriter(w)
	_, _ = out.Write(described) // Flush has its error
	for _, p := range all {
		_, _ = out.Write(packets[p.from:p.to])
	}
	return out.Flush()
}

// packet is where the packet of an event is among those that were made.
type packet struct {
	at       int64
	from, to int
}

// lifeOf makes the track of a rank's life: where it runs, when it joined, failed or left.
func (t *Trace) lifeOf(r *Rank, b *[]byte) []event {
	id := track(r.Rank, trackLife)
	*b = appendTrack(*b, id, track(r.Rank, trackRank), "life", 0, false)
	at := int64(1 << 62)
	for _, m := range r.Moments {
		at = min(at, m.At)
	}
	for i := range r.Calls {
		at = min(at, r.Calls[i].Begin)
	}
	if at == 1<<62 {
		at = 0
	}
	all := []event{{at: at, kind: typeInstant, track: id, name: "rank", category: "life", notes: []note{
		{name: "job", text: t.Job}, {name: "rank", number: int64(r.Rank)}, {name: "size", number: int64(r.Size)},
		{name: "host", text: r.Host}, {name: "device", text: r.Device}, {name: "pid", number: int64(r.PID)},
		{name: "state", text: r.State}, {name: "failure", text: r.Failure}, {name: "culprit", number: int64(r.Culprit)},
		{name: "clock error ns", number: r.ClockError}, {name: "lost records", number: int64(r.Lost)}, {name: "dropped records", number: int64(r.Dropped)},
	}}}
	for _, m := range r.Moments {
		all = append(all, event{at: m.At, kind: typeInstant, track: id, name: m.Name, category: "event", notes: []note{{name: "peer", number: int64(m.Peer)}}})
	}
	return all
}

// flow joins the rank that came last to a call and one that waited for it.
func flow(c *Call, waiter int) uint64 {
	h := fnv.New64a()
	fmt.Fprint(h, c.Comm, "\x00", c.Number, "\x00", waiter)
	return h.Sum64() | 1
}

// callsOf is a track for each communicator.
func callsOf(r *Rank, waiters map[meeting][]int, t *tracks) []event {
	var all []event
	for i := range r.Calls {
		c := &r.Calls[i]
		id := t.of("calls", c.Comm)
		begin := event{at: c.Begin, kind: typeBegin, track: id, name: c.Kind, category: "call", notes: []note{
			{name: "call", number: int64(c.Number)}, {name: "communicator", text: c.Comm}, {name: "bytes", number: int64(c.Bytes)},
			{name: "algorithm", text: c.Algorithm}, {name: "chosen ns", number: c.Chosen - c.Begin}, {name: "ended", number: min(1, c.End)},
			{name: "without records", number: truth(c.Guess)},
		}}
		if c.Late == r.Rank {
			for _, w := range waiters[meetingOf(c)] {
				begin.flows = append(begin.flows, flow(c, w))
			}
		}
		all = append(all, begin)
		all = append(all, c.parts(id, r.Rank)...)
	}
	return all
}

// waiters lists for each call the ranks that waited in it for the one that came last.
func (t *Trace) waiters() map[meeting][]int {
	all := map[meeting][]int{}
	for _, r := range t.Ranks {
		for i := range r.Calls {
			if c := &r.Calls[i]; c.waits(r.Rank) {
				all[meetingOf(c)] = append(all[meetingOf(c)], r.Rank)
			}
		}
	}
	return all
}

func truth(b bool) int64 {
	if b {
		return 1
	}
	return 0
}

// waits reports whether the rank waited in the call for another one, which is to be seen.
func (c *Call) waits(rank int) bool {
	return c.Late >= 0 && c.Late != rank && c.End > c.Met && c.Waited() > 0
}

// parts are the slices within a call, and its end.
func (c *Call) parts(id uint64, rank int) []event {
	slice := func(name string, from, to int64, notes ...note) []event {
		return []event{{at: from, kind: typeBegin, track: id, name: name, category: "part", notes: notes}, {at: to, kind: typeEnd, track: id}}
	}
	if c.End == 0 { // Perfetto shows a slice without an end as one that did not end
		return nil
	}
	all := slice("choose", c.Begin, c.Chosen)
	from := c.Chosen
	if c.waits(rank) {
		all = append(all, slice(fmt.Sprintf("wait for rank %d", c.Late), c.Chosen, c.Met, note{name: "peer", number: int64(c.Late)})...)
		from = c.Met
	}
	work := slice("work", from, c.End)
	if c.waits(rank) {
		work[0].flowEnds = []uint64{flow(c, rank)}
	}
	return append(append(all, work...), event{at: c.End, kind: typeEnd, track: id})
}
