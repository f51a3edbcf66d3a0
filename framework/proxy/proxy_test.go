package proxy

import (
	"context"
	"errors"
	"fmt"
	"runtime"
	"strings"
	"sync/atomic"
	"testing"
	"time"
	"unsafe"

	"github.com/mscclpp-go/mscclpp/framework"
	"github.com/mscclpp-go/mscclpp/framework/kernel"
	"github.com/mscclpp-go/mscclpp/framework/ring"
)

func newRing(t testing.TB, slots int) *ring.Ring {
	t.Helper()
	r, err := ring.New(slots)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { r.Close() })
	return r
}

func bound(t testing.TB) context.Context {
	ctx, cancel := context.WithTimeout(context.Background(), 20*time.Second)
	t.Cleanup(cancel)
	return ctx
}

func start(t testing.TB, r *ring.Ring, h Handler, o Options) *Service {
	t.Helper()
	s := New(r, h, o)
	if err := s.Start(); err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { s.Stop(context.Background()) })
	return s
}

func push(t testing.TB, r *ring.Ring, fst uint64) uint64 {
	t.Helper()
	pos, err := r.PushContext(bound(t), kernel.Trigger{Fst: fst})
	if err != nil {
		t.Fatal(err)
	}
	return pos
}

func TestEveryTriggerInOrder(t *testing.T) {
	r := newRing(t, 16)
	var next uint64
	s := start(t, r, func(tr kernel.Trigger, pos uint64) Result {
		if tr.Fst != next || pos != next {
			return Fail(fmt.Errorf("%w: trigger %d at %d: expected %d", framework.ErrInvalid, tr.Fst, pos, next))
		}
		next++
		r.Complete(2, pos)
		return Continue
	}, Options{})
	const n = 5000
	var last uint64
	for i := range uint64(n) {
		last = push(t, r, i)
	}
	if err := r.WaitFlushed(bound(t), 2, last); err != nil {
		t.Fatal(err)
	}
	for i := range uint64(5) { // Stop performs what was pushed before it
		push(t, r, n+i)
	}
	if err := errors.Join(s.Stop(bound(t)), s.Wait(bound(t)), s.Stop(bound(t))); err != nil {
		t.Fatal(err)
	}
	if next != n+5 {
		t.Errorf("%d triggers: expected %d", next, n+5)
	}
	if _, err := r.Push(kernel.Trigger{}); !errors.Is(err, framework.ErrClosed) {
		t.Errorf("push after Stop: %v: expected ErrClosed", err)
	}
	if err := s.Start(); !errors.Is(err, framework.ErrInvalid) {
		t.Errorf("second start: %v", err)
	}
}

// However a handler ends, the producer learns it.
func TestHandlersThatEnd(t *testing.T) {
	for name, c := range map[string]struct {
		h     Handler
		class error // of the ring's error word
		want  string
	}{
		"in order": {func(kernel.Trigger, uint64) Result { return End }, framework.ErrClosed, ""},
		"error": {func(kernel.Trigger, uint64) Result {
			return Fail(&framework.Error{Op: "put", Peer: 3, Err: framework.ErrPeer})
		},
			framework.ErrPeer, "trigger 0 (0x7 0x0): put rank 3: peer failed"},
		"unclassed": {func(kernel.Trigger, uint64) Result { return Fail(errors.New("odd")) }, framework.ErrPlugin, "odd"},
		"panic":     {func(kernel.Trigger, uint64) Result { panic("out of luck") }, framework.ErrPlugin, "handler of trigger 0 panicked: out of luck"},
		"nil map":   {func(tr kernel.Trigger, _ uint64) Result { fill(nil, tr.Fst); return Continue }, framework.ErrPlugin, "nil map"},
	} {
		t.Run(name, func(t *testing.T) {
			r := newRing(t, 4)
			s := start(t, r, c.h, Options{})
			push(t, r, 7)
			err := s.Wait(bound(t))
			if c.want == "" && err != nil || c.want != "" && (err == nil || !strings.Contains(err.Error(), c.want)) {
				t.Errorf("%v: expected %q", err, c.want)
			}
			if err := r.WaitFlushed(bound(t), 0, 0); !errors.Is(err, c.class) {
				t.Errorf("the ring says %v: expected %v", err, c.class)
			}
			if err := s.Stop(bound(t)); err != nil {
				t.Errorf("stop afterwards: %v", err)
			}
		})
	}
}

func TestStopIsBounded(t *testing.T) {
	r := newRing(t, 4)
	release, entered := make(chan struct{}), make(chan struct{})
	s := start(t, r, func(kernel.Trigger, uint64) Result { close(entered); <-release; return End }, Options{})
	push(t, r, 0)
	<-entered
	ctx, cancel := context.WithCancel(context.Background())
	cancel()
	if err := s.Stop(ctx); !errors.Is(err, context.Canceled) || !strings.Contains(err.Error(), "does not return") {
		t.Errorf("%v: expected to be told of the handler", err)
	}
	close(release)
	if err := s.Wait(bound(t)); err != nil {
		t.Error(err)
	}
}

func TestStopDropsTheRestWhenTimeIsUp(t *testing.T) {
	r := newRing(t, 8)
	hold, entered := make(chan struct{}), make(chan struct{}, 8)
	var performed atomic.Int32
	s := start(t, r, func(kernel.Trigger, uint64) Result { entered <- struct{}{}; <-hold; performed.Add(1); return Continue }, Options{})
	for i := range uint64(8) {
		push(t, r, i)
	}
	<-entered
	ctx, cancel := context.WithCancel(context.Background())
	cancel()
	stopped := make(chan error)
	go func() { stopped <- s.Stop(ctx) }()
	for s.stop.Load() != quit {
		time.Sleep(10 * time.Microsecond)
	}
	close(hold)
	<-stopped
	err := s.Wait(bound(t))
	if !errors.Is(err, framework.ErrClosed) || !strings.Contains(err.Error(), "before everything") || performed.Load() != 1 {
		t.Errorf("%v after %d triggers: expected ErrClosed after 1", err, performed.Load())
	}
}

// Producers that never pause cannot keep a proxy from stopping.
func TestStopUnderFire(t *testing.T) {
	r := newRing(t, 4)
	s := start(t, r, func(kernel.Trigger, uint64) Result { return Continue }, Options{})
	done := make(chan struct{})
	go func() {
		defer close(done)
		for {
			if _, err := r.Push(kernel.Trigger{}); err != nil {
				return
			}
		}
	}()
	if err := s.Stop(bound(t)); err != nil {
		t.Error(err)
	}
	<-done
}

func TestInitAndProgress(t *testing.T) {
	r := newRing(t, 4)
	s := start(t, r, nil, Options{Init: func() error { return fmt.Errorf("no device: %w", framework.ErrUnavailable) }})
	if err := s.Wait(bound(t)); !errors.Is(err, framework.ErrUnavailable) {
		t.Errorf("%v: expected the error of Init", err)
	}
	if _, err := r.Push(kernel.Trigger{}); !errors.Is(err, framework.ErrUnavailable) {
		t.Errorf("push: %v", err)
	}

	// A handler that starts work, completed by Progress some polls later.
	r = newRing(t, 4)
	var pending []uint64
	polls := 0
	s = start(t, r, func(_ kernel.Trigger, pos uint64) Result { pending = append(pending, pos); return Continue },
		Options{CPU: 1, Progress: func() (bool, error) {
			if polls++; polls%100 == 0 && len(pending) > 0 {
				r.Complete(0, pending[0])
				pending = pending[1:]
			}
			return len(pending) > 0, nil
		}})
	var last uint64
	for i := range uint64(10) {
		last = push(t, r, i)
	}
	if err := s.Stop(bound(t)); err != nil { // waits for what is outstanding
		t.Fatal(err)
	}
	if !r.Flushed(0, last) || len(pending) != 0 {
		t.Error("stopped with work outstanding")
	}

	r = newRing(t, 4)
	s = start(t, r, nil, Options{Progress: func() (bool, error) { return true, fmt.Errorf("link down: %w", framework.ErrPeer) }})
	if err := s.Wait(bound(t)); !errors.Is(err, framework.ErrPeer) {
		t.Errorf("%v: expected the error of Progress", err)
	}
}

func TestStopBeforeStart(t *testing.T) {
	s := New(newRing(t, 2), nil, Options{})
	ctx, cancel := context.WithCancel(context.Background())
	cancel()
	if err := s.Wait(ctx); !errors.Is(err, context.Canceled) {
		t.Errorf("wait: %v", err)
	}
	if err := errors.Join(s.Stop(ctx), s.Wait(bound(t))); err != nil {
		t.Error(err)
	}
	if err := s.Start(); !errors.Is(err, framework.ErrInvalid) {
		t.Errorf("start after stop: %v", err)
	}
}

func TestIdleProxyWakes(t *testing.T) {
	r := newRing(t, 2)
	word := r.Handle(0).Parked
	parked := *(**uint32)(unsafe.Pointer(&word))
	start(t, r, func(_ kernel.Trigger, pos uint64) Result { r.Complete(0, pos); return Continue },
		Options{Spin: time.Nanosecond, Yield: time.Nanosecond, Park: 20 * time.Second})
	for i := range uint64(100) {
		for i%10 == 0 && atomic.LoadUint32(parked) == 0 { // until it sleeps
			runtime.Gosched()
		}
		if err := r.WaitFlushed(bound(t), 0, push(t, r, i)); err != nil {
			t.Fatal(err)
		}
	}
}

func TestTriggersDoNotAllocate(t *testing.T) {
	r := newRing(t, 16)
	start(t, r, func(_ kernel.Trigger, pos uint64) Result { r.Complete(0, pos); return Continue }, Options{})
	n := testing.AllocsPerRun(500, func() {
		pos, err := r.Push(kernel.Trigger{Fst: 1})
		if err != nil {
			t.Fatal(err)
		}
		for !r.Flushed(0, pos) {
			time.Sleep(time.Microsecond)
		}
	})
	if n != 0 {
		t.Errorf("%v allocations a trigger", n)
	}
}

// A transport's proxy with triggers of its own: each adds its two words.
type adder struct {
	*Base
	sum atomic.Uint64
}

func newAdder() *adder {
	a := &adder{}
	a.Base = NewBase(func(r *ring.Ring) Handler {
		return func(t kernel.Trigger, pos uint64) Result {
			if t.Fst == 0 {
				return Fail(fmt.Errorf("%w: nothing to add", framework.ErrInvalid))
			}
			a.sum.Add(t.Fst + t.Snd)
			r.Complete(0, pos)
			return Continue
		}
	}, Options{})
	return a
}

func TestBaseInsideATransport(t *testing.T) {
	r := newRing(t, 8)
	share, err := r.Share()
	if err != nil {
		t.Fatal(err)
	}
	defer share.Close()
	var p framework.Proxy = newAdder()
	if err := p.BindMemory(bound(t), 0, framework.MemoryBinding{}); !errors.Is(err, framework.ErrUnsupported) {
		t.Errorf("bind memory: %v", err)
	}
	if err := p.BindSemaphore(bound(t), 0, framework.SemaphoreBinding{}); !errors.Is(err, framework.ErrUnsupported) {
		t.Errorf("bind semaphore: %v", err)
	}
	if err := p.Start(bound(t), framework.Share{Kind: framework.ShareMemFD}); !errors.Is(err, framework.ErrInvalid) {
		t.Errorf("start without a ring: %v", err)
	}
	if err := p.Start(bound(t), share); err != nil {
		t.Fatal(err)
	}
	if err := p.Start(bound(t), share); !errors.Is(err, framework.ErrInvalid) {
		t.Errorf("second start: %v", err)
	}
	for range 10 {
		if _, err := r.PushContext(bound(t), kernel.Trigger{Fst: 1, Snd: 2}); err != nil {
			t.Fatal(err)
		}
	}
	if err := errors.Join(p.Stop(bound(t)), p.Stop(bound(t)), p.Wait(bound(t))); err != nil {
		t.Fatal(err)
	}
	if n := p.(*adder).sum.Load(); n != 30 {
		t.Errorf("sum %d: expected 30", n)
	}

	r = newRing(t, 8)
	again, err := r.Share()
	if err != nil {
		t.Fatal(err)
	}
	defer again.Close()
	bad := newAdder()
	if err := bad.Start(bound(t), again); err != nil {
		t.Fatal(err)
	}
	push(t, r, 0)
	if err := bad.Wait(bound(t)); !errors.Is(err, framework.ErrInvalid) || !strings.Contains(err.Error(), "nothing to add") {
		t.Errorf("%v: expected the handler's error", err)
	}
	if err := bad.Stop(bound(t)); err != nil {
		t.Errorf("stop afterwards: %v", err)
	}
	idle := newAdder()
	if err := errors.Join(idle.Stop(bound(t)), idle.Stop(bound(t)), idle.Wait(bound(t))); err != nil {
		t.Error(err)
	}
}

// fill is what a handler with a mistake calls.
func fill(m map[uint64]int, key uint64) { m[key]++ }
