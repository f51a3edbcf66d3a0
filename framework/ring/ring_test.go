package ring

import (
	"context"
	"errors"
	"os"
	"strings"
	"sync/atomic"
	"testing"
	"time"
	"unsafe"

	"golang.org/x/sys/unix"

	"github.com/mscclpp-go/mscclpp/framework"
	"github.com/mscclpp-go/mscclpp/framework/kernel"
	"github.com/mscclpp-go/mscclpp/framework/memfd"
)

func pair(t testing.TB, slots int) (producer, consumer *Ring) {
	t.Helper()
	p, err := New(slots)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { p.Close() })
	s, err := p.Share()
	if err != nil {
		t.Fatal(err)
	}
	defer s.Close()
	c, err := Open(s)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { c.Close() })
	return p, c
}

func deadline(t testing.TB, d time.Duration) context.Context {
	ctx, cancel := context.WithTimeout(context.Background(), d)
	t.Cleanup(cancel)
	return ctx
}

// pull waits for the next trigger, for four minutes at most.
func pull(t testing.TB, r *Ring) (kernel.Trigger, uint64) {
	t.Helper()
	for end := time.Now().Add(4 * time.Minute); time.Now().Before(end); {
		if tr, pos, ok := r.Poll(); ok {
			r.Pop()
			return tr, pos
		}
		r.Park(time.Millisecond)
	}
	t.Fatal("no trigger within 4 minutes")
	return kernel.Trigger{}, 0
}

func TestOrderOverManyLaps(t *testing.T) {
	p, c := pair(t, 8)
	const n = 10000
	go func() {
		for i := range uint64(n) {
			if pos, err := p.Push(kernel.Trigger{Fst: i, Snd: i * 3}); err != nil || pos != i {
				t.Errorf("push %d: position %d, %v", i, pos, err)
				return
			}
		}
	}()
	for i := range uint64(n) {
		if tr, pos := pull(t, c); tr != (kernel.Trigger{Fst: i, Snd: i * 3}) || pos != i {
			t.Fatalf("trigger %d: %+v at %d", i, tr, pos)
		}
	}
	if _, _, ok := c.Poll(); ok || p.Depth() != 0 {
		t.Error("more than was pushed")
	}
}

func TestConcurrentProducers(t *testing.T) {
	p, c := pair(t, 16)
	const producers, each = 4, 2000
	for id := range uint64(producers) {
		go func() {
			for i := range uint64(each) {
				if _, err := p.Push(kernel.Trigger{Fst: id, Snd: i}); err != nil {
					t.Error(err)
					return
				}
			}
		}()
	}
	var next [producers]uint64
	for range producers * each {
		tr, _ := pull(t, c)
		if tr.Snd != next[tr.Fst] {
			t.Fatalf("producer %d: trigger %d: expected %d", tr.Fst, tr.Snd, next[tr.Fst])
		}
		next[tr.Fst]++
	}
}

func TestAllZeroTriggerArrives(t *testing.T) {
	p, c := pair(t, 2)
	for lap := range uint64(5) {
		if _, _, ok := c.Poll(); ok {
			t.Fatal("a trigger before the push")
		}
		if _, err := p.Push(kernel.Trigger{}); err != nil {
			t.Fatal(err)
		}
		if tr, pos, ok := c.Poll(); !ok || tr != (kernel.Trigger{}) || pos != lap {
			t.Fatalf("lap %d: %v %d %v", lap, tr, pos, ok)
		}
		c.Pop()
	}
}

func TestFullRing(t *testing.T) {
	p, c := pair(t, 4)
	for range 4 {
		if _, err := p.Push(kernel.Trigger{}); err != nil {
			t.Fatal(err)
		}
	}
	_, err := p.PushContext(deadline(t, 20*time.Millisecond), kernel.Trigger{Fst: 1})
	if !errors.Is(err, context.DeadlineExceeded) || !strings.Contains(err.Error(), "4 triggers wait") {
		t.Fatalf("%v: expected a deadline that names the full ring", err)
	}
	// Giving up took no position: the ring still works.
	done := make(chan error, 1)
	go func() { _, err := p.Push(kernel.Trigger{Fst: 2}); done <- err }()
	for i := range 5 {
		if tr, pos := pull(t, c); pos != uint64(i) || (i == 4) != (tr.Fst == 2) {
			t.Errorf("trigger %d: %+v at %d", i, tr, pos)
		}
	}
	if err := <-done; err != nil {
		t.Error(err)
	}
}

func TestDeadProxyEndsAllWaits(t *testing.T) {
	p, c := pair(t, 1)
	if _, err := p.Push(kernel.Trigger{}); err != nil {
		t.Fatal(err)
	}
	pushed, flushed := make(chan error, 1), make(chan error, 1)
	go func() { _, err := p.Push(kernel.Trigger{}); pushed <- err }()
	go func() { flushed <- p.WaitFlushed(context.Background(), 3, 0) }()
	c.Fail(framework.ErrPeer)
	c.Fail(framework.ErrInvalid) // the first reason stays
	for what, ch := range map[string]chan error{"push": pushed, "flush": flushed} {
		select {
		case err := <-ch:
			if !errors.Is(err, framework.ErrPeer) {
				t.Errorf("%s: %v: expected ErrPeer", what, err)
			}
		case <-time.After(4 * time.Minute):
			t.Fatalf("%s still waits", what)
		}
	}
	if _, err := p.Push(kernel.Trigger{}); !errors.Is(err, framework.ErrPeer) {
		t.Errorf("push afterwards: %v", err)
	}
}

func TestAbortEndsAPush(t *testing.T) {
	p, _ := pair(t, 1)
	control := new(kernel.WaitControl)
	h := p.Handle(uintptr(unsafe.Pointer(control)))
	if h.Mask != 0 || h.Shift != 0 || h.Triggers != h.Head-192+4096 || h.Control != uintptr(unsafe.Pointer(control)) {
		t.Errorf("%+v", h)
	}
	if _, err := p.Push(kernel.Trigger{}); err != nil {
		t.Fatal(err)
	}
	done := make(chan error, 1)
	go func() { _, err := p.Push(kernel.Trigger{}); done <- err }()
	atomic.StoreUint32(&control.Abort, 1)
	select {
	case err := <-done:
		if !errors.Is(err, framework.ErrClosed) || !strings.Contains(err.Error(), "aborted") {
			t.Errorf("%v: expected ErrClosed that tells of the abort", err)
		}
	case <-time.After(4 * time.Minute):
		t.Fatal("still waits")
	}
}

func TestFlush(t *testing.T) {
	p, c := pair(t, 4)
	const word = kernel.RingFlushWords - 1
	pos, err := p.Push(kernel.TriggerFields{Kind: kernel.TriggerFlush}.Pack())
	if err != nil {
		t.Fatal(err)
	}
	if p.Flushed(word, pos) {
		t.Error("flushed before the proxy said so")
	}
	go func() {
		_, pos := pull(t, c)
		c.Complete(word, pos)
	}()
	if err := p.WaitFlushed(deadline(t, 4*time.Minute), word, pos); err != nil {
		t.Fatal(err)
	}
	if p.Flushed(word, pos+1) || p.Flushed(0, pos) {
		t.Error("more was flushed than was asked for")
	}
	if p.FlushWord(1)-p.FlushWord(0) != 8 || p.FlushWord(0) != uintptr(p.mem.Addr())+256 {
		t.Error("flush words are not where layout.h has them")
	}
	defer func() {
		if recover() == nil {
			t.Error("there is a word behind the last one")
		}
	}()
	p.FlushWord(kernel.RingFlushWords)
}

func TestParkIsWokenByPush(t *testing.T) {
	p, c := pair(t, 4)
	for i := range uint64(200) {
		woken := make(chan time.Duration, 1)
		go func() {
			start := time.Now()
			for _, _, ok := c.Poll(); !ok; _, _, ok = c.Poll() {
				c.Park(4 * time.Minute)
			}
			woken <- time.Since(start)
		}()
		if i%2 == 0 { // half of the pushes find the consumer asleep
			for atomic.LoadUint32(&p.header.Parked) == 0 {
				unix.Syscall(unix.SYS_SCHED_YIELD, 0, 0, 0)
			}
		}
		if _, err := p.Push(kernel.Trigger{Fst: i}); err != nil {
			t.Fatal(err)
		}
		if d := <-woken; d > 2*time.Minute {
			t.Fatalf("push %d was noticed after %v", i, d)
		}
		c.Pop()
	}
	start := time.Now()
	c.Park(time.Millisecond)
	if d := time.Since(start); d > 2*time.Minute {
		t.Errorf("a park of 1 ms took %v", d)
	}
}

func TestRefusedSizes(t *testing.T) {
	for _, n := range []int{-1, 0, 3, 48, MaxSlots + 1, 2 * MaxSlots} {
		if r, err := New(n); !errors.Is(err, framework.ErrInvalid) {
			t.Errorf("%d slots: %v, %v", n, r, err)
		}
	}
	p, _ := pair(t, 2)
	if _, err := p.Push(kernel.Trigger{Snd: 1 << 63}); !errors.Is(err, framework.ErrInvalid) {
		t.Errorf("commit bit in a trigger: %v", err)
	}
}

func TestOpenRefuses(t *testing.T) {
	bad := func(change func(*kernel.RingHeader), bytes uint64) framework.Share {
		m, err := memfd.New("t-ring", bytes, memfd.Options{})
		if err != nil {
			t.Fatal(err)
		}
		t.Cleanup(func() { m.Close() })
		if bytes >= uint64(headerBytes) {
			h := (*kernel.RingHeader)(m.Addr())
			h.Magic, h.Version, h.Slots = kernel.RingMagic, kernel.RingVersion, 8
			change(h)
		}
		return framework.Share{Kind: framework.ShareMemFD, FD: m.File()}
	}
	fd, err := unix.MemfdCreate("t-unsealed", unix.MFD_CLOEXEC|unix.MFD_ALLOW_SEALING)
	if err != nil {
		t.Fatal(err)
	}
	unsealed := os.NewFile(uintptr(fd), "unsealed")
	defer unsealed.Close()
	if err := unsealed.Truncate(8192); err != nil {
		t.Fatal(err)
	}
	none := func(*kernel.RingHeader) {}
	for _, c := range []struct {
		name  string
		share framework.Share
		class error
		want  string
	}{
		{"kind", framework.Share{Kind: framework.ShareVMM}, framework.ErrUnsupported, "expected memfd"},
		{"no descriptor", framework.Share{Kind: framework.ShareMemFD}, framework.ErrInvalid, "descriptor"},
		{"unsealed", framework.Share{Kind: framework.ShareMemFD, FD: unsealed}, framework.ErrInvalid, "not sealed"},
		{"magic", bad(func(h *kernel.RingHeader) { h.Magic++ }, 8192), framework.ErrInvalid, "no ring"},
		{"version", bad(func(h *kernel.RingHeader) { h.Version = 9 }, 8192), framework.ErrInvalid, "version 9: expected 1"},
		{"no slots", bad(func(h *kernel.RingHeader) { h.Slots = 0 }, 8192), framework.ErrInvalid, "0 slots"},
		{"odd slots", bad(func(h *kernel.RingHeader) { h.Slots = 24 }, 8192), framework.ErrInvalid, "24 slots"},
		{"more slots than memory", bad(func(h *kernel.RingHeader) { h.Slots = 512 }, 8192), framework.ErrInvalid, "exceed the memfd"},
		{"huge", bad(func(h *kernel.RingHeader) { h.Slots = 1 << 31 }, 8192), framework.ErrInvalid, "slots"},
		{"only a header", bad(none, 4096), framework.ErrInvalid, "exceed the memfd"},
	} {
		r, err := Open(c.share)
		if err == nil {
			r.Close()
			t.Errorf("%s: opened", c.name)
			continue
		}
		if !errors.Is(err, c.class) || !strings.Contains(err.Error(), c.want) {
			t.Errorf("%s: %v: expected %v with %q", c.name, err, c.class, c.want)
		}
	}
	_, c := pair(t, 2)
	if _, err := c.Share(); !errors.Is(err, framework.ErrUnsupported) {
		t.Errorf("share of an opened ring: %v", err)
	}
}

// Another process may write anything into the shared words: the consumer reads within its ring and
// keeps its own count.
func TestConsumerTrustsOnlyItself(t *testing.T) {
	p, c := pair(t, 4)
	for i := range uint64(3) {
		if _, err := p.Push(kernel.Trigger{Fst: i}); err != nil {
			t.Fatal(err)
		}
	}
	h := p.header
	atomic.StoreUint32(&h.Slots, 1<<31)
	atomic.StoreUint64(&h.Tail, 1<<60)
	atomic.StoreUint64(&h.Head, 5)
	for i := range uint64(3) {
		tr, pos, ok := c.Poll()
		if !ok || tr.Fst != i || pos != i {
			t.Fatalf("trigger %d: %+v at %d, %v", i, tr, pos, ok)
		}
		c.Pop()
	}
	if _, _, ok := c.Poll(); ok {
		t.Error("a trigger from nowhere")
	}
}

func TestErrorWordKeepsClasses(t *testing.T) {
	for _, class := range framework.Classes {
		if got := Class(Code(&framework.Error{Op: "put", Peer: 3, Err: class})); !errors.Is(got, class) {
			t.Errorf("%v became %v", class, got)
		}
	}
	for code, want := range map[uint32]error{Code(nil): framework.ErrClosed, Code(errors.New("x")): framework.ErrPlugin, 99: framework.ErrPlugin} {
		if got := Class(code); !errors.Is(got, want) {
			t.Errorf("code %d: %v: expected %v", code, got, want)
		}
	}
}

func TestTriggersDoNotAllocate(t *testing.T) {
	p, c := pair(t, 8)
	n := testing.AllocsPerRun(1000, func() {
		pos, err := p.Push(kernel.Trigger{Fst: 1, Snd: 2})
		if err != nil {
			t.Fatal(err)
		}
		_, _, _ = c.Poll()
		c.Pop()
		c.Complete(0, pos)
		if !p.Flushed(0, pos) {
			t.Fatal("not flushed")
		}
	})
	if n != 0 {
		t.Errorf("%v allocations a trigger", n)
	}
	if n := testing.AllocsPerRun(10, func() { c.Park(time.Microsecond) }); n != 0 {
		t.Errorf("%v allocations to park", n)
	}
}
