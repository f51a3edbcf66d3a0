package intra

import (
	"github.com/mscclpp-go/mscclpp/collectives/internal/choose"
	"github.com/mscclpp-go/mscclpp/collectives/internal/engine"
	"github.com/mscclpp-go/mscclpp/collectives/internal/kernelargs"
	"github.com/mscclpp-go/mscclpp/framework/collective"
	"github.com/mscclpp-go/mscclpp/framework/kernel"
)

// cut is how the share of every rank is cut into pieces. It follows from the call and
// the size of a slot, so it is the same on all ranks.
type cut struct {
	share  uint64   // elements of a full share
	total  uint64   // elements of all shares
	bounds []uint64 // of the pieces within a full share; their number is even: slots are used by turns, from call to call
}

const wordBytes = 16 // pieces begin at multiples of it

func (k cut) pieces() int { return len(k.bounds) - 1 }

// of returns where piece p of a rank's share begins among all elements, and how many
// it has.
func (k cut) of(rank, p int) (first, count uint64) {
	begin := min(uint64(rank)*k.share, k.total)
	end := min(begin+k.share, k.total)
	first = min(begin+k.bounds[p], end)
	return first, min(begin+k.bounds[p+1], end) - first
}

// cutEvenly makes as few pieces as slots allow, of one size.
func cutEvenly(into []uint64, total, share, element, slot uint64) cut {
	word := max(1, wordBytes/element)
	pairs := max(1, (share*element+2*slot-1)/(2*slot))
	piece := roundUp((share+2*pairs-1)/(2*pairs), word)
	if piece*element > slot { // rounding
		pairs++
		piece = roundUp((share+2*pairs-1)/(2*pairs), word)
	}
	for p := range 2*pairs + 1 {
		into = append(into, min(p*piece, share))
	}
	return cut{share, total, into}
}

// cutToTaper makes each piece three quarters of what is left, or a full slot, and the last one a
// third of a slot at most. The work on a piece takes less time than the next one travels, and
// nothing hides the work on the last one. A copy begins some 10 µs after the one before, so there
// should be few.
func cutToTaper(into []uint64, total, share, element, slot uint64) cut {
	word := max(1, wordBytes/element)
	slot /= element
	into = append(into, 0)
	for at := uint64(0); at < share || len(into) < 3; {
		left := share - at
		piece := min(slot, roundUp(left-left/4, word), left)
		if odd := len(into)%2 == 0; odd && left <= slot/3 {
			piece = left
		}
		at += piece
		into = append(into, at)
	}
	if len(into)%2 == 0 {
		into = append(into, share)
	}
	return cut{share, total, into}
}

func roundUp(n, unit uint64) uint64 { return (n + unit - 1) / unit * unit }

// stagedCopy is a call whose pieces pass through the scratch of the peers. On the caller's stream
// a rank pushes pieces into the peers' scratch, and on a third one it tells them: a kernel
// between two copies would keep the second one for some 12 µs. On the second one it takes
// what the peers have pushed there. A peer has two slots in it, by turns, so a push waits
// until the one before the last was taken. Every call begins with the first slot.
type stagedCopy struct {
	*queue
	k             *copier
	cut           cut
	ranks, rank   int
	element       uint64
	slots         [slotsOfAPeer]uint64 // bytes of a peer's
	input, output uintptr

	pushes, pushed, taken int
}

// cutInto cuts a call into pieces of at most so many bytes. It returns the bytes of an element, too.
func (k *copier) cutInto(a *algorithm, c *engine.Call, slot uint64) (cut, uint64) {
	ranks, element := uint64(k.ranks), uint64(c.Type.Size())
	total, share := c.Count*ranks, c.Count
	if c.Collective.Rooted() {
		total = share
	}
	by := cutToTaper
	switch {
	case c.Collective == collective.AllReduce:
		word := ranks * max(1, wordBytes/element)
		total, share = c.Count, roundUp(c.Count, word)/ranks
		if a.traits.Reach != 0 {
			by = cutEvenly // nothing is computed at the end
		}
	case !c.Collective.Reduces():
		total, share, element = total*element, share*element, 1 // bytes are bytes
	}
	x := by(k.cuts[:0], total, share, element, slot)
	k.cuts = x.bounds
	return x, element
}

// relayPieces is all reductions, and what is staged.
func (k *copier) relayPieces(q *queue, a *algorithm, c *engine.Call) {
	b := k.call
	r := stagedCopy{queue: q, k: k, ranks: int(b.Ranks), rank: int(b.Rank), input: b.Input, output: b.Output}
	k.recording(q.stream)
	r.cut, r.element = k.cutOf(a, c)
	r.slots = k.divide(r.cut, r.element)
	r.pushes = r.cut.pieces()
	q.args.Op, q.args.Scale = b.Op, b.Scale

	q.link(k.now, q.stream, k.side)
	q.signal(kernelargs.StepOpen, kernelargs.StepOpen|kernelargs.StepTaken, 1) // the peers have taken all of the calls before
	switch {
	case c.Collective == collective.AllReduce && a.traits.Reach == 0:
		r.pushes *= 2
		r.reduceStaged()
	case c.Collective == collective.AllReduce:
		r.reduceInPlace()
	case c.Collective == collective.ReduceScatter:
		r.reduceShares()
	case c.Collective == collective.Reduce:
		r.reduceToRoot(c.Root)
	case c.Collective == collective.Broadcast:
		r.moveFromRoot(c.Root)
	default:
		r.moveStaged(c.Collective == collective.AllToAll)
	}
	r.link(k.now, k.telling, r.stream)
	if a.traits.Reach == 0 {
		r.link(k.now, k.side, r.stream)
		return
	}
	r.signal(kernelargs.StepDone, kernelargs.StepDone, 0)
}

// reduceShares is reduce-scatter: each rank sums its own share.
func (r *stagedCopy) reduceShares() {
	for p := range r.cut.pieces() {
		r.contribute(p)
		first, _ := r.cut.of(r.rank, p)
		own, _ := r.cut.of(r.rank, 0)
		r.sum(p, r.output+uintptr((first-own)*r.element))
	}
}

// reduceToRoot has every rank but the root push all that there is.
func (r *stagedCopy) reduceToRoot(root int) {
	for p := range r.cut.pieces() {
		first, count := r.cut.of(0, p)
		r.push(func(to int) (uintptr, uint64) {
			if to != root {
				return 0, 0
			}
			return r.at(r.input, first), count
		})
		at := r.arrived()
		if r.rank == root {
			r.sumRange(first, count, r.at(r.output, first), at)
		}
		r.release()
	}
}

// moveFromRoot is broadcast.
func (r *stagedCopy) moveFromRoot(root int) {
	if r.rank == root {
		r.moveOn(r.output, r.input, r.cut.share, moveBlocks)
	}
	for p := range r.cut.pieces() {
		first, count := r.cut.of(0, p)
		r.push(func(int) (uintptr, uint64) {
			if r.rank != root {
				return 0, 0
			}
			return r.at(r.input, first), count
		})
		at := r.arrived()
		if r.rank != root {
			r.moveOn(r.at(r.output, first), at+r.place(r.taken, root), count, sumBlocks)
		}
		r.release()
	}
}

// reduceInPlace is an all-reduce that pushes sums into the outputs of the peers while the
// next piece arrives.
func (r *stagedCopy) reduceInPlace() {
	results := func(p int) {
		r.await(r.k.summed[p&1], r.stream)
		first, count := r.cut.of(r.rank, p)
		for i := 1; i < r.ranks; i++ {
			to := (r.rank + i) % r.ranks
			r.copy(r.k.call.Outputs[to]+uintptr(r.k.call.OutputOffset+first*r.element), r.at(r.output, first), count*r.element)
		}
	}
	for p := range r.cut.pieces() {
		first, _ := r.cut.of(r.rank, p)
		r.contribute(p)
		r.sum(p, r.at(r.output, first))
		if p > 0 {
			results(p - 1)
		}
		r.record(r.k.summed[p&1], r.k.side)
	}
	results(r.cut.pieces() - 1)
}

// reduceStaged is an all-reduce whose sums pass through the scratch as well, in pairs: two
// pieces are pushed, and then the sums of both. So a rank that is about to push into a slot
// finds that what was in it was taken while something else traveled.
func (r *stagedCopy) reduceStaged() {
	for pair := 0; pair < r.cut.pieces(); pair += 2 {
		for p := pair; p < pair+2; p++ {
			first, _ := r.cut.of(r.rank, p)
			r.contribute(p)
			r.sum(p, r.at(r.output, first))
			r.record(r.k.summed[p&1], r.k.side)
		}
		for p := pair; p < pair+2; p++ {
			r.await(r.k.summed[p&1], r.stream)
			first, count := r.cut.of(r.rank, p)
			r.push(func(int) (uintptr, uint64) { return r.at(r.output, first), count })
			r.move(p)
		}
	}
}

// moveStaged is all-gather and all-to-all. The rank's own share is moved meanwhile.
func (r *stagedCopy) moveStaged(each bool) {
	share := r.cut.share
	from := func(to int) uintptr {
		if each {
			return r.input + uintptr(uint64(to)*share)
		}
		return r.input
	}
	r.moveOn(r.output+uintptr(uint64(r.rank)*share), from(r.rank), share, moveBlocks)
	for p := range r.cut.pieces() {
		first, count := r.cut.bounds[p], r.cut.bounds[p+1]-r.cut.bounds[p]
		r.push(func(to int) (uintptr, uint64) { return from(to) + uintptr(first), count })
		r.move(p)
	}
}

func (r *stagedCopy) at(base uintptr, element uint64) uintptr {
	return base + uintptr(element*r.element)
}

// half is where in a rank's scratch the slots for the n-th piece of the call begin.
func (r *stagedCopy) half(n int) uintptr { return uintptr(uint64(n&1) * r.k.places() * r.slots[0]) }

// place is how far behind that the slot of a peer is. One of two ranks has one peer.
func (r *stagedCopy) place(n, peer int) uintptr {
	if r.ranks == 2 {
		return 0
	}
	return uintptr(uint64(peer) * r.slots[n&1])
}

// contribute pushes piece p of each peer's share.
func (r *stagedCopy) contribute(p int) {
	r.push(func(to int) (uintptr, uint64) {
		first, count := r.cut.of(to, p)
		return r.at(r.input, first), count
	})
}

// push copies elements to every peer and tells them. A rank that signals also waits until its peers
// have taken them, so that the push after the next one may use the slot; the wait for the last but
// one must not delay the signal for the last.
func (r *stagedCopy) push(of func(to int) (from uintptr, count uint64)) {
	k, n := r.k, r.pushed
	if n >= slotsOfAPeer {
		r.await(k.freed[n&1], r.stream)
	}
	slot := r.half(n) + r.place(n, r.rank)
	for i := 1; i < r.ranks; i++ {
		to := (r.rank + i) % r.ranks
		from, count := of(to)
		r.copy(k.peers.Peer(to)+slot, from, count*r.element)
	}
	r.link(k.now, r.stream, k.telling)
	switch r.pushes - n {
	case 1:
		r.signalOn(k.telling, kernelargs.StepPushed, 0, 0)
	case 2:
		r.signalOn(k.telling, kernelargs.StepPushed, kernelargs.StepTaken, 2)
	default:
		r.signalOn(k.telling, kernelargs.StepPushed, kernelargs.StepTaken, 1)
		r.record(k.freed[n&1], k.telling)
	}
	r.pushed++
}

// arrived waits on the second stream until all peers have pushed the next piece, and returns
// where it lies.
func (r *stagedCopy) arrived() uintptr {
	r.signalOn(r.k.side, 0, kernelargs.StepPushed, 0)
	return r.k.peers.Peer(r.rank) + r.half(r.taken)
}

// release gives the slots back.
func (r *stagedCopy) release() {
	r.signalOn(r.k.side, kernelargs.StepTaken, 0, 0)
	r.taken++
}

// sum adds what has arrived to piece p of the rank's own share.
func (r *stagedCopy) sum(p int, to uintptr) {
	first, count := r.cut.of(r.rank, p)
	r.sumRange(first, count, to, r.arrived())
	r.release()
}

func (r *stagedCopy) sumRange(first, count uint64, to, at uintptr) {
	if count == 0 {
		return
	}
	s := r.args
	s.Input, s.Output, s.Inputs, s.Stride, s.Count = r.at(r.input, first), to, at, uint64(r.place(r.taken, 1)), count
	r.launch(r.k.side, r.k.sum.For(kernel.DataType(r.k.call.Type)), min(sumBlocks, r.k.blocks), choose.BlockThreads)
}

// move takes piece p of the peers' shares to where it belongs.
func (r *stagedCopy) move(p int) {
	at := r.arrived()
	for i := 1; i < r.ranks; i++ {
		peer := (r.rank + r.ranks - i) % r.ranks
		first, count := r.cut.of(peer, p)
		r.moveOn(r.at(r.output, first), at+r.place(r.taken, peer), count*r.element, sumBlocks)
	}
	r.release()
}

func (r *stagedCopy) moveOn(to, from uintptr, bytes uint64, blocks uint32) {
	if bytes == 0 || to == from {
		return
	}
	s := r.args
	s.Input, s.Output, s.Count = from, to, bytes
	r.launch(r.k.side, r.k.moves, min(blocks, r.k.blocks), choose.MostThreads(r.k.move.MaxThreads))
}
