package model

import (
	"math"
	"math/bits"

	"github.com/mscclpp-go/mscclpp/framework/collective"
)

// packets carry data and flag in one store. Everything passes through the memory of the receiver:
// what is sent is read there once more. The root of a broadcast waits for no rank that waits for
// its data, so calls in a row overlap; and any other rank of a reduce has only to learn that the
// others have come.
func (l Links) packets(c call, steps, work, peer, payload, load, share float64) estimate {
	sent := payload * load
	work += peer * c.peers
	w := estimate{work: steps * work, steps: steps, bytes: sent, rate: l.Store * share, local: 2*sent + 2*c.all}
	switch {
	case steps > 1:
	case c.Collective == collective.Broadcast:
		w.steps, w.beside = 0, l.Latency
	case c.Collective == collective.Reduce && c.Ranks > 2:
		w.steps, w.beside = 0, 2*l.Latency+work
	}
	return w
}

// stream is packets of lines in pieces, of a launch that fills the device.
func (l Links) stream(c call) estimate {
	w := estimate{
		work: streamWork, steps: 1, bytes: c.twice() * lineLoad, rate: l.Store * streamShare,
		local: 2*c.twice()*lineLoad + 2*c.all,
	}
	if c.sums() {
		w.work += streamSum * float64(c.Ranks)
	}
	if c.Collective == collective.AllReduce || c.rooted() {
		w.steps = 2
	}
	if c.rooted() && c.Ranks > 2 {
		w.work += streamTwice
	}
	w.rate *= c.relayed()
	return w
}

// push stores into outputs of the peers, between two barriers. A broadcast sends every rank a part,
// which it passes on.
func (l Links) push(c call) estimate {
	w := estimate{work: 2 * fence, steps: 2, bytes: c.twice(), rate: l.Store * pushShare, local: 2 * c.all}
	if c.rooted() && c.Ranks > 2 {
		w.work, w.steps = w.work+relayWork, 3
		w.rate *= c.relayed()
	}
	return w
}

// pull loads from inputs of the peers, between two barriers; an all-reduce stores its sums to all of
// them, and a root loads everything.
func (l Links) pull(c call) estimate {
	w := estimate{work: 2 * fence, steps: 3, bytes: c.twice(), rate: l.Load * pullShare, local: 2 * c.all}
	if c.rooted() {
		w.bytes = c.all * c.peers
		w.rate *= pullAlone
	}
	return w
}

// pipes are stores through scratch, between two barriers. The workers of a reduce pass their sums on, and so do all ranks of an
// all-reduce, whose sums are stored, read once for all peers, and taken from scratch.
func (l Links) pipes(c call) estimate {
	w := estimate{work: pipeWork, steps: 2, bytes: c.twice(), rate: l.Store * pipeShare * c.relayed(), local: 4 * c.all}
	if c.Collective == collective.AllReduce {
		w.steps, w.local = 3, 6*c.all
	}
	if c.rooted() && c.Ranks > 2 {
		w.work += relayWork
	}
	return w
}

// fetch is loads by one of two ranks from what the other one has put into its scratch, between two barriers.
func (l Links) fetch(c call) estimate {
	return estimate{work: 2*fence + fetchWork, steps: 3, bytes: c.all, rate: l.Load * pullShare * pullAlone, local: 4 * c.all}
}

// window is a call through the window of a switch, in steps of a third of it. Behind each step there is a barrier of the grid and of all
// ranks. A link carries each byte once each way, and of an all-reduce each rank's share of the sums once more. That a rank
// copies while others still sum is not counted: all its threads do the one and then the other.
func (l Links) window(c call) estimate {
	steps := math.Ceil(max(c.all, 1) / windowStep)
	w := estimate{
		work: (steps + 1) * windowBarrier, steps: steps + 1, bytes: c.all, rate: l.Store * windowShare,
		local: 2 * c.all, after: 2 * c.all,
	}
	if c.Collective == collective.AllReduce {
		w.bytes += c.share
		w.after += 2 * c.all // in and out
	}
	return w
}

// placed is a call on memory that is a part of the window: what is moved is not copied, in one step between two barriers.
func (l Links) placed(c call) estimate {
	w := estimate{work: 2 * windowBarrier, steps: 2, bytes: c.all, rate: l.Store * windowShare, local: 2 * c.all}
	if c.Collective == collective.AllReduce {
		w.bytes += c.share
	}
	return w
}

// windowPackets is all that a rank has in packets, by one store for all peers, and sums by the ranks. A link brings what all of them sent,
// its own rank included.
func (l Links) windowPackets(c call) estimate {
	sent := c.all * float64(c.Ranks) * wordLoad
	return estimate{
		work: windowWork + wordPeer*c.peers, steps: 1, bytes: sent, rate: l.Store * packetShare, local: 2*sent + 2*c.all,
	}
}

// packetShare is the share of stores that packets reach, between all or from or to one.
func (c call) packetShare() float64 {
	if c.rooted() {
		return packetAlone
	}
	return packetShare
}

// relayed is the share of a rate that is left where ranks pass on what comes from, or goes to, a root.
func (c call) relayed() float64 {
	if c.rooted() && c.Ranks > 2 {
		return relayShare
	}
	return 1
}

// stages are memory of the sender, from which all load.
func (l Links) stages(c call) estimate {
	w := estimate{work: stageWork, steps: 3, bytes: c.twice(), rate: l.Load * stageMove, local: 4 * c.all}
	if c.rooted() {
		w.bytes = c.all * c.peers
		w.rate = l.Load * stageShare * pullAlone
	}
	if c.sums() {
		w.work += streamSum * float64(c.Ranks)
		w.rate *= stageSum / stageMove
	}
	if c.Collective == collective.AllReduce {
		w.steps = 6
	}
	return w
}

// copies go to one peer after the other. Those of a reduction go in pieces, of which each is summed
// while the next one travels; where the sums stay, the last one is summed at the end.
func (l Links) copies(c call) estimate {
	w := estimate{steps: 2, bytes: c.twice(), rate: min(l.Copy, l.Each), local: 2 * c.all}
	switch {
	case c.Collective == collective.AllReduce:
		pieces := 2.0
		if c.CopyScratch > 0 {
			pieces *= math.Ceil(max(c.all, 1) / float64(c.CopyScratch))
		}
		w.work = sumWork + copyNext*2*c.peers*pieces
		w.local += (c.peers + 2) * c.share
	case c.sums():
		pieces, last := c.taper()
		w.work = pieceWork + copyNext*c.peers*pieces
		w.after = (c.peers + 2) * last
		w.local += (c.peers + 2) * c.owned()
	default:
		w.work = copyWork + copyGap*c.peers
	}
	return w
}

// staged are copies in pieces into scratch of the peers, which move each to its place while the
// next one travels, and the last one at the end. The sums of an all-reduce travel in the same way.
func (l Links) staged(c call) estimate {
	pieces, last := c.taper()
	w := estimate{
		work: pieceWork + copyNext*c.peers*pieces, steps: 2, bytes: c.twice(), rate: min(l.Copy, l.Each), local: 4 * c.all, after: 2 * c.peers * last,
	}
	if c.Collective == collective.AllReduce {
		w.work += copyNext * c.peers * pieces
		w.local += (c.peers + 2) * c.share
	}
	return w
}

// pushed reports whether copies serve the call: those of a root go to one peer.
func (c call) pushed() bool { return !c.rooted() || c.Ranks == 2 }

// owned is what each rank pushes to a peer.
func (c call) owned() float64 {
	if c.rooted() {
		return c.all
	}
	return c.share
}

// taper is in how many pieces that goes, of which each is three quarters of what is left, and how
// many bytes the last one has.
func (c call) taper() (pieces, last float64) {
	slot := c.owned()
	if c.CopyScratch > 0 {
		slot = float64(Slot(c.CopyScratch, c.Ranks, c.rooted(), uint64(c.all)))
	}
	left := c.owned()
	for n := 0; n%2 == 0 || left > slot/3; n++ {
		left -= min(slot, 0.75*left)
		pieces++
	}
	return pieces + 1, left
}

// rootedScratch is the number of bytes of scratch that a broadcast or reduce passes through, in pieces of the size that it prefers.
const rootedScratch = 256 << 20

// Slot is the most bytes of a piece, of which a rank has room for two from each peer. A root's message is one share, so its first two
// pieces would fill as much memory as it has bytes. A longer one passes through half of the least power of
// two that holds it: in two more pieces, if it is one itself.
func Slot(scratch uint64, ranks int, rooted bool, bytes uint64) uint64 {
	slot := scratch / uint64(2*ranks)
	if rooted && bytes > rootedScratch {
		slot = min(slot, uint64(1)<<bits.Len64(bytes-1)/4)
	}
	return slot
}
