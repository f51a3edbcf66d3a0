package shm

import (
	"context"
	"errors"
	"strings"
	"sync/atomic"
	"testing"
	"time"
	"unsafe"

	"github.com/mscclpp-go/mscclpp/framework"
	"github.com/mscclpp-go/mscclpp/framework/device"
	"github.com/mscclpp-go/mscclpp/framework/kernel"
	"github.com/mscclpp-go/mscclpp/framework/ring"
)

// port is rank 0's port channel to rank 1: slot 0 is its own memory, slot 1 the
// peer's, semaphore 0 counts at the start of the peer's words.
type port struct {
	t         testing.TB
	a, b      *side
	ring      *ring.Ring
	proxy     framework.Proxy
	src, dst  device.Memory
	words     device.Memory
	conn      framework.ID
	own, peer framework.Registration
}

func newPort(t testing.TB, bytes uint64) *port {
	t.Helper()
	p := &port{t: t}
	var ab framework.ID
	p.a, p.b, ab, _ = pair(t, framework.KindPort)
	p.conn = ab
	p.src, p.dst, p.words = p.a.alloc(bytes), p.b.alloc(bytes), p.b.alloc(4096)
	p.own = p.a.register(p.src, 0, bytes)
	p.peer = p.b.register(p.dst, 0, bytes)
	words := p.b.register(p.words, 0, 4096)
	recipe := must[framework.Attachment](t)(p.a.tr.Attach(bound(t), ab, p.own.ID, []framework.Parcel{p.peer.Key}))
	if len(recipe.Steps) != 0 || len(recipe.Mappings) != 0 {
		t.Fatalf("%+v: expected nothing to do", recipe)
	}
	p.ring = must[*ring.Ring](t)(ring.New(16))
	p.proxy = must[framework.Proxy](t)(p.a.tr.NewProxy(bound(t)))
	p.check(p.proxy.BindMemory(bound(t), 0, framework.MemoryBinding{Local: p.own.ID}))
	p.check(p.proxy.BindMemory(bound(t), 1, framework.MemoryBinding{Conn: ab, Key: p.peer.Key}))
	p.check(p.proxy.BindSemaphore(bound(t), 0, framework.SemaphoreBinding{Conn: ab, Key: words.Key}))
	share := must[framework.Share](t)(p.ring.Share())
	p.check(p.proxy.Start(bound(t), share))
	share.Close()
	t.Cleanup(func() {
		p.proxy.Stop(context.Background())
		p.ring.Close()
	})
	return p
}

func (p *port) check(err error) {
	p.t.Helper()
	if err != nil {
		p.t.Fatal(err)
	}
}

func trigger(kind uint64, dst, src, bytes uint64) kernel.Trigger {
	return kernel.TriggerFields{Kind: kind, Bytes: bytes, From: src, To: dst, Dst: 1}.Pack()
}

func (p *port) push(tr kernel.Trigger) uint64 {
	p.t.Helper()
	pos, err := p.ring.PushContext(bound(p.t), tr)
	p.check(err)
	return pos
}

func (p *port) count() uint64 {
	return atomic.LoadUint64((*uint64)(unsafe.Pointer(&device.Bytes(p.words)[0])))
}

func TestPortChannel(t *testing.T) {
	leakFree(t, "put signal flush", func(t *testing.T) {
		p := newPort(t, 100000)
		src, dst := device.Bytes(p.src), device.Bytes(p.dst)
		for i := range src {
			src[i] = byte(i * 13)
		}
		p.push(trigger(kernel.TriggerData, 3, 1, 99990))
		pos := p.push(trigger(kernel.TriggerFlush, 0, 0, 0))
		p.check(p.ring.WaitFlushed(bound(t), 0, pos))
		if string(dst[3:99993]) != string(src[1:99991]) || dst[2] != 0 || dst[99993] != 0 {
			t.Error("wrong bytes, or bytes beyond the range")
		}
		if p.count() != 0 {
			t.Error("a signal without a trigger")
		}
		const laps = 1000 // of a ring of 16: signals are never lost
		for range laps {
			p.push(trigger(kernel.TriggerData|kernel.TriggerSignal, 0, 0, 8))
		}
		pos = p.push(trigger(kernel.TriggerData|kernel.TriggerSignal|kernel.TriggerFlush, 0, 0, 0))
		p.check(p.ring.WaitFlushed(bound(t), 0, pos))
		if n := p.count(); n != laps+1 {
			t.Errorf("%d signals: expected %d", n, laps+1)
		}
		p.check(p.proxy.Stop(bound(t)))
		p.check(p.proxy.Stop(bound(t)))
		if err := p.proxy.Wait(bound(t)); err != nil {
			t.Errorf("after Stop: %v", err)
		}
		if _, err := p.ring.Push(kernel.Trigger{}); !errors.Is(err, framework.ErrClosed) {
			t.Errorf("push after Stop: %v: expected ErrClosed", err)
		}
	})
}

// A trigger that makes no sense ends the proxy with a typed cause, and every wait.
func TestBadTriggers(t *testing.T) {
	type fields = kernel.TriggerFields
	for name, c := range map[string]struct {
		tr   kernel.Trigger
		want string
	}{
		"nothing":           {kernel.Trigger{}, "asks for nothing"},
		"unbound source":    {fields{Kind: kernel.TriggerData, Src: 7, Dst: 1}.Pack(), "source memory 7 is not bound"},
		"unbound target":    {fields{Kind: kernel.TriggerData, Dst: 511}.Pack(), "target memory 511 is not bound"},
		"swapped":           {fields{Kind: kernel.TriggerData, Src: 1}.Pack(), "source memory 1 is a peer's"},
		"to itself":         {fields{Kind: kernel.TriggerData}.Pack(), "target memory 0 is own"},
		"source range":      {trigger(kernel.TriggerData, 0, 1, 4096), "4096 bytes at 1 of source memory 0, which has 4096"},
		"target range":      {trigger(kernel.TriggerData, 4000, 0, 97), "97 bytes at 4000 of target memory 1"},
		"largest size":      {trigger(kernel.TriggerData, 0, 0, 1<<32-1), "source memory 0"},
		"unbound semaphore": {fields{Kind: kernel.TriggerSignal, Slot: 479}.Pack(), "semaphore 479 is not bound"},
		"no such semaphore": {fields{Kind: kernel.TriggerFlush, Slot: 1023}.Pack(), "semaphore 1023 is not bound"},
	} {
		leakFree(t, name, func(t *testing.T) {
			p := newPort(t, 4096)
			p.push(trigger(kernel.TriggerData, 0, 0, 1))
			p.push(c.tr)
			err := p.proxy.Wait(bound(t))
			if framework.Class(err) != framework.ErrInvalid || !strings.Contains(err.Error(), c.want) || !strings.Contains(err.Error(), "shm proxy: trigger 1 ") {
				t.Errorf("%v: expected ErrInvalid of trigger 1 with %q", err, c.want)
			}
			if err := p.ring.WaitFlushed(bound(t), 0, 100); !errors.Is(err, framework.ErrInvalid) {
				t.Errorf("flush: %v: expected ErrInvalid", err)
			}
			if err := p.proxy.BindMemory(bound(t), 9, framework.MemoryBinding{Local: p.own.ID}); !errors.Is(err, framework.ErrClosed) {
				t.Errorf("bind afterwards: %v: expected ErrClosed", err)
			}
		})
	}
}

func TestBindRefuses(t *testing.T) {
	p := newPort(t, 4096)
	mem := func(slot uint32, b framework.MemoryBinding) error { return p.proxy.BindMemory(bound(t), slot, b) }
	sem := func(slot uint32, offset uint64) error {
		return p.proxy.BindSemaphore(bound(t), slot, framework.SemaphoreBinding{Conn: p.conn, Key: p.peer.Key, Offset: offset})
	}
	end, far := p.a.listen(config(framework.KindMemory, 0, 0, 1)), p.b.listen(config(framework.KindMemory, 1, 0, 1))
	memory := must[framework.ID](t)(p.a.tr.Connect(bound(t), end.ID, []framework.Peer{{Rank: 1, Address: far.Address}}))
	for name, c := range map[string]struct {
		err   error
		class error
	}{
		"slot twice":        {mem(0, framework.MemoryBinding{Local: p.own.ID}), framework.ErrInvalid},
		"slot 512":          {mem(512, framework.MemoryBinding{Local: p.own.ID}), framework.ErrInvalid},
		"neither":           {mem(5, framework.MemoryBinding{}), framework.ErrInvalid},
		"both":              {mem(5, framework.MemoryBinding{Local: p.own.ID, Conn: p.conn}), framework.ErrInvalid},
		"no registration":   {mem(5, framework.MemoryBinding{Local: p.conn}), framework.ErrInvalid},
		"no connection":     {mem(5, framework.MemoryBinding{Conn: p.own.ID, Key: p.peer.Key}), framework.ErrInvalid},
		"memory link":       {mem(5, framework.MemoryBinding{Conn: memory, Key: p.peer.Key}), framework.ErrInvalid},
		"no key":            {mem(5, framework.MemoryBinding{Conn: p.conn}), framework.ErrPeer},
		"semaphore twice":   {sem(0, 0), framework.ErrInvalid},
		"semaphore 480":     {sem(480, 0), framework.ErrInvalid},
		"odd offset":        {sem(1, 4), framework.ErrInvalid},
		"past the end":      {sem(1, 4096), framework.ErrInvalid},
		"across the end":    {sem(1, 4090), framework.ErrInvalid},
		"offset that wraps": {sem(1, ^uint64(7)), framework.ErrInvalid},
	} {
		if framework.Class(c.err) != c.class || !strings.HasPrefix(c.err.Error(), "shm bind ") {
			t.Errorf("%s: %v: expected %v", name, c.err, c.class)
		}
	}
	share := must[framework.Share](t)(p.ring.Share())
	defer share.Close()
	if err := p.proxy.Start(bound(t), share); !errors.Is(err, framework.ErrInvalid) {
		t.Errorf("second start: %v", err)
	}
	if err := p.proxy.Start(bound(t), framework.Share{Kind: framework.ShareMemFD}); !errors.Is(err, framework.ErrInvalid) {
		t.Errorf("start with nothing: %v", err)
	}
	p.push(trigger(kernel.TriggerSignal, 0, 0, 0)) // none of this hurt it
	p.check(p.proxy.Stop(bound(t)))
	if p.count() != 1 {
		t.Error("the signal before Stop was not performed")
	}
}

// Closing an id takes its slots away: nothing that the proxy does later reaches the
// memory, and a trigger that cites it is an error.
func TestCloseFreesSlots(t *testing.T) {
	for name, id := range map[string]func(p *port) framework.ID{
		"registration": func(p *port) framework.ID { return p.own.ID },
		"connection":   func(p *port) framework.ID { return p.conn },
	} {
		leakFree(t, name, func(t *testing.T) {
			p := newPort(t, 1<<20)
			stop := make(chan struct{})
			go func() { // keep it copying while the slot goes away
				defer close(stop)
				for {
					if _, err := p.ring.Push(trigger(kernel.TriggerData, 0, 0, 1<<20)); err != nil {
						return
					}
				}
			}()
			for p.ring.Depth() == 0 {
				time.Sleep(10 * time.Microsecond)
			}
			maps := usage(t)[1]
			p.check(p.a.tr.Close(bound(t), id(p)))
			if n := usage(t)[1]; n >= maps {
				t.Errorf("%d mappings: expected fewer than %d", n, maps)
			}
			<-stop
			err := p.proxy.Wait(bound(t))
			if framework.Class(err) != framework.ErrInvalid || !strings.Contains(err.Error(), "is not bound") {
				t.Errorf("%v: expected ErrInvalid of an unbound slot", err)
			}
		})
	}
}

// Stop is bounded by its context even while producers keep pushing.
func TestStopUnderFire(t *testing.T) {
	p := newPort(t, 1<<20)
	done := make(chan struct{})
	go func() {
		defer close(done)
		for {
			if _, err := p.ring.Push(trigger(kernel.TriggerData, 0, 0, 1<<20)); err != nil {
				return
			}
		}
	}()
	for p.ring.Depth() < 4 {
		time.Sleep(10 * time.Microsecond)
	}
	ctx, cancel := context.WithCancel(context.Background())
	cancel()
	err := p.proxy.Stop(ctx)
	if err != nil && (!errors.Is(err, framework.ErrClosed) || !strings.Contains(err.Error(), "before everything")) {
		t.Errorf("%v: expected to be told that triggers were dropped", err)
	}
	<-done // the error word ended the producer
}

func TestStopBeforeStart(t *testing.T) {
	tr := ranks(t, 1)[0].tr
	p := must[framework.Proxy](t)(tr.NewProxy(bound(t)))
	ctx, cancel := context.WithTimeout(context.Background(), time.Millisecond)
	defer cancel()
	if err := p.Wait(ctx); !errors.Is(err, context.DeadlineExceeded) {
		t.Errorf("wait: %v: expected a deadline", err)
	}
	if err := errors.Join(p.Stop(bound(t)), p.Stop(bound(t)), p.Wait(bound(t))); err != nil {
		t.Error(err)
	}
	r := must[*ring.Ring](t)(ring.New(2))
	defer r.Close()
	share := must[framework.Share](t)(r.Share())
	defer share.Close()
	if err := p.Start(bound(t), share); !errors.Is(err, framework.ErrInvalid) {
		t.Errorf("start after stop: %v", err)
	}
	if tr.made.Users() != 0 {
		t.Error("the transport still knows the proxy")
	}
}

// An idle proxy sleeps, and wakes for the next trigger.
func TestIdleProxySleeps(t *testing.T) {
	p := newPort(t, 4096)
	for n := range uint64(3) {
		for end := time.Now().Add(4 * time.Minute); p.proxy.(*proxy).loop.Stats().Parks <= n; {
			if time.Now().After(end) {
				t.Fatal("never sleeps")
			}
			time.Sleep(time.Millisecond)
		}
		pos := p.push(trigger(kernel.TriggerSignal|kernel.TriggerFlush, 0, 0, 0))
		p.check(p.ring.WaitFlushed(bound(t), 0, pos))
	}
	if s := p.proxy.(*proxy).loop.Stats(); s.Triggers != 3 {
		t.Errorf("%+v: expected 3 triggers", s)
	}
}

// The proxy's loop allocates nothing, and neither does pushing.
func TestTriggersDoNotAllocate(t *testing.T) {
	p := newPort(t, 4096)
	n := testing.AllocsPerRun(200, func() {
		pos, err := p.ring.Push(trigger(kernel.TriggerData|kernel.TriggerSignal|kernel.TriggerFlush, 0, 0, 64))
		if err != nil {
			t.Fatal(err)
		}
		for !p.ring.Flushed(0, pos) {
			time.Sleep(time.Microsecond)
		}
	})
	if n != 0 {
		t.Errorf("%v allocations a trigger", n)
	}
}

func BenchmarkPutSignalFlush(b *testing.B) {
	p := newPort(b, 4096)
	b.ReportAllocs()
	for b.Loop() {
		pos, err := p.ring.Push(trigger(kernel.TriggerData|kernel.TriggerSignal|kernel.TriggerFlush, 0, 0, 64))
		if err != nil {
			b.Fatal(err)
		}
		for !p.ring.Flushed(0, pos) {
		}
	}
}
