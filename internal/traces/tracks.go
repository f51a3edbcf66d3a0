package traces

import (
	"fmt"
	"hash/fnv"
)

// tracks gives each name of a kind a track of a rank.
type tracks struct {
	rank    int
	numbers map[string]int
	to      *[]byte
}

func (t *tracks) of(kind, name string) uint64 {
	key := kind + "\x00" + name
	n, known := t.numbers[key]
	if !known {
		n = trackLife + 1 + len(t.numbers)
		t.numbers[key] = n
		*t.to = appendTrack(*t.to, track(t.rank, n), track(t.rank, trackRank), name, 0, false)
	}
	return track(t.rank, n)
}

// triggersOf is a track for each proxy.
func triggersOf(r *Rank, t *tracks) []event {
	var all []event
	for i := range r.Triggers {
		x := &r.Triggers[i]
		name := "put"
		if x.Bytes == 0 {
			name = "signal"
		}
		all = append(all,
			event{at: x.Begin, kind: typeBegin, track: t.of("proxy", x.Writer), name: name, category: "trigger", notes: []note{
				{name: "bytes", number: int64(x.Bytes)}, {name: "peer", number: int64(x.Peer)}, {name: "queued", number: int64(x.Queued)},
			}},
			event{at: x.End, kind: typeEnd, track: t.of("proxy", x.Writer)})
	}
	return all
}

// transfersOf is a track for what each proxy has under way to each peer.
func transfersOf(r *Rank, t *tracks) []event {
	var all []event
	for i := range r.Transfers {
		x := &r.Transfers[i]
		id := t.of("under way", fmt.Sprintf("%s to rank %d, under way", x.Writer, x.Peer))
		all = append(all,
			event{at: x.Begin, kind: typeBegin, track: id, name: Counted(x.Requests, "request"), category: "transfer", notes: []note{
				{name: "writer", text: x.Writer}, {name: "peer", number: int64(x.Peer)}, {name: "requests", number: int64(x.Requests)}, {name: "bytes", number: int64(x.Bytes)},
			}},
			event{at: x.End, kind: typeEnd, track: id})
	}
	return all
}

// arrow joins a signal with the wait that it ends.
func arrow(c *Channel, from, to int, number uint32, at int64) uint64 {
	h := fnv.New64a()
	fmt.Fprint(h, c.Comm, "\x00", from, "\x00", to, "\x00", c.Semaphore, "\x00", number, "\x00", at)
	return h.Sum64() | 1
}

func (c *Channel) notes(number uint32) []note {
	return []note{
		{name: "communicator", text: c.Comm}, {name: "transport", text: c.Transport}, {name: "peer", number: int64(c.Peer)},
		{name: "semaphore", number: int64(c.Semaphore)}, {name: "signal", number: int64(number)},
	}
}

// channelsOf is a track for each direction of a channel: what was sent, and the waits of the receiver. The arrow leads to the end
// of a wait, since that may have begun before the put.
func channelsOf(r *Rank, t *tracks) []event {
	var all []event
	for i := range r.Puts {
		p := &r.Puts[i]
		id := t.of("channel", fmt.Sprintf("%s to rank %d over %s, semaphore %d", p.Comm, p.Peer, p.Transport, p.Semaphore))
		e := event{at: p.At, kind: typeInstant, track: id, name: "put", category: "put", notes: append(p.notes(p.Number),
			note{name: "bytes", number: int64(p.Bytes)}, note{name: "with signal", number: truth(p.Signal)})}
		if p.Bytes == 0 {
			e.name = "signal"
		}
		if p.Got != 0 {
			e.flows = []uint64{arrow(&p.Channel, r.Rank, p.Peer, p.Number, p.At)}
		}
		all = append(all, e)
	}
	for i := range r.Waits {
		w := &r.Waits[i]
		id := t.of("channel", fmt.Sprintf("%s from rank %d over %s, semaphore %d", w.Comm, w.Peer, w.Transport, w.Semaphore))
		all = append(all,
			event{at: w.Begin, kind: typeBegin, track: id, name: fmt.Sprintf("wait for rank %d", w.Peer), category: "wait", notes: w.notes(w.Number)},
			event{at: w.End, kind: typeEnd, track: id})
		if w.Sent != 0 {
			all = append(all, event{at: max(w.End, w.Sent), kind: typeInstant, track: id, name: "got", category: "got", notes: []note{{name: "bytes", number: int64(w.Bytes)}},
				flowEnds: []uint64{arrow(&w.Channel, w.Peer, r.Rank, w.Number, w.Sent)}})
		}
	}
	return all
}
