package intra

import (
	"context"
	"fmt"
	"sync"
	"sync/atomic"
	"time"

	"github.com/mscclpp-go/mscclpp/collectives/internal/engine"
	"github.com/mscclpp-go/mscclpp/collectives/internal/kernelargs"
	"github.com/mscclpp-go/mscclpp/framework"
)

// stallTick is how often the watch looks at a call that is under way. A call that
// is still there at the second look has stalled.
const stallTick = 250 * time.Millisecond

// watch looks at calls that take long; New says where it exists. On a GPU it
// looks, as long as there is a Comm, for what calls have left in words for the host, and
// in stall mode compares what ranks have begun: the return of a call says nothing of its
// end there.
type watch struct {
	host    bool                                           // else the return of a call says nothing of its end, and none is noted
	running atomic.Uint64                                  // sequence of the call under way, 0 for none
	groups  atomic.Uint64                                  // groups of messages so far, begun and ended: odd while one is under way
	peers   [(kernelargs.MaxRanks + 63) / 64]atomic.Uint64 // of that group, a bit for each
	alone   int                                            // ticks for which all of them have been gone
	asked   int                                            // the rank that was asked last whether it has left
	begun   uint64                                         // calls on the GPU, at the last tick
	broken  int                                            // ticks for which a call has stalled of which a rank has left
	awaited awaited
	life    context.Context
	end     context.CancelFunc
	group   sync.WaitGroup
}

func startWatch(b *board) *watch {
	w := &watch{host: b.host, awaited: awaited{rank: framework.NoPeer}}
	w.life, w.end = context.WithCancel(context.Background())
	w.group.Go(func() { w.loop(b) })
	return w
}

func (w *watch) enter(s *kernelargs.Signature) {
	if w != nil && w.host {
		w.running.Store(s.Sequence)
	}
}

func (w *watch) leave() {
	if w != nil && w.host {
		w.running.Store(0)
	}
}

// enterGroup notes with whom a group of messages is exchanged.
func (w *watch) enterGroup(list []kernelargs.Transfer) {
	if w == nil || !w.host {
		return
	}
	for i := range w.peers {
		w.peers[i].Store(0)
	}
	for i := range list {
		p := &w.peers[list[i].Peer/64]
		p.Store(p.Load() | 1<<(list[i].Peer%64))
	}
	w.groups.Add(1)
}

func (w *watch) leaveGroup() {
	if w != nil && w.host {
		w.groups.Add(1)
	}
}

func (w *watch) loop(b *board) {
	tick := time.NewTicker(stallTick)
	defer tick.Stop()
	last, lastGroup := uint64(0), uint64(0)
	for {
		select {
		case <-w.life.Done():
			return
		case <-tick.C:
		}
		if !b.host {
			if err := b.misused(); err != nil {
				b.comm.Abort(err)
			}
			_ = b.comm.Overdue() // ranks of a host among several have no other rank that asks
			err := w.onDevice(b)
			if err == nil {
				err = w.departed(b)
			}
			if err != nil {
				b.comm.Abort(err)
			}
			continue
		}
		now, group := w.running.Load(), w.groups.Load()
		stalled := now != 0 && now == last || group%2 != 0 && group == lastGroup
		if err := w.abandoned(b, stalled); err != nil && w.running.Load() == now && w.groups.Load() == group {
			b.comm.Abort(err)
		}
		if now != 0 && now == last {
			// The call does not end while it is stalled, so its arguments stand still.
			if err := w.explain(b, now); err != nil && w.running.Load() == now {
				b.comm.Abort(err)
			}
		}
		if err := w.departed(b); err != nil {
			b.comm.Abort(err)
		}
		last = now
		if group%2 == 0 || group != lastGroup {
			w.alone = 0
		} else if err := w.forsaken(b); err != nil && w.groups.Load() == group {
			b.comm.Abort(err)
		}
		lastGroup = group
	}
}

// onDevice says why kernels that have begun cannot end, if it is so: a rank that they wait for has left.
func (w *watch) onDevice(b *board) error {
	if b.comm.Size() == 1 || b.comm.Err() != nil {
		return nil //nolint:nilerr // the calls of a communicator that has failed end by themselves
	}
	b.notes.mu.Lock()
	if n := b.notes; !n.alone {
		n.alone = w.gone(b, (b.comm.Rank()+1)%b.comm.Size(), time.Millisecond)
	}
	begun := b.notes.begun(b.state)
	current := begun != 0 && b.notes.refresh(b.symmetric, b.comm.Rank(), b.comm.Size())
	b.notes.mu.Unlock()
	stalled := begun == w.begun
	w.begun = begun
	if err := w.abandoned(b, stalled && w.cutOff(b)); err != nil {
		return err
	}
	if !stalled || !current || b.check == engine.SignaturesNever {
		return nil
	}
	return w.deserted(b, begun)
}

// cutOff reports whether a rank has left by an abort and kernels are on the device. Asking about these may spoil a capture,
// so it is done only then.
func (w *watch) cutOff(b *board) bool {
	if rank, _ := b.comm.Left(); rank == framework.NoPeer {
		return false
	}
	busy, known, err := b.pending()
	return busy && known && err == nil
}

// gone asks for a moment whether a rank has left.
func (w *watch) gone(b *board, rank int, moment time.Duration) bool {
	ctx, cancel := context.WithTimeout(w.life, moment)
	defer cancel()
	return b.comm.Departed(ctx, rank)
}

// abandoned says that a rank has left by an abort while a call goes on that it has begun as well: that has no data
// of this rank to wait for, or would have ended by now.
func (w *watch) abandoned(b *board, stalled bool) error {
	rank, why := b.comm.Left()
	if rank == framework.NoPeer || !stalled {
		w.broken = 0
		return nil
	}
	if w.broken++; w.broken < aloneTicks {
		return nil
	}
	return why
}

// explain says why call number sequence on the host cannot end, if it is so.
func (w *watch) explain(b *board, sequence uint64) error {
	if b.check == engine.SignaturesStall {
		if err := b.disagreement(sequence); err != nil {
			return err
		}
	}
	return w.deserted(b, sequence)
}

// deserted says that a rank has left the job without ever having begun the call. It
// asks for one of the ranks that are late each time, for that takes a moment.
func (w *watch) deserted(b *board, sequence uint64) error {
	self, ranks := b.comm.Rank(), b.comm.Size()
	for range ranks {
		w.asked = (w.asked + 1) % ranks
		r := w.asked
		if s, _ := b.latest(r, self); r == self || int32(uint32(s.Sequence)-uint32(sequence)) >= 0 {
			continue
		}
		gone := w.gone(b, r, stallTick)
		// Its last entry is looked at again: it may have begun in the meantime.
		s, _ := b.latest(r, self)
		if !gone || int32(uint32(s.Sequence)-uint32(sequence)) >= 0 {
			return nil
		}
		if !w.without(b) {
			return nil
		}
		expected := "expected all ranks to make the same calls"
		if rank, why := b.comm.Left(); rank == r {
			expected = why.Error()
		}
		return &framework.Error{Op: "call " + fmt.Sprint(sequence), Peer: r, Err: fmt.Errorf(
			"%w: it has left the job after call %d: %s", framework.ErrPeer, s.Sequence, expected)}
	}
	return nil
}

// without reports whether a rank that has left did so without having ended the job.
func (w *watch) without(b *board) bool {
	return b.comm.Cause(w.life) == nil && w.life.Err() == nil
}

// aloneTicks is how long a group may go on when all its peers have left. Their data is in scratch
// memory by then, and is copied in no time.
const aloneTicks = 8

// forsaken says that a group of messages waits for ranks that have all left the job. A message has
// no number by which one could tell whether a peer that left has sent it. But as long as one peer
// is there, that may be the one that is waited for.
func (w *watch) forsaken(b *board) error {
	first := framework.NoPeer
	for r := range b.comm.Size() {
		if r == b.comm.Rank() || w.peers[r/64].Load()>>(r%64)&1 == 0 {
			continue
		}
		if !w.gone(b, r, stallTick) {
			w.alone = 0
			return nil
		}
		if first == framework.NoPeer {
			first = r
		}
	}
	if w.alone++; first == framework.NoPeer || w.alone < aloneTicks || !w.without(b) {
		return nil
	}
	return &framework.Error{Op: "messages", Peer: first, Err: fmt.Errorf(
		"%w: it has left the job, like all ranks with which messages are exchanged: expected it to send or to receive", framework.ErrPeer)}
}

func (w *watch) stop() {
	if w == nil {
		return
	}
	w.end()
	w.group.Wait()
}
