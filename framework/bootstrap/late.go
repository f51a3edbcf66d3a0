package bootstrap

import (
	"context"
	"time"
)

// lateTimeout is how long rank 0 of a job that has failed waits for the ranks that
// have not heard of it. With the moment that precedes a verdict it stays below the
// two seconds within which every rank knows of a death. A program that fails to
// join usually exits, so nothing but Join itself could do the waiting.
const lateTimeout = time.Second

// explain keeps the rendezvous open after the job has failed, so that ranks which come
// late get the true reason and not a refused connection, until all have it.
func (h *rendezvous) explain() {
	timer := time.NewTimer(h.t.cfg.late)
	defer timer.Stop()
	for h.uninformed() > 0 {
		select {
		case v := <-h.visits:
			if v.conn != nil {
				informed := h.informed(v.rank)
				h.notified[v.rank] = true
				h.t.work.Go(func() { h.turnAway(v, informed) })
			} else if v.notified && v.rank > 0 && v.rank < h.t.party.Size {
				h.notified[v.rank] = true
			}
		case <-timer.C:
			return
		case <-h.t.life.Done():
			return
		}
	}
}

// informed reports whether a rank knows how the job ended.
func (h *rendezvous) informed(rank int) bool { return h.arrivals[rank] != nil || h.notified[rank] }

// uninformed counts the ranks that do not know how the job ended: those that are
// in the rendezvous got the notice when it ended.
func (h *rendezvous) uninformed() int {
	n := 0
	for r := 1; r < h.t.party.Size; r++ {
		if !h.informed(r) {
			n++
		}
	}
	return n
}

// explained waits, at rank 0, until the rendezvous is closed. It is bounded by Config.late, and by
// the caller's ctx: a caller that does not want to wait any longer is not kept.
func (h *rendezvous) explained(ctx context.Context) {
	if h == nil {
		return
	}
	select {
	case <-h.closed:
	case <-ctx.Done():
	}
}
