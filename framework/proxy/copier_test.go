package proxy

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"runtime"
	"strings"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"github.com/mscclpp-go/mscclpp/framework"
	"github.com/mscclpp-go/mscclpp/framework/device"
	"github.com/mscclpp-go/mscclpp/framework/device/devicetest"
	"github.com/mscclpp-go/mscclpp/framework/kernel"
	"github.com/mscclpp-go/mscclpp/framework/ring"
)

const room = 1 << 16

// copying is a rank with a copier and some peers. The slots of peer i are: target
// memory i, semaphore i; source memory is 511.
type copying struct {
	dev      *devicetest.Device
	ring     *ring.Ring
	copier   *Copier
	lanes    []*Lane
	src      []byte
	dst      [][]byte
	counters []*uint64
}

func alloc(t testing.TB, dev *devicetest.Device, n uint64) device.Memory {
	t.Helper()
	m, err := dev.Alloc(n)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { m.Close() })
	return m
}

func newLane(t testing.TB, dev *devicetest.Device, peer int) *Lane {
	t.Helper()
	word := alloc(t, dev, 8)
	l, err := NewLane(dev, peer, Word{Host: dev.Word(word.Addr()), Device: word.Addr()})
	if err != nil {
		t.Fatal(err)
	}
	return l
}

func newCopying(t testing.TB, peers int) *copying { return newCopyingTo(t, peers, false) }

// newCopyingTo says whether the host reaches the counters of the peers.
func newCopyingTo(t testing.TB, peers int, hosted bool) *copying {
	t.Helper()
	return newCopyingWith(t, peers, hosted, Options{})
}

func newCopyingWith(t testing.TB, peers int, hosted bool, o Options) *copying {
	t.Helper()
	dev, err := devicetest.Open(0)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { dev.Close() })
	c := &copying{dev: dev, ring: newRing(t, 512)}
	share, err := c.ring.Share()
	if err != nil {
		t.Fatal(err)
	}
	defer share.Close()
	seen, err := dev.Map(framework.Mapping{Shares: []framework.Share{share}, Bytes: c.ring.Bytes()})
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { seen.Close() })
	c.copier = NewCopier(c.ring, seen.Addr(), o)
	src := alloc(t, dev, room)
	c.src = dev.Bytes(src.Addr(), room)
	must(t, c.copier.BindSource(511, src.Addr(), room))
	for p := range peers {
		l := newLane(t, dev, p+1)
		dst, counter := alloc(t, dev, room), alloc(t, dev, 8)
		must(t, c.copier.BindTarget(uint32(p), dst.Addr(), room, l))
		word := Word{Device: counter.Addr()}
		if hosted {
			word.Host = dev.Word(counter.Addr())
		}
		must(t, c.copier.BindSemaphore(uint32(p), l.Counter(word)))
		c.lanes = append(c.lanes, l)
		c.dst = append(c.dst, dev.Bytes(dst.Addr(), room))
		c.counters = append(c.counters, dev.Word(counter.Addr()))
	}
	must(t, c.copier.Start())
	t.Cleanup(func() {
		c.copier.Quit()
		c.copier.Stop(context.Background())
		for _, l := range c.lanes {
			l.Close(context.Background())
		}
	})
	return c
}

func must(t testing.TB, err error) {
	t.Helper()
	if err != nil {
		t.Fatal(err)
	}
}

func trigger(kind, peer, dst, src, n uint64) kernel.Trigger {
	return kernel.TriggerFields{Kind: kind, Bytes: n, From: src, To: dst, Src: 511, Dst: uint32(peer), Slot: uint32(peer)}.Pack()
}

func (c *copying) push(t testing.TB, tr kernel.Trigger) uint64 {
	t.Helper()
	pos, err := c.ring.PushContext(bound(t), tr)
	if err != nil {
		t.Fatalf("%v: %v\n%s", err, c.copier.Wait(bound(t)), c.state())
	}
	return pos
}

// state is what the lanes know and what each thread is doing, for a push that is in vain.
func (c *copying) state() string {
	var b strings.Builder
	for _, l := range c.lanes {
		if l.mu.TryLock() {
			fmt.Fprintf(&b, "lane to %d: issued %d, marked %d, ended %d, %d wait, word %d, last %+v for %d, error %v\n",
				l.peer, l.issued, l.marked, l.ended, l.count, atomic.LoadUint64(l.done.Host), l.last, l.value, l.err)
			l.mu.Unlock()
		} else {
			fmt.Fprintf(&b, "lane to %d: locked\n", l.peer)
		}
	}
	stacks := make([]byte, 1<<20)
	return b.String() + string(stacks[:runtime.Stack(stacks, true)])
}

func (c *copying) flush(t testing.TB, peer uint64) {
	t.Helper()
	if err := c.ring.WaitFlushed(bound(t), uint32(peer), c.push(t, trigger(kernel.TriggerFlush, peer, 0, 0, 0))); err != nil {
		t.Fatal(err)
	}
}

func TestCopierPutsSignalsAndFlushes(t *testing.T) {
	c := newCopying(t, 3)
	for i := range c.src {
		c.src[i] = byte(i * 7)
	}
	for p := range uint64(3) {
		c.push(t, trigger(kernel.TriggerData, p, 100*p, 10, 1000))
		c.push(t, trigger(kernel.TriggerSignal, p, 0, 0, 0))
		c.push(t, trigger(kernel.TriggerData|kernel.TriggerSignal, p, 5000, 0, 8))
		c.push(t, trigger(kernel.TriggerData|kernel.TriggerSignal, p, room, room, 0)) // nothing, at the very end
	}
	for p := range uint64(3) {
		c.flush(t, p)
		if n := atomic.LoadUint64(c.counters[p]); n != 3 {
			t.Errorf("peer %d: %d signals, expected 3", p, n)
		}
		if !bytes.Equal(c.dst[p][100*p:100*p+1000], c.src[10:1010]) || !bytes.Equal(c.dst[p][5000:5008], c.src[:8]) {
			t.Errorf("peer %d: the data is not there after the flush", p)
		}
		if c.dst[p][100*p+1000] != 0 || c.dst[p][5008] != 0 {
			t.Errorf("peer %d: bytes behind the put were changed", p)
		}
	}
	if n, err := c.copier.Stop(bound(t)), c.copier.Wait(bound(t)); n != nil || err != nil {
		t.Error(n, err)
	}
}

// Stop performs what was pushed, to the last byte.
func TestCopierStopWaitsForTheStream(t *testing.T) {
	c := newCopying(t, 1)
	release := c.dev.Hold()
	for range 100 {
		c.push(t, trigger(kernel.TriggerSignal, 0, 0, 0, 0))
	}
	stopped := make(chan error, 1)
	go func() { stopped <- c.copier.Stop(context.Background()) }()
	for c.copier.stop.Load() != finish {
		time.Sleep(10 * time.Microsecond)
	}
	release()
	if err := <-stopped; err != nil {
		t.Error(err)
	}
	if n := atomic.LoadUint64(c.counters[0]); n != 100 {
		t.Errorf("%d signals were there when Stop returned, expected 100", n)
	}
}

// A peer that takes nothing, with more operations than any stream holds, does not
// keep others waiting.
func TestLanesAreIndependent(t *testing.T) {
	slow := newCopying(t, 1)
	fast, err := devicetest.Open(1)
	must(t, err)
	t.Cleanup(func() { fast.Close() })
	l := newLane(t, fast, 9)
	counter := alloc(t, fast, 8)
	must(t, slow.copier.BindSemaphore(5, l.Counter(Word{Device: counter.Addr()})))
	release := slow.dev.Hold()
	defer release()
	const puts = window + backlog/2
	for range puts {
		slow.push(t, trigger(kernel.TriggerData|kernel.TriggerSignal, 0, 0, 0, 64))
	}
	pos := slow.push(t, trigger(kernel.TriggerSignal, 5, 0, 0, 0))
	deadline := time.Now().Add(10 * time.Second)
	for atomic.LoadUint64(fast.Word(counter.Addr())) != 1 {
		if time.Now().After(deadline) {
			t.Fatalf("a signal to one peer, at position %d, waits for the puts to another", pos)
		}
		time.Sleep(20 * time.Microsecond)
	}
	if n := atomic.LoadUint64(slow.counters[0]); n != 0 {
		t.Fatalf("%d signals over a stream that is held", n)
	}
	if _, writes, _ := slow.dev.Calls(); writes > 2*window {
		t.Errorf("%d stores were given to a stream that takes nothing: expected about %d", writes, window)
	}
	release()
	slow.flush(t, 0)
	if n := atomic.LoadUint64(slow.counters[0]); n != puts {
		t.Errorf("%d signals arrived, expected %d", n, puts)
	}
	must(t, l.Close(bound(t)))
}

// When even the backlog is full the ring fills, and nothing is lost or reordered.
func TestBacklogThatIsFull(t *testing.T) {
	c := newCopying(t, 1)
	release := c.dev.Hold()
	const puts = window + backlog + 1000
	var pushed sync.WaitGroup
	pushed.Go(func() {
		for i := range uint64(puts) {
			c.push(t, trigger(kernel.TriggerData|kernel.TriggerSignal, 0, i*8%room, i*8%room, 8))
		}
	})
	for c.ring.Depth() < 512 {
		time.Sleep(20 * time.Microsecond)
	}
	release()
	pushed.Wait()
	c.flush(t, 0)
	if n := atomic.LoadUint64(c.counters[0]); n != puts {
		t.Errorf("%d signals arrived, expected %d", n, puts)
	}
}

// A peer that takes nothing cannot keep a job that has failed from ending.
func TestQuitWithAFullBacklog(t *testing.T) {
	c := newCopying(t, 1)
	release := c.dev.Hold()
	defer release()
	for range window + backlog + 100 {
		c.push(t, trigger(kernel.TriggerSignal, 0, 0, 0, 0))
	}
	c.copier.Quit()
	if err := c.copier.Wait(bound(t)); !errors.Is(err, framework.ErrClosed) {
		t.Errorf("%v: expected ErrClosed", err)
	}
	ctx, cancel := context.WithTimeout(context.Background(), time.Millisecond)
	defer cancel()
	err := c.lanes[0].Settle(ctx)
	if !errors.Is(err, context.DeadlineExceeded) || framework.PeerOf(err) != 1 {
		t.Errorf("%v: expected the deadline, and rank 1", err)
	}
	c.lanes[0].Drop()
	release()
	must(t, c.lanes[0].Settle(bound(t)))
	if n := atomic.LoadUint64(c.counters[0]); n == 0 || n > window {
		t.Errorf("%d signals: expected those that the stream had", n)
	}
}

// Many producers over several channels: each sees its own puts in order.
func TestCopierManyProducers(t *testing.T) {
	c := newCopying(t, 4)
	var producers sync.WaitGroup
	for p := range uint64(4) {
		producers.Go(func() {
			for i := range uint64(500) {
				c.push(t, trigger(kernel.TriggerData|kernel.TriggerSignal, p, 8*i, 8*i, 8))
				if i%50 == 0 {
					c.flush(t, p)
					if n := atomic.LoadUint64(c.counters[p]); n != i+1 {
						t.Errorf("peer %d: %d signals after a flush, expected %d", p, n, i+1)
					}
				}
			}
			c.flush(t, p)
		})
	}
	producers.Wait()
}

func TestCopierEndsWithTheErrorOfTheEngine(t *testing.T) {
	for name, provoke := range map[string]func(t *testing.T, c *copying){
		"at the next call": func(t *testing.T, c *copying) {
			c.dev.Fail(errors.New("an uncorrectable error"))
			c.push(t, trigger(kernel.TriggerData, 1, 0, 0, 8))
		},
		"while nothing is asked": func(t *testing.T, c *copying) {
			release := c.dev.Hold()
			c.push(t, trigger(kernel.TriggerData|kernel.TriggerFlush, 1, 0, 0, 8))
			for _, writes, _ := c.dev.Calls(); writes == 0; _, writes, _ = c.dev.Calls() {
				time.Sleep(20 * time.Microsecond)
			}
			c.dev.Fail(errors.New("an uncorrectable error"))
			release()
		},
	} {
		t.Run(name, func(t *testing.T) {
			c := newCopying(t, 2)
			provoke(t, c)
			err := c.copier.Wait(bound(t))
			if !errors.Is(err, framework.ErrUnavailable) || framework.PeerOf(err) != 2 || !strings.Contains(err.Error(), "uncorrectable") {
				t.Errorf("%v: expected what the device said, and rank 2", err)
			}
			if err := c.ring.Err(); !errors.Is(err, framework.ErrUnavailable) {
				t.Errorf("the ring says %v", err)
			}
		})
	}
}

func TestCopierRefusesTriggers(t *testing.T) {
	const data, signal = kernel.TriggerData, kernel.TriggerSignal
	type fields = kernel.TriggerFields
	for want, tr := range map[string]kernel.Trigger{
		"asks for nothing":               trigger(0, 0, 0, 0, 0),
		"semaphore 7 is not bound":       trigger(signal, 7, 0, 0, 0),
		"semaphore 1023 is not bound":    fields{Kind: signal, Slot: 1023}.Pack(),
		"target memory 7 is not bound":   trigger(data, 7, 0, 0, 8),
		"source memory 7 is not bound":   fields{Kind: data, Bytes: 8, Src: 7}.Pack(),
		"source memory 0 is a peer's":    fields{Kind: data, Bytes: 8, Dst: 1}.Pack(),
		"target memory 511 is own":       fields{Kind: data, Bytes: 8, Src: 511, Dst: 511}.Pack(),
		"of rank 1, semaphore 1":         fields{Kind: data | signal, Bytes: 8, Src: 511, Slot: 1}.Pack(),
		"9 bytes at 65528 of source":     trigger(data, 0, 0, room-8, 9),
		"9 bytes at 65528 of target":     trigger(data, 0, room-8, 0, 9),
		"4294967295 bytes at 4294967295": trigger(data, 0, 1<<32-1, 1<<32-1, 1<<32-1),
	} {
		t.Run(want, func(t *testing.T) {
			c := newCopying(t, 2)
			c.push(t, tr)
			err := c.copier.Wait(bound(t))
			if !errors.Is(err, framework.ErrInvalid) || !strings.Contains(err.Error(), want) {
				t.Errorf("%v: expected ErrInvalid with %q", err, want)
			}
			if copies, writes, _ := c.dev.Calls(); copies+writes != 0 {
				t.Errorf("%d copies and %d stores", copies, writes)
			}
		})
	}
}

func TestCopierSlots(t *testing.T) {
	c := newCopying(t, 1)
	for name, err := range map[string]error{
		"memory twice":     c.copier.BindSource(511, 1, 1),
		"memory 512":       c.copier.BindTarget(512, 1, 1, c.lanes[0]),
		"semaphore twice":  c.copier.BindSemaphore(0, c.lanes[0].Counter(Word{})),
		"semaphore beyond": c.copier.BindSemaphore(kernel.RingFlushWords, c.lanes[0].Counter(Word{})),
	} {
		if !errors.Is(err, framework.ErrInvalid) {
			t.Errorf("%s: %v, expected ErrInvalid", name, err)
		}
	}
	c.copier.Unbind(0, 0)
	c.push(t, trigger(kernel.TriggerSignal, 0, 0, 0, 0))
	if err := c.copier.Wait(bound(t)); !errors.Is(err, framework.ErrInvalid) {
		t.Errorf("a trigger for what was unbound: %v", err)
	}
}

// The driver is not asked at every look, however long a stream takes.
func TestCopierSeldomQueries(t *testing.T) {
	c := newCopying(t, 1)
	start := time.Now()
	for range 20 {
		for range 50 {
			c.push(t, trigger(kernel.TriggerSignal, 0, 0, 0, 0))
		}
		c.flush(t, 0)
	}
	took := time.Since(start)
	if _, _, queries := c.dev.Calls(); queries > uint64(took/askAfter)+1 {
		t.Errorf("%d queries within %v, expected one in %v at most", queries, took, askAfter)
	}
}

func TestLane(t *testing.T) {
	dev, err := devicetest.Open(0)
	must(t, err)
	defer dev.Close()
	m := alloc(t, dev, 64)
	l := newLane(t, dev, framework.NoPeer)
	for i := range uint64(3 * window) { // more than fits: waits for room
		must(t, l.Write(m.Addr(), i))
	}
	must(t, l.Copy(m.Addr()+8, m.Addr(), 8))
	must(t, l.Write(m.Addr(), 0))
	must(t, l.Settle(bound(t)))
	if a, b := *dev.Word(m.Addr()), *dev.Word(m.Addr() + 8); a != 0 || b != 3*window-1 {
		t.Errorf("the words are %d and %d", a, b)
	}
	must(t, l.Close(bound(t)))
	must(t, l.Close(bound(t)))
	if err := l.Write(m.Addr(), 1); !errors.Is(err, framework.ErrClosed) {
		t.Errorf("write to a closed lane: %v", err)
	}
	dev.Fail(fmt.Errorf("%w: gone", framework.ErrPlugin))
	if _, err := NewLane(dev, 1, Word{}); !errors.Is(err, framework.ErrPlugin) {
		t.Errorf("a lane of a device that failed: %v", err)
	}
}

// Settle waits for what was there, not for what others go on adding.
func TestSettleUnderTraffic(t *testing.T) {
	c := newCopying(t, 1)
	stop := make(chan struct{})
	var busy sync.WaitGroup
	busy.Go(func() {
		for {
			select {
			case <-stop:
				return
			default:
				c.push(t, trigger(kernel.TriggerSignal, 0, 0, 0, 0))
			}
		}
	})
	for range 50 {
		must(t, c.lanes[0].Settle(bound(t)))
	}
	close(stop)
	busy.Wait()
}

func TestCopierDoesNotAllocate(t *testing.T) {
	c := newCopying(t, 1)
	step := func() {
		pos, err := c.ring.Push(trigger(kernel.TriggerData|kernel.TriggerSignal|kernel.TriggerFlush, 0, 0, 0, 64))
		if err != nil {
			t.Fatal(err)
		}
		for !c.ring.Flushed(0, pos) {
			time.Sleep(time.Microsecond)
		}
	}
	step()
	if n := testing.AllocsPerRun(300, step); n != 0 {
		t.Errorf("%v allocations a trigger", n)
	}
}
