package stream

import (
	"context"
	"errors"
	"fmt"
	"os"
	"strings"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"github.com/mscclpp-go/mscclpp/framework"
	"github.com/mscclpp-go/mscclpp/framework/kernel"
)

func contextOf(d time.Duration) (context.Context, context.CancelFunc) {
	return context.WithTimeout(context.Background(), d)
}

// Data of every size class is there when its signal is, over one socket and over several,
// with parts and without.
func TestPutThenSignal(t *testing.T) {
	for _, streams := range []int{1, 2, 5} {
		t.Run(fmt.Sprint(streams), func(t *testing.T) {
			const room = 2 << 20
			a, b := two(t, streams, room+4096, 16<<10)
			for n, size := range []int{0, 1, 31, 8 << 10, 8<<10 + 1, 40 << 10, 1<<20 + 3, room} {
				a.fill(4096, 4096+size, byte(n))
				a.push(kernel.TriggerData|kernel.TriggerSignal, 4096, 4096, uint64(size))
				b.wait(uint64(n + 1))
				b.expect(4096, 4096+size, byte(n))
			}
		})
	}
}

// More than all buffers hold is asked for at once, in both directions, and nobody reads
// but while it waits: the two must not block each other.
func TestBothDirectionsAtOnce(t *testing.T) {
	for _, streams := range []int{1, 3} {
		t.Run(fmt.Sprint(streams), func(t *testing.T) {
			const size, rounds = 1 << 20, 60
			a, b := two(t, streams, size+4096, 128<<10)
			var both sync.WaitGroup
			for i, s := range []*side{a, b} {
				s.fill(4096, 4096+size/2, byte(i))
				both.Go(func() {
					for range rounds {
						s.push(kernel.TriggerData|kernel.TriggerSignal, 4096+size/2, 4096, size/2)
					}
					s.wait(rounds)
					s.flush()
				})
			}
			both.Wait()
			a.expect(4096+size/2, 4096+size, 1)
			b.expect(4096+size/2, 4096+size, 0)
		})
	}
}

// A flush is answered although the receiver never calls, and a put of a kernel arrives
// although its sender does not: the threads see to it.
func TestNobodyCalls(t *testing.T) {
	a, b := two(t, 1, 1<<16, 0)
	a.fill(4096, 1<<16, 3)
	a.push(kernel.TriggerData, 4096, 4096, 1<<16-4096)
	a.flush()
	b.expect(4096, 1<<16, 3)

	b.fill(4096, 8192, 4)
	if _, err := b.ring.Push(trigger(kernel.TriggerData|kernel.TriggerSignal, 4096, 4096, 4096)); err != nil { // wakes the thread, as a kernel does
		t.Fatal(err)
	}
	for deadline := time.Now().Add(bound); atomic.LoadUint64((*uint64)(a.mem.Addr())) == 0; time.Sleep(time.Millisecond) {
		if time.Now().After(deadline) {
			t.Fatal("a put that a kernel pushed has not arrived")
		}
	}
	a.expect(4096, 8192, 4)
}

// A signal that may wait for the next request goes without one as well.
func TestLater(t *testing.T) {
	a, b := two(t, 1, 1<<16, 0)
	for n := range uint64(50) {
		if _, ok, err := a.ring.Offer(trigger(kernel.TriggerSignal, 0, 0, 0)); !ok || err != nil {
			t.Fatal(ok, err)
		}
		a.queue.Later()
		b.wait(n + 1)
	}
}

// Many that push and wait at once disturb nobody.
func TestConcurrently(t *testing.T) {
	const pushers, each = 4, 200
	a, b := two(t, 2, 1<<16, 4096)
	var all sync.WaitGroup
	for _, s := range []*side{a, b} {
		for range pushers {
			all.Go(func() {
				for range each {
					s.push(kernel.TriggerData|kernel.TriggerSignal, 4096, 4096, 20000)
				}
				s.wait(pushers * each)
			})
		}
	}
	all.Wait()
	for _, s := range []*side{a, b} {
		if got := atomic.LoadUint64((*uint64)(s.mem.Addr())); got != pushers*each {
			t.Errorf("%d signals: expected %d", got, pushers*each)
		}
	}
}

// Puts to memory that its owner has withdrawn are dropped, and the link lives on.
func TestWithdrawn(t *testing.T) {
	a, b := two(t, 3, 1<<20, 64<<10)
	other, err := b.link.Expose(uintptr(b.mem.Addr())+1<<19, 1<<19)
	if err != nil {
		t.Fatal(err)
	}
	a.check(a.queue.BindTarget(2, a.link, other, 1<<19))
	b.link.Withdraw(other)
	a.fill(0, 1<<19, 1)
	b.fill(1<<19, 1<<20, 9)
	put := kernel.TriggerFields{Kind: kernel.TriggerData, Bytes: 1 << 19, Dst: 2}.Pack()
	if _, ok, err := a.ring.Offer(put); !ok || err != nil {
		t.Fatal(ok, err)
	}
	a.flush()
	b.expect(1<<19, 1<<20, 9)
	a.push(kernel.TriggerSignal, 0, 0, 0)
	a.flush()
}

// A peer that leaves in order is owed nothing: flushes are over, and later puts are dropped.
func TestBye(t *testing.T) {
	a, b := two(t, 2, 1<<20, 64<<10)
	b.close()
	for range 20 {
		a.push(kernel.TriggerData, 0, 0, 1<<20)
		a.flush()
	}
	if err := a.ring.Err(); err != nil {
		t.Error(err)
	}
}

// ended waits for the end of a queue, and returns why.
func ended(t *testing.T, q *Queue) error {
	t.Helper()
	ctx, cancel := contextOf(bound)
	defer cancel()
	err := q.Wait(ctx)
	if errors.Is(err, context.DeadlineExceeded) {
		t.Fatal("the queue goes on")
	}
	return err
}

// A peer that dies, or sends what makes no sense, ends all queues, and is named; a wait for a flush
// ends.
func TestEndOfPeer(t *testing.T) {
	for name, c := range map[string]struct {
		do   func(r raw)
		text string
	}{
		"closed":              {func(raw) {}, "closed by the peer"},
		"unknown kind":        {func(r raw) { r.write(frameOf(9, 0, 0, 0, 0, 0)) }, "makes no sense"},
		"unknown handle":      {func(r raw) { r.write(frameOf(2, 0, 77, 0, 8, 0)) }, "makes no sense"},
		"beyond the end":      {func(r raw) { r.write(frameOf(2, 0, 0, 1<<16-7, 8, 0)) }, "makes no sense"},
		"overflow":            {func(r raw) { r.write(frameOf(2, 0, 0, 8, ^uint64(0), 0)) }, "makes no sense"},
		"unaligned signal":    {func(r raw) { r.write(frameOf(4, 0, 0, 4, 0, 0)) }, "makes no sense"},
		"flush out of order":  {func(r raw) { r.write(frameOf(5, 0, 0, 0, 0, 2)) }, "makes no sense"},
		"stripe out of order": {func(r raw) { r.write(frameOf(3, 1, 0, 0, 8, 2)) }, "makes no sense"},
		"too many stripes":    {func(r raw) { r.write(frameOf(3, 1, 0, 0, 8, 1)) }, "makes no sense"},
	} {
		t.Run(name, func(t *testing.T) {
			ends := sockets(t, 1)
			s := alone(t, ends[0], 1<<16, 0)
			s.cite(0, 1<<16)
			s.push(kernel.TriggerFlush, 0, 0, 0)
			r := rawOf(t, ends[1][0])
			if got := r.read(32); got[0] != 5 {
				t.Fatalf("frame %x: expected a flush", got)
			}
			c.do(r)
			if name == "closed" {
				ends[1][0].Close()
			}
			err := ended(t, s.queue)
			if !errors.Is(err, framework.ErrPeer) || framework.PeerOf(err) != 1 || !strings.Contains(err.Error(), c.text) {
				t.Errorf("%v: expected rank 1 to blame, with %q", err, c.text)
			}
			if s.ring.Err() == nil {
				t.Error("who waits for the flush waits for ever")
			}
		})
	}
}

// A socket for parts that ends ends the link, though the first one lives, whether or not a thread
// drives the link all the time.
func TestEndOfAnotherSocket(t *testing.T) {
	for _, driven := range []bool{false, true} {
		t.Run(fmt.Sprintf("driven %v", driven), func(t *testing.T) {
			ends := sockets(t, 2)
			s := alone(t, ends[0], 1<<16, 0)
			over := make(chan struct{})
			var driver sync.WaitGroup
			if driven {
				driver.Go(func() {
					for {
						select {
						case <-over:
							return
						default:
							s.queue.Await(s.link, (*uint64)(s.mem.Addr()), 1, 0, 100*time.Microsecond, Waits{Spin: time.Second})
						}
					}
				})
			}
			ends[1][1].Close()
			err := ended(t, s.queue)
			close(over)
			driver.Wait()
			if !errors.Is(err, framework.ErrPeer) {
				t.Errorf("%v: expected %v", err, framework.ErrPeer)
			}
		})
	}
}

// Parts on other sockets wait until the first one names their put.
func TestPartsAhead(t *testing.T) {
	ends := sockets(t, 2)
	s := alone(t, ends[0], 1<<16, 0)
	first, second := rawOf(t, ends[1][0]), rawOf(t, ends[1][1])
	second.write(append(frameOf(3, 0, 0, 4096+8, 8, 1), "12345678"...))
	second.write(append(frameOf(3, 0, 0, 4096+8, 8, 2), "abcdefgh"...))
	first.write(append(frameOf(3, 1, 0, 4096, 8, 1), "ABCDEFGH"...))
	first.write(frameOf(4, 0, 0, 0, 0, 0))
	s.wait(1)
	if got := string(s.mem.Bytes()[4096 : 4096+16]); got != "ABCDEFGH12345678" {
		t.Errorf("%q: the second put came before its turn", got)
	}
	first.write(append(frameOf(3, 1, 0, 4096, 8, 2), "IJKLMNOP"...))
	first.write(frameOf(5, 0, 0, 0, 0, 1))
	if got := first.read(32); got[0] != 6 || got[24] != 1 {
		t.Errorf("frame %x: expected the answer to flush 1", got)
	}
	if got := string(s.mem.Bytes()[4096 : 4096+16]); got != "IJKLMNOPabcdefgh" {
		t.Errorf("%q after the second put", got)
	}
}

// A trigger that cites what is not bound, or misses it, ends its queue and no other.
func TestTriggersThatMakeNoSense(t *testing.T) {
	type fields = kernel.TriggerFields
	for name, c := range map[string]struct {
		trigger kernel.Trigger
		text    string
	}{
		"nothing":     {trigger(0, 0, 0, 0), "asks for nothing"},
		"source":      {fields{Kind: kernel.TriggerData, Bytes: 8, Src: 5, Dst: 1}.Pack(), "source is not bound"},
		"target":      {fields{Kind: kernel.TriggerData, Bytes: 8, Dst: 6}.Pack(), "target is not bound"},
		"semaphore":   {fields{Kind: kernel.TriggerSignal, Slot: 7}.Pack(), "semaphore is not bound"},
		"source side": {fields{Kind: kernel.TriggerData, Bytes: 8, Src: 1, Dst: 1}.Pack(), "source is not bound"},
		"target side": {fields{Kind: kernel.TriggerData, Bytes: 8}.Pack(), "target is not bound"},
		"read":        {trigger(kernel.TriggerData, 0, 1<<16-7, 8), "beyond the end of its source"},
		"write":       {trigger(kernel.TriggerData, 1<<16-7, 0, 8), "beyond the end of its target"},
	} {
		t.Run(name, func(t *testing.T) {
			a, b := two(t, 1, 1<<16, 0)
			if _, ok, err := a.ring.Offer(c.trigger); !ok || err != nil {
				t.Fatal(ok, err)
			}
			a.queue.Drain()
			err := ended(t, a.queue)
			if !errors.Is(err, framework.ErrInvalid) || !strings.Contains(err.Error(), c.text) {
				t.Errorf("%v: expected %v with %q", err, framework.ErrInvalid, c.text)
			}
			b.push(kernel.TriggerSignal, 0, 0, 0)
			b.flush() // the link lives
		})
	}
}

// Descriptors that are no stream sockets are refused, and none stays open.
func TestNoSockets(t *testing.T) {
	e, err := NewEngine()
	if err != nil {
		t.Fatal(err)
	}
	null, err := os.Open(os.DevNull)
	if err != nil {
		t.Fatal(err)
	}
	defer null.Close()
	for _, files := range [][]*os.File{nil, {nil}, {null}, make([]*os.File, MaxSockets+1)} {
		if _, err := e.Link(1, files, 0); !errors.Is(err, framework.ErrInvalid) {
			t.Errorf("%d files: %v: expected %v", len(files), err, framework.ErrInvalid)
		}
	}
	if err := e.Close(); err != nil {
		t.Error(err)
	}
}

// An engine with links does not end, and one that has ended takes none.
func TestOrderOfClosing(t *testing.T) {
	ends := sockets(t, 1)
	s := alone(t, ends[0], 4096, 0)
	if err := s.engine.Close(); !errors.Is(err, framework.ErrInvalid) {
		t.Errorf("%v: expected %v", err, framework.ErrInvalid)
	}
	s.close()
	if _, err := s.engine.Link(1, ends[0], 0); !errors.Is(err, framework.ErrClosed) {
		t.Errorf("%v: expected %v", err, framework.ErrClosed)
	}
	if _, err := s.engine.Queue(s.ring); !errors.Is(err, framework.ErrClosed) {
		t.Errorf("%v: expected %v", err, framework.ErrClosed)
	}
}

// Memory that is being sent when it is freed costs the link, and never a read of other memory.
func TestForget(t *testing.T) {
	ends := sockets(t, 1)
	s := alone(t, ends[0], 64<<20, 0)
	s.cite(0, 64<<20)
	if err := s.link.Forget(uintptr(s.mem.Addr()), s.mem.Len()); err != nil {
		t.Fatal(err)
	}
	s.push(kernel.TriggerData, 0, 0, 64<<20) // the peer does not read
	if err := s.link.Forget(uintptr(s.mem.Addr()), s.mem.Len()); !errors.Is(err, framework.ErrClosed) {
		t.Errorf("%v: expected %v", err, framework.ErrClosed)
	}
}

// The data path allocates nothing.
func TestNoAllocations(t *testing.T) {
	a, b := two(t, 1, 1<<16, 0)
	n := uint64(0)
	if got := testing.AllocsPerRun(200, func() {
		a.push(kernel.TriggerData|kernel.TriggerSignal, 4096, 4096, 4096)
		n++
		b.wait(n)
	}); got != 0 {
		t.Errorf("%v allocations: expected none", got)
	}
}
