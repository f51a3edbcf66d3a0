package verbs

import (
	"slices"
	"strings"
	"testing"
	"time"
	"unsafe"

	"github.com/mscclpp-go/mscclpp/framework"
	"github.com/mscclpp-go/mscclpp/framework/kernel"
)

// words are those of a trigger for n bytes from memory 0 to memory 1, and semaphore 0.
func words(kind, n uint64) (fst, snd uint64) {
	return wordsOf(kernel.TriggerFields{Kind: kind, Bytes: n, Dst: 1})
}

func wordsOf(f kernel.TriggerFields) (fst, snd uint64) {
	t := f.Pack()
	return t.Fst, t.Snd
}

// atOnce has the proxy of a rig perform a trigger without the ring, once its thread lets it.
func (r *rig) atOnce(kind, n uint64) (done bool) {
	r.t.Helper()
	return r.taken(words(kind, n))
}

func (r *rig) taken(fst, snd uint64) (done bool) {
	r.t.Helper()
	for limit := time.Now().Add(4 * time.Minute); time.Now().Before(limit); {
		if taken, done := r.proxy.(framework.Helper).Perform(fst, snd); taken {
			return done
		}
	}
	r.t.Fatalf("trigger %#x %#x was not taken within 20 s: %v", fst, snd, r.ring.Err())
	return false
}

// Posts at once are the same as those through the ring, in fewer calls: a flush is complete
// when the call returns, and takes no request where the signal before it has the answer.
func TestAtOnce(t *testing.T) {
	lines := recorded(t)
	r := newRig(t, fake(t), Atomic)
	if taken, done := r.proxy.(framework.Helper).Perform(words(kernel.TriggerSignal, 0)); taken || done {
		t.Error("a proxy that was not started has performed a trigger")
	}
	r.start()
	for _, x := range []struct {
		kind, bytes uint64
		done        bool
	}{
		{kernel.TriggerData | kernel.TriggerSignal, 8, false},
		{kernel.TriggerSignal | kernel.TriggerFlush, 0, true},
		{kernel.TriggerData, 4096, false},
		{kernel.TriggerFlush, 0, true},
		{kernel.TriggerFlush, 0, true}, // of nothing
		{kernel.TriggerData | kernel.TriggerSignal | kernel.TriggerFlush, 16, true},
		{kernel.TriggerData | kernel.TriggerFlush, 16, true},
	} {
		if done := r.atOnce(x.kind, x.bytes); done != x.done {
			t.Errorf("kind %d of %d bytes: done %v, expected %v", x.kind, x.bytes, done, x.done)
		}
	}
	want := []string{
		"post write bytes=8 inline value=0",
		"  + add bytes=8 signaled value=1",
		"post add bytes=8 signaled value=1",
		"post write bytes=4096 signaled value=0",
		"post read bytes=8 signaled value=0",
		"post write bytes=16 inline value=0",
		"  + add bytes=8 signaled value=1",
		"post write bytes=16 signaled inline value=0",
		"post read bytes=8 signaled value=0",
	}
	if got := requests(lines()); !slices.Equal(got, want) {
		t.Errorf("posted\n%s\nexpected\n%s", strings.Join(got, "\n"), strings.Join(want, "\n"))
	}
	if r.count() != 3 || r.ring.Tail() != 0 {
		t.Errorf("%d signals, and %d triggers of the ring: expected 3 and none", r.count(), r.ring.Tail())
	}
}

// A signal is put together once: those of two semaphores in turn still raise each its own, also
// behind a put with a signal, which uses the same places.
func TestAtOnceOfTwoSemaphores(t *testing.T) {
	r := newRig(t, fake(t), Atomic)
	if err := r.proxy.BindSemaphore(t.Context(), 1, framework.SemaphoreBinding{Conn: r.conn, Key: r.key, Offset: 16}); err != nil {
		t.Fatal(err)
	}
	r.start()
	r.atOnce(kernel.TriggerSignal|kernel.TriggerFlush, 0)
	for n := range uint64(7) {
		if n > 3 {
			r.atOnce(kernel.TriggerData|kernel.TriggerSignal, 8)
		}
		if !r.taken(wordsOf(kernel.TriggerFields{Kind: kernel.TriggerSignal | kernel.TriggerFlush, Dst: 1, Slot: 1})) {
			t.Fatalf("signal %d of the second semaphore is not complete", n)
		}
		second := *(*uint64)(unsafe.Add(r.counters.Addr(), 16))
		if first := 1 + max(n, 3) - 3; r.count() != first || second != n+1 {
			t.Fatalf("%d and %d signals: expected %d and %d", r.count(), second, first, n+1)
		}
	}
}

// A trigger that would have to wait, or makes no sense, is not taken, and has done nothing.
func TestNotAtOnce(t *testing.T) {
	lines := recorded(t)
	r := newRig(t, fake(t), Atomic, func(c *Config) { c.QueueDepth = 64 })
	r.start()
	r.atOnce(kernel.TriggerFlush, 0) // the thread rests
	f := r.proxy.(*proxy).flows[0]
	posted := len(requests(lines()))
	refused := func(what string, f kernel.TriggerFields) {
		t.Helper()
		fst, snd := wordsOf(f)
		limit := time.Now().Add(2 * time.Millisecond)
		for time.Now().Before(limit) {
			if taken, done := r.proxy.(framework.Helper).Perform(fst, snd); taken || done {
				t.Fatalf("%s was taken", what)
			}
		}
	}
	const both = uint64(kernel.TriggerData | kernel.TriggerSignal)
	unbound := kernel.TriggerFields{Kind: kernel.TriggerSignal, Slot: 5}
	refused("a trigger for nothing", kernel.TriggerFields{Dst: 1})
	refused("a semaphore that is not bound", unbound)
	refused("a source that is not bound", kernel.TriggerFields{Kind: kernel.TriggerData, Bytes: 8, Src: 7, Dst: 1})
	refused("a put beyond its memory", kernel.TriggerFields{Kind: both, Bytes: rigBytes + 1, Dst: 1})
	refused("a put of many requests", kernel.TriggerFields{Kind: both, Bytes: rigBytes, Dst: 1}) // 64 KiB a message
	f.mu.Lock()
	marked := f.marked
	f.posted += f.depth - 2
	f.marked = f.posted // or the thread would ask for the end of them
	f.mu.Unlock()
	refused("a put and a signal for which the queue has no room", kernel.TriggerFields{Kind: both, Bytes: 8, Dst: 1})
	f.mu.Lock()
	f.posted, f.marked = f.posted-(f.depth-2), marked
	f.mu.Unlock()
	if n := len(requests(lines())); n != posted || r.count() != 0 {
		t.Errorf("%d requests were posted, and %d signals counted, for what was refused", n-posted, r.count())
	}
	if r.atOnce(both, 8); r.count() != 1 {
		t.Errorf("%d signals once there is room: expected 1", r.count())
	}
	// Through the ring the nonsense is an error.
	if _, err := r.ring.Push(unbound.Pack()); err != nil {
		t.Fatal(err)
	}
	wantError(t, r.proxy.Wait(t.Context()), framework.ErrInvalid, "semaphore 5 is not bound")
}

// Signals by immediates are posted at once as well; their flush has to ask the peer, and
// goes through the ring.
func TestAtOnceByImmediates(t *testing.T) {
	r := newRig(t, fake(t), Immediate)
	r.start()
	for range 100 {
		r.atOnce(kernel.TriggerData|kernel.TriggerSignal, 8)
	}
	for range 1000 {
		if taken, _ := r.proxy.(framework.Helper).Perform(words(kernel.TriggerFlush, 0)); taken {
			t.Fatal("a flush that the peer has not answered was taken")
		}
	}
	if err := r.flushed(r.push(kernel.TriggerFlush, 0)); err != nil || r.count() != 100 {
		t.Errorf("%d signals behind a flush, %v: expected 100", r.count(), err)
	}
}

// A request that fails at once ends the proxy as one of the ring does.
func TestFailedAtOnce(t *testing.T) {
	r := newRig(t, fake(t), Atomic)
	r.start()
	r.atOnce(kernel.TriggerSignal|kernel.TriggerFlush, 0)
	f := r.proxy.(*proxy).flows[0]
	f.mu.Lock()
	f.theirs.rkey, f.dirty = 0, true // the read of a flush goes nowhere
	f.last = target{addr: 8, bytes: 8}
	f.mu.Unlock()
	if done := r.atOnce(kernel.TriggerFlush, 0); done {
		t.Error("a flush whose request has failed is complete")
	}
	wantError(t, r.proxy.Wait(t.Context()), framework.ErrPeer, "ib-host proxy rank 1", "remote access error")
	if taken, done := r.proxy.(framework.Helper).Perform(words(kernel.TriggerSignal, 0)); taken || done {
		t.Error("a trigger was performed after the end")
	}
}

// Nothing is allocated at once either.
func TestNoAllocationsAtOnce(t *testing.T) {
	for name, mode := range modes {
		kind := uint64(kernel.TriggerData | kernel.TriggerSignal)
		if mode == Atomic {
			kind |= kernel.TriggerFlush
		}
		r := newRig(t, fake(t), mode)
		r.start()
		r.atOnce(kind, 8)
		if n := testing.AllocsPerRun(200, func() { r.atOnce(kind, 8) }); n >= 1 {
			t.Errorf("%s: %v allocations for each message", name, n)
		}
	}
}
