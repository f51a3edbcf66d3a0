package collectives

// cut is how the share of every rank is cut into pieces. It follows from the call and
// the size of a slot, so it is the same on all ranks.
type cut struct {
	share  uint64 // elements of a full share
	piece  uint64 // elements of a full piece
	pieces int    // even: pieces use the two slots of a peer by turns, from call to call
	total  uint64 // elements of all shares
}

const wordBytes = 16 // pieces begin at multiples of it

func cutShares(total, share, element, slot uint64) cut {
	round := func(n, unit uint64) uint64 { return (n + unit - 1) / unit * unit }
	word := max(1, wordBytes/element)
	pairs := max(1, (share*element+2*slot-1)/(2*slot))
	k := cut{share: share, total: total, pieces: int(2 * pairs)}
	k.piece = round((share+2*pairs-1)/(2*pairs), word)
	if k.piece*element > slot { // rounding
		k.pieces += 2
		k.piece = round((share+uint64(k.pieces)-1)/uint64(k.pieces), word)
	}
	return k
}

// of returns where piece p of a rank's share begins among all elements, and how many
// it has.
func (k cut) of(rank, p int) (first, count uint64) {
	begin := min(uint64(rank)*k.share, k.total)
	end := min(begin+k.share, k.total)
	first = min(begin+uint64(p)*k.piece, end)
	return first, min(k.piece, end-first)
}

// copyReduced is all-reduce and reduce-scatter: every rank pushes pieces of its
// input into the scratch of those whose shares they are, sums what it got on a second
// stream, and for an all-reduce pushes the sums into the outputs of the others while
// the next piece arrives.
func (c *Comm) copyReduced(q *queue, j *job) {
	k, a := c.copier, &c.args
	ranks, rank, element := int(a.Ranks), int(a.Rank), uint64(a.Element)
	gather := j.collective == AllReduce
	total, share := a.Count*uint64(ranks), a.Count
	if gather {
		word := max(1, wordBytes/element)
		total, share = a.Count, (a.Count+uint64(ranks)*word-1)/(uint64(ranks)*word)*word
	}
	pieces := cutShares(total, share, element, k.slot)
	s := q.args
	s.Op, s.Scale, s.Stride = a.Op, a.Scale, k.slot

	results := func(p int) {
		q.await(k.marks[p&1], q.stream)
		first, count := pieces.of(rank, p)
		for i := 1; i < ranks && gather; i++ {
			to := (rank + i) % ranks
			q.copy(a.Outputs[to]+uintptr(a.OutputOffset+first*element), a.Output+uintptr(first*element), count*element)
		}
	}
	q.record(k.marks[0], q.stream)
	q.await(k.marks[0], k.side)
	for p := range pieces.pieces {
		half := uintptr(uint64(p&1) * uint64(ranks) * k.slot)
		for i := 1; i < ranks; i++ {
			to := (rank + i) % ranks
			first, count := pieces.of(to, p)
			q.copy(k.peers.Peer(to)+half+uintptr(uint64(rank)*k.slot), a.Input+uintptr(first*element), count*element)
		}
		next := uint32(0)
		if p+1 < pieces.pieces {
			next = stepTaken
		}
		q.signal(stepPushed, next, slotsOfAPeer)

		first, count := pieces.of(rank, p)
		out := a.Output + uintptr(first*element)
		if !gather {
			out = a.Output + uintptr((first-min(uint64(rank)*pieces.share, pieces.total))*element)
		}
		q.signalOn(k.side, 0, stepPushed, 0)
		if count > 0 {
			s.Input, s.Output = a.Input+uintptr(first*element), out
			s.Inputs, s.Count = k.peers.Peer(rank)+half, count
			q.launch(k.side, c.sumOf(j.dtype), min(sumBlocks, c.blocks), deviceThreads)
		}
		q.signalOn(k.side, stepTaken, 0, 0)
		if p > 0 {
			results(p - 1)
		}
		q.record(k.marks[p&1], k.side)
	}
	results(pieces.pieces - 1)
	if gather {
		q.signal(stepDone, stepDone, 0)
	}
}
