package ring

import (
	"sync"
	"testing"

	"github.com/mscclpp-go/mscclpp/framework/kernel"
)

// A ring that has more slots than it ever gets triggers is never full, however far others
// push and drain while one looks.
func TestOfferWhileOthersDrain(t *testing.T) {
	const producers, slots, laps = 4, 1 << 16, 300
	for range laps {
		r, err := New(slots)
		if err != nil {
			t.Fatal(err)
		}
		var drain sync.Mutex
		var all sync.WaitGroup
		for range producers {
			all.Go(func() {
				for range slots / producers {
					if pos, ok, err := r.Offer(kernel.Trigger{}); !ok || err != nil {
						t.Errorf("position %d: no room (%v) after %d triggers were performed", pos, err, r.Tail())
						return
					}
					if drain.TryLock() {
						for _, _, ok := r.Poll(); ok; _, _, ok = r.Poll() {
							r.Pop()
						}
						drain.Unlock()
					}
				}
			})
		}
		all.Wait()
		if err := r.Close(); err != nil || t.Failed() {
			t.Fatal(err)
		}
	}
}

// A producer that finds no room gets a condition to wait for: the next trigger that is
// performed fulfills it, also if that was meanwhile.
func TestOfferWithoutRoom(t *testing.T) {
	const slots = 4
	p, c := pair(t, slots)
	for lap := range uint64(3) {
		for range slots {
			if _, ok, err := p.Offer(kernel.Trigger{}); !ok || err != nil {
				t.Fatalf("lap %d: %v, %v", lap, ok, err)
			}
		}
		pos, ok, err := p.Offer(kernel.Trigger{})
		if want := slots * (lap + 1); ok || err != nil || pos != want {
			t.Fatalf("lap %d: position %d, %v, %v of a full ring, expected %d", lap, pos, ok, err, want)
		}
		for n := uint64(1); n <= slots; n++ {
			if room := p.Tail() >= pos+1-slots; room != (n > 1) {
				t.Fatalf("lap %d: room %v before trigger %d is performed", lap, room, n)
			}
			pull(t, c)
		}
	}
}
