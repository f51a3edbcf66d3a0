package stream

import (
	"bytes"
	"runtime"
	"testing"
	"time"

	"github.com/mscclpp-go/mscclpp/framework/kernel"
)

// give gives a head and data, and returns when both may be changed.
func (s *side) give(to uint64, head, data []byte) {
	s.t.Helper()
	given, sent := s.queue.Give(1, 0, to, head, data)
	for deadline := time.Now().Add(bound); !sent; {
		if time.Now().After(deadline) {
			s.t.Fatalf("%d bytes are not sent (given: %t)", len(data), given)
		}
		var never uint64
		s.queue.Await(s.link, &never, 1, 0, time.Millisecond, Waits{})
		if given {
			sent = s.link.Sent(data)
		} else {
			given, sent = s.queue.Give(1, 0, to, head, data)
		}
	}
}

func pattern(n int, salt byte) []byte {
	b := make([]byte, n)
	for i := range b {
		b[i] = byte(i*7) + byte(i>>9) + salt
	}
	return b
}

// Give takes data from any memory, which may be changed at once. The data arrives behind earlier
// puts and before its own signal, in parts and as a whole.
func TestGive(t *testing.T) {
	for _, streams := range []int{1, 3} {
		const room = 6 << 20
		a, b := two(t, streams, room+4096, 64<<10)
		signals := uint64(0)
		for n, size := range []int{0, 1, 8 << 10, 100 << 10, 1<<20 + 3, room - 64} {
			head, data := pattern(64, byte(n)), pattern(size, byte(n+1))
			want := append(bytes.Clone(head), data...)
			if _, ok, err := a.ring.Offer(trigger(kernel.TriggerSignal, 0, 0, 0)); !ok || err != nil {
				t.Fatal(ok, err)
			}
			a.queue.Later()
			a.give(4096, head, data)
			clear(head)
			clear(data)
			signals += 2
			b.wait(signals)
			if got := b.mem.Bytes()[4096 : 4096+len(want)]; !bytes.Equal(got, want) {
				t.Errorf("%d streams, %d bytes: other bytes arrived than were given", streams, size)
			}
		}
		a.give(4096, nil, pattern(40<<10, 9))
		b.wait(signals + 1)
		b.expect(4096, 4096+40<<10, 9)
	}
}

// Both give more than all buffers hold, and neither reads but while it waits.
func TestGiveInBothDirections(t *testing.T) {
	const size, rounds = 4 << 20, 12
	a, b := two(t, 2, size+4096, 1<<20)
	done := make(chan struct{}, 2)
	for i, s := range []*side{a, b} {
		go func() {
			defer func() { done <- struct{}{} }()
			for range rounds {
				s.give(4096, nil, pattern(size, byte(i)))
			}
			s.wait(rounds)
		}()
	}
	<-done
	<-done
	a.expect(4096, 4096+size, 1)
	b.expect(4096, 4096+size, 0)
}

// Data beyond the target, or for a slot that is not bound, is refused for good.
func TestGiveRefuses(t *testing.T) {
	a, _ := two(t, 1, 1<<16, 0)
	for name, given := range map[string]func() (bool, bool){
		"beyond the end": func() (bool, bool) { return a.queue.Give(1, 0, 1<<16-100, nil, make([]byte, 101)) },
		"no target":      func() (bool, bool) { return a.queue.Give(7, 0, 0, nil, make([]byte, 1)) },
		"no semaphore":   func() (bool, bool) { return a.queue.Give(1, 7, 0, nil, make([]byte, 1)) },
		"a large head":   func() (bool, bool) { return a.queue.Give(1, 0, 0, make([]byte, 1<<15), make([]byte, 1)) },
	} {
		if given, sent := given(); given || sent {
			t.Errorf("%s: it was given", name)
		}
	}
	if err := a.ring.Err(); err != nil {
		t.Error(err)
	}
}

// A handle that points elsewhere has what arrives written there, and nothing where it
// pointed before; one that points nowhere has it dropped, and signals behind it arrive.
func TestPoint(t *testing.T) {
	for _, size := range []int{1000, 300 << 10} {
		a, b := two(t, 1, 1<<20, 0)
		land, err := b.link.Expose(uintptr(b.mem.Addr()), 1<<20)
		b.check(err)
		b.link.Point(land, nil)
		a.check(a.queue.BindTarget(1, a.link, land, 1<<20))
		signals := uint64(0)
		put := func(salt byte) {
			signals++
			a.give(16, nil, pattern(size, salt))
			b.wait(signals)
		}
		first, second := make([]byte, size+32), make([]byte, size+32)
		put(1)
		b.link.Point(land, first)
		put(2)
		b.link.Point(land, second)
		put(3)
		b.link.Point(land, nil)
		put(4)
		for salt, got := range map[byte][]byte{2: first, 3: second} {
			if !bytes.Equal(got[16:16+size], pattern(size, salt)) || got[15] != 0 || got[16+size] != 0 {
				t.Errorf("%d bytes with salt %d did not land where the handle pointed", size, salt)
			}
		}
		if !bytes.Equal(b.mem.Bytes()[16:16+size], make([]byte, size)) {
			t.Errorf("%d bytes: what was to be dropped was written", size)
		}
	}
}

// The target of a handle stays, though only the engine knows it, until the
// handle points elsewhere.
func TestPointKeeps(t *testing.T) {
	_, b := two(t, 1, 1<<20, 0)
	land, err := b.link.Expose(uintptr(b.mem.Addr()), 1<<20)
	b.check(err)
	gone := func() chan int { return make(chan int, 1) }
	pointed, other := gone(), gone()
	func() {
		kept, lost := make([]byte, 64<<10), make([]byte, 64<<10)
		for of, c := range map[*byte]chan int{&kept[0]: pointed, &lost[0]: other} {
			runtime.AddCleanup(of, func(c chan int) { c <- 1 }, c)
		}
		b.link.Point(land, kept)
	}()
	collected := func(c chan int) bool {
		for limit := time.Now().Add(20 * time.Second); time.Now().Before(limit); {
			runtime.GC()
			select {
			case <-c:
				return true
			default:
				runtime.Gosched()
			}
		}
		return false
	}
	if !collected(other) {
		t.Fatal("nothing is collected here")
	}
	select {
	case <-pointed:
		t.Error("memory is gone that a handle points to")
	default:
	}
	b.link.Point(land, nil)
	if !collected(pointed) {
		t.Error("memory stays that no handle points to")
	}
}
