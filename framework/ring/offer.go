package ring

import (
	"fmt"
	"sync/atomic"

	"github.com/mscclpp-go/mscclpp/framework"
	"github.com/mscclpp-go/mscclpp/framework/kernel"
)

// Offer is like Push, for a producer that drains the ring itself: it does not wait for
// room, and wakes nobody. Ok is false while the ring is full, and pos is the position that
// has no room: it has when Slots triggers less than up to there were performed.
func (r *Ring) Offer(t kernel.Trigger) (pos uint64, ok bool, err error) {
	if t.Snd&commitBit != 0 {
		return 0, false, fmt.Errorf("ring push: %w: bit 63 of the trigger %#x %#x belongs to the ring", framework.ErrInvalid, t.Fst, t.Snd)
	}
	for {
		if atomic.LoadUint32(&r.header.Error) != 0 {
			return 0, false, fmt.Errorf("ring push: %w", r.Err())
		}
		// In this order: others push and drain meanwhile, and a tail that is read later may be
		// beyond the head.
		tail := atomic.LoadUint64(&r.header.Tail)
		pos = atomic.LoadUint64(&r.header.Head)
		if pos-tail >= r.slots {
			return pos, false, nil
		}
		if atomic.CompareAndSwapUint64(&r.header.Head, pos, pos+1) {
			break
		}
	}
	s := r.slot(pos)
	s.Fst = t.Fst
	atomic.StoreUint64(&s.Snd, t.Snd|r.commit(pos))
	return pos, true, nil
}

// FlushedAt returns flush word i: it is larger than the position of each flush that has
// been completed.
func (r *Ring) FlushedAt(i uint32) *uint64 { return (*uint64)(at(r.FlushWord(i))) }

// TakenAt returns the word that counts the triggers that were performed.
func (r *Ring) TakenAt() *uint64 { return &r.header.Tail }
