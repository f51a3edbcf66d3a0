package model

import (
	"math"

	"github.com/mscclpp-go/mscclpp/framework/collective"
)

// Call is what is predicted.
type Call struct {
	Collective  collective.Kind
	Ranks       int
	Bytes       uint64 // of the larger buffer
	CopyScratch uint64 // bytes that sums by copy engines pass through; 0: as much as they like
}

// estimate is what an algorithm does in a call.
type estimate struct {
	work  float64 // µs besides those below
	steps float64 // in which a word has to reach all peers
	bytes float64 // through the link of the GPU that has most
	rate  float64 // GB/s
	local float64 // bytes through that GPU's own memory
	after float64 // bytes of its own memory that wait for the last ones from the link

	beside float64 // µs that pass while the link is busy, however little it carries
}

const gigabytes = 1000 // bytes per µs

// Time predicts a call of an algorithm with a cost, in µs, back to back with others like it in a graph. false: the
// algorithm has none for the call, or the links do not allow it.
func (l Links) Time(by *Cost, c Call) (us float64, known bool) {
	if c.Ranks < 2 || by == nil {
		return 0, false
	}
	x := sizes(c)
	if by.lines && !l.Lines || by.serves != nil && !by.serves(x) {
		return 0, false
	}
	w := by.of(l, x)
	moved := max(w.bytes/w.rate/gigabytes, w.local/l.Memory/gigabytes, w.beside)
	us = launch + w.work + w.steps*l.Latency + moved + w.after/l.Memory/gigabytes
	return us, !math.IsNaN(us) && !math.IsInf(us, 0)
}

// call has the sizes that formulas are made of.
type call struct {
	Call
	peers float64
	all   float64 // bytes of the larger buffer
	share float64 // of it for each rank
}

func sizes(c Call) call {
	return call{Call: c, peers: float64(c.Ranks - 1), all: float64(c.Bytes), share: float64(c.Bytes) / float64(c.Ranks)}
}

// rooted reports whether one rank has, or gets, everything.
func (c call) rooted() bool {
	return c.Collective == collective.Broadcast || c.Collective == collective.Reduce
}

func (c call) sums() bool {
	return c.Collective == collective.AllReduce || c.Collective == collective.ReduceScatter || c.Collective == collective.Reduce
}

// once is what leaves, or reaches, the busiest GPU when every rank sends what the peers need in one step.
func (c call) once() float64 {
	if c.rooted() || c.Collective == collective.AllReduce {
		return c.all * c.peers
	}
	return c.share * c.peers
}

// twice is the same in two steps: shares, and what became of them. A root that sends shares, or
// gets sums of them, has the message on its link once, and so have the others.
func (c call) twice() float64 {
	switch {
	case c.Collective == collective.AllReduce:
		return 2 * c.share * c.peers
	case c.rooted():
		return c.all
	}
	return c.share * c.peers
}
