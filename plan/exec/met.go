package exec

import (
	"github.com/mscclpp-go/mscclpp/plan/schema"
)

// handshake is one end of a memory channel in the lists of a rank.
type handshake struct {
	block        int // 1 + the only one that uses the channel, or several
	signal, wait *op // the first of each, if nothing is done before it; nil: something is
	signals      int
	waits        int
}

const several = -1

// meets marks the signals and waits at the beginning of lists that say no more than that a rank has begun its launch. Ranks that reach
// each other's buffers where they are tell each other so before: in such launches these operations are left out, at both ends.
// An operation before which a block waits says more, as does one of a channel that several blocks use.
func meets(p *schema.Plan, all []*tables, mates [][]bool) {
	ends, peers := make([][]handshake, len(all)), make([][]int, len(all))
	for r, t := range all {
		peers[r] = links(&p.GPUs[r])
		ends[r] = t.handshakes(len(peers[r]))
	}
	others := counterparts(peers)
	counterpart := func(r int, k uint32) (peer *handshake, ok bool) {
		rank, other := peers[r][k], others[r][k]
		if other < 0 || !mates[r][rank] || ends[r][k].block == several || ends[rank][other].block == several {
			return nil, false
		}
		return &ends[rank][other], true
	}
	candidates := map[*op]bool{}
	each := func(f func(r int, k uint32, h *handshake)) {
		for r := range ends {
			for k := range ends[r] {
				f(r, uint32(k), &ends[r][k])
			}
		}
	}
	each(func(_ int, _ uint32, h *handshake) {
		if h.signal != nil {
			candidates[h.signal] = true
		}
		if h.wait != nil {
			candidates[h.wait] = true
		}
	})
	left := func(o *op, r int) bool { // whether both ends of all its channels are
		for _, k := range all[r].ids[o.IDs : o.IDs+uint32(o.IDCount)] {
			mine := &ends[r][k]
			peer, ok := counterpart(r, k)
			if !ok || o.Kind == opSignal && (mine.signal != o || !candidates[peer.wait]) || o.Kind == opWait && (mine.wait != o || !candidates[peer.signal]) {
				return false
			}
		}
		return true
	}
	for changed := true; changed; {
		changed = false
		each(func(r int, _ uint32, h *handshake) {
			for _, o := range []*op{h.signal, h.wait} {
				if candidates[o] && !left(o, r) {
					delete(candidates, o)
					changed = true
				}
			}
		})
	}
	for o := range candidates {
		o.Flags |= met
	}
	for _, t := range all {
		for b := range t.blocks {
			list := &t.blocks[b]
			for list.Met < list.Count && t.ops[list.First+list.Met].idle() {
				list.Met++
			}
		}
	}
}

// idle reports whether an operation does nothing in launches in which ranks have met, if nothing was done before it.
func (o *op) idle() bool { return o.Kind == opNop || o.Flags&met != 0 }

// counterparts are the numbers that the channels to some peers have at the other end, or -1: the channels of a pair of ranks are paired in order.
func counterparts(peers [][]int) [][]int {
	type pair struct{ of, to int }
	channels := map[pair][]int{}
	for r, list := range peers {
		for k, peer := range list {
			channels[pair{r, peer}] = append(channels[pair{r, peer}], k)
		}
	}
	out := make([][]int, len(peers))
	next := map[pair]int{}
	for r, list := range peers {
		out[r] = make([]int, len(list))
		for k, peer := range list {
			theirs, i := channels[pair{peer, r}], next[pair{r, peer}]
			next[pair{r, peer}]++
			out[r][k] = -1
			if peer != r && i < len(theirs) {
				out[r][k] = theirs[i]
			}
		}
	}
	return out
}

// handshakes are the ends of so many channels.
func (t *tables) handshakes(channels int) []handshake {
	out := make([]handshake, channels)
	for b, list := range t.blocks {
		idle, waited := true, false
		ops := t.ops[list.First : list.First+list.Count]
		for i := range ops {
			o := &ops[i]
			order := (o.Kind == opSignal || o.Kind == opWait) && o.Flags&overPort == 0
			idle = idle && (o.Kind == opNop || order && o.Flags&relaxed != 0)
			if !order {
				continue
			}
			for _, k := range t.ids[o.IDs : o.IDs+uint32(o.IDCount)] {
				out[k].use(o, b, idle && (o.Kind == opWait || !waited))
			}
			waited = waited || o.Kind == opWait
		}
	}
	return out
}

// use notes a signal or wait of a block; first: nothing is done before it.
func (h *handshake) use(o *op, block int, first bool) {
	if h.block == 0 {
		h.block = block + 1
	} else if h.block != block+1 {
		h.block = several
	}
	end, count := &h.signal, &h.signals
	if o.Kind == opWait {
		end, count = &h.wait, &h.waits
	}
	if *count++; first && *count == 1 {
		*end = o
	}
}
