package drain

import (
	"context"
	"encoding/binary"
	"errors"
	"os"
	"strings"
	"sync/atomic"
	"testing"
	"time"
	"unsafe"

	"github.com/mscclpp-go/mscclpp/framework"
	"github.com/mscclpp-go/mscclpp/framework/kernel"
	"github.com/mscclpp-go/mscclpp/framework/memfd"
	"github.com/mscclpp-go/mscclpp/framework/ring"
)

var idle = Options{Spin: 20 * time.Microsecond, Yield: time.Millisecond, Park: 100 * time.Millisecond, CPU: -1}

func bound(t testing.TB) context.Context {
	ctx, cancel := context.WithTimeout(context.Background(), 4*time.Minute)
	t.Cleanup(cancel)
	return ctx
}

// memory returns memory of a test, and a second mapping for the loop to own.
func memory(t testing.TB, bytes uint64) (mine, loops *memfd.Memory) {
	t.Helper()
	m, err := memfd.New("t-drain", bytes, memfd.Options{})
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { m.Close() })
	o, err := memfd.Open(m.File(), 0, bytes)
	if err != nil {
		t.Fatal(err)
	}
	return m, o
}

func word(m *memfd.Memory) *atomic.Uint64 { return (*atomic.Uint64)(unsafe.Pointer(&m.Bytes()[0])) }

// rig is a running loop: memory 0 is the source, 1 the target, semaphore 0 a word.
type rig struct {
	t             testing.TB
	loop          *Loop
	ring          *ring.Ring
	src, dst, sem *memfd.Memory
}

func newRig(t testing.TB, slots int, bytes uint64, o Options) *rig {
	t.Helper()
	g := &rig{t: t, loop: New(o)}
	var src, dst, sem *memfd.Memory
	g.src, src = memory(t, bytes)
	g.dst, dst = memory(t, bytes)
	g.sem, sem = memory(t, 8)
	g.check(g.loop.BindMemory(0, src, true))
	g.check(g.loop.BindMemory(1, dst, false))
	g.check(g.loop.BindSemaphore(0, sem))
	var err error
	g.ring, err = ring.New(slots)
	g.check(err)
	t.Cleanup(func() { g.ring.Close() })
	g.check(g.loop.Start(g.opened()))
	t.Cleanup(func() { g.loop.Stop(context.Background()) })
	return g
}

// opened is the ring as the loop's process would map it.
func (g *rig) opened() *ring.Ring {
	g.t.Helper()
	s, err := g.ring.Share()
	g.check(err)
	defer s.Close()
	r, err := ring.Open(s)
	g.check(err)
	return r
}

func (g *rig) check(err error) {
	g.t.Helper()
	if err != nil {
		g.t.Fatal(err)
	}
}

func put(kind, dst, src, bytes uint64) kernel.Trigger {
	return kernel.TriggerFields{Kind: kind, Bytes: bytes, From: src, To: dst, Dst: 1}.Pack()
}

func mapped(t *testing.T) int {
	t.Helper()
	text, err := os.ReadFile("/proc/self/maps")
	if err != nil {
		t.Fatal(err)
	}
	return strings.Count(string(text), "memfd:t-drain")
}

// The data that a signal announces is there, over many laps of a small ring.
func TestSignalsComeAfterTheirData(t *testing.T) {
	g := newRig(t, 4, 1<<16, idle)
	const n = 3000
	done := make(chan error, 1)
	go func() {
		for seen, end := uint64(0), time.Now().Add(4*time.Minute); seen < n; {
			now := word(g.sem).Load()
			if now == seen && time.Now().After(end) {
				done <- errors.New("no signal within 20 s")
				return
			}
			for ; seen < now; seen++ {
				if got := binary.LittleEndian.Uint64(g.dst.Bytes()[8*(seen%1000):]); got < seen+1 {
					done <- errors.New("a signal came before its data")
					return
				}
			}
		}
		done <- nil
	}()
	for i := uint64(1); i <= n; i++ {
		at := 8 * ((i - 1) % 1000)
		if i > 1000 { // the place is read by an earlier put, which must be over
			for word(g.sem).Load() < i-1000 {
				time.Sleep(time.Microsecond)
			}
		}
		binary.LittleEndian.PutUint64(g.src.Bytes()[at:], i)
		if _, err := g.ring.Push(put(kernel.TriggerData|kernel.TriggerSignal, at, at, 8)); err != nil {
			t.Fatal(err)
		}
	}
	g.check(<-done)
	if s := g.loop.Stats(); s.Triggers > n || s.Bytes != n*8 {
		t.Errorf("%+v: expected %d bytes", s, n*8)
	}
}

func TestLargeCopies(t *testing.T) {
	const size = 9<<20 + 13 // more than two pieces
	g := newRig(t, 4, size, idle)
	for i := range g.src.Bytes() {
		g.src.Bytes()[i] = byte(i * 7 >> 3)
	}
	pos, err := g.ring.Push(put(kernel.TriggerData|kernel.TriggerFlush, 1, 0, size-1))
	g.check(err)
	g.check(g.ring.WaitFlushed(bound(t), 0, pos))
	if string(g.dst.Bytes()[1:]) != string(g.src.Bytes()[:size-1]) || g.dst.Bytes()[0] != 0 {
		t.Error("wrong bytes")
	}
}

// Slots come and go while the loop runs at full speed; nothing faults.
func TestUnbindUnderFire(t *testing.T) {
	g := newRig(t, 64, 1<<16, idle)
	stop := make(chan struct{})
	done := make(chan struct{})
	go func() {
		defer close(done)
		for {
			select {
			case <-stop:
				return
			default:
			}
			if _, err := g.ring.Push(put(kernel.TriggerData|kernel.TriggerSignal, 0, 0, 1<<16)); err != nil {
				t.Error(err)
				return
			}
		}
	}()
	before := mapped(t)
	for slot := uint32(2); slot < 200; slot++ {
		_, m := memory(t, 4096)
		g.check(g.loop.BindMemory(slot, m, slot%2 == 0))
		_, w := memory(t, 8)
		g.check(g.loop.BindSemaphore(slot, w))
		g.loop.UnbindMemory(slot)
		g.loop.UnbindSemaphore(slot)
		g.loop.UnbindMemory(slot) // again is nothing
	}
	close(stop)
	<-done
	if n := mapped(t) - before; n != 2*198 { // those of the test itself
		t.Errorf("%d more mappings: expected %d", n, 2*198)
	}
	_, m := memory(t, 4096)
	if err := g.loop.BindMemory(2, m, true); !errors.Is(err, framework.ErrInvalid) {
		t.Errorf("a slot was given out twice: %v", err)
	}
	g.loop.UnbindMemory(Memories)
	g.loop.UnbindSemaphore(Semaphores)

	// Taking away what is in use ends the loop, in its own time.
	pos := word(g.sem).Load()
	g.loop.UnbindMemory(1)
	if _, err := g.ring.Push(put(kernel.TriggerData, 0, 0, 1)); err == nil {
		err := g.loop.Wait(bound(t))
		if !errors.Is(err, framework.ErrInvalid) || !strings.Contains(err.Error(), "target memory 1 is not bound") {
			t.Errorf("%v after %d signals", err, pos)
		}
	}
}

func TestEndFreesEverything(t *testing.T) {
	before := mapped(t)
	t.Run("stop", func(t *testing.T) {
		g := newRig(t, 4, 4096, Options{CPU: 0}) // never yields, never sleeps
		_, err := g.ring.Push(put(kernel.TriggerSignal, 0, 0, 0))
		g.check(err)
		g.check(g.loop.Stop(bound(t)))
		if word(g.sem).Load() != 1 {
			t.Error("what was pushed before Stop was not performed")
		}
		if n := mapped(t) - before; n != 3 {
			t.Errorf("%d mappings: expected the test's own 3", n)
		}
		_, m := memory(t, 8)
		if err := g.loop.BindSemaphore(7, m); !errors.Is(err, framework.ErrClosed) {
			t.Errorf("bind after the end: %v", err)
		}
		g.loop.UnbindSemaphore(0)
	})
	t.Run("error", func(t *testing.T) {
		g := newRig(t, 4, 4096, idle)
		_, err := g.ring.Push(kernel.Trigger{})
		g.check(err)
		if err := g.loop.Wait(bound(t)); !errors.Is(err, framework.ErrInvalid) || !strings.Contains(err.Error(), "trigger 0 (0x0 0x0)") {
			t.Errorf("%v", err)
		}
		g.check(g.loop.Stop(bound(t)))
	})
	if n := mapped(t); n != before {
		t.Errorf("%d mappings are left: expected %d", n, before)
	}
}

func TestStopLosesPatience(t *testing.T) {
	g := newRig(t, 8, 64<<20, idle)
	for range 8 {
		_, err := g.ring.Push(put(kernel.TriggerData, 0, 0, 64<<20))
		g.check(err)
	}
	ctx, cancel := context.WithCancel(context.Background())
	cancel()
	err := g.loop.Stop(ctx)
	if !errors.Is(err, framework.ErrClosed) || !strings.Contains(err.Error(), "before everything") {
		t.Errorf("%v: expected to be told that triggers were dropped", err)
	}
	if s := g.loop.Stats(); s.Triggers == 8 {
		t.Errorf("%+v: all were performed", s)
	}
	if err := g.ring.Err(); !errors.Is(err, framework.ErrClosed) {
		t.Errorf("the ring says %v", err)
	}
}

func TestStartRefuses(t *testing.T) {
	g := newRig(t, 4, 4096, idle)
	if err := g.loop.Start(g.opened()); !errors.Is(err, framework.ErrInvalid) {
		t.Errorf("second start: %v", err)
	}
	l := New(idle)
	g.check(l.Stop(bound(t)))
	if err := l.Start(g.opened()); !errors.Is(err, framework.ErrInvalid) {
		t.Errorf("start after stop: %v", err)
	}
	g.check(l.Wait(bound(t)))
}

func BenchmarkSignalFlush(b *testing.B) {
	g := newRig(b, 512, 4096, idle)
	b.ReportAllocs()
	for b.Loop() {
		pos, err := g.ring.Push(put(kernel.TriggerSignal|kernel.TriggerFlush, 0, 0, 0))
		if err != nil {
			b.Fatal(err)
		}
		for !g.ring.Flushed(0, pos) {
		}
	}
}
