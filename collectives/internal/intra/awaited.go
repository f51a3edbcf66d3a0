package intra

import (
	"cmp"
	"fmt"
	"sync/atomic"

	"github.com/mscclpp-go/mscclpp/framework"
)

// awaited is a rank that has left the job in good order, and that a kernel waits for. Nothing more comes from it:
// all that it has given to calls, messages among them, has arrived, or arrives within a moment.
type awaited struct {
	rank  int // framework.NoPeer: none
	ticks int // since it was first seen
}

// departed says that a kernel waits for such a rank. Messages have no number by which one could tell whether a rank has sent
// them before it left; but a wait that goes on does not have its message. Each long wait reports whom it waits for.
// A report from before the rank left may be seen at the first tick, but not after the last one.
func (w *watch) departed(b *board) error {
	a := &w.awaited
	words := b.comm.ControlWords()
	rank := int(cmp.Or(atomic.SwapUint32(&words.Waiting, 0), atomic.SwapUint32(&words.Waited, 0))) - 1
	if a.rank != framework.NoPeer {
		a.ticks++
	}
	if rank < 0 || rank >= b.comm.Size() || rank == b.comm.Rank() || !w.gone(b, rank, stallTick/50) {
		return nil
	}
	if rank != a.rank {
		*a = awaited{rank: rank}
		return nil
	}
	if a.ticks < aloneTicks {
		return nil
	}
	return &framework.Error{Op: "wait", Peer: rank, Err: fmt.Errorf(
		"%w: it has left the job, and a kernel waits for it: expected it to send, to receive, or to make the same calls", framework.ErrPeer)}
}
