package proxy

import (
	"context"
	"errors"
	"math/rand/v2"
	"runtime"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"github.com/mscclpp-go/mscclpp/framework/device"
	"github.com/mscclpp-go/mscclpp/framework/device/devicetest"
	"github.com/mscclpp-go/mscclpp/framework/kernel"
)

const (
	data   = kernel.TriggerData
	signal = kernel.TriggerSignal
	flush  = kernel.TriggerFlush
)

// until polls what another thread does.
func until(t testing.TB, what string, ready func() bool) {
	t.Helper()
	for deadline := time.Now().Add(4 * time.Minute); !ready(); time.Sleep(10 * time.Microsecond) {
		if time.Now().After(deadline) {
			t.Fatalf("%s: not within 4 minutes", what)
		}
	}
}

// stores is how many stores the stream was given.
func (c *copying) stores() uint64 {
	_, n, _ := c.dev.Calls()
	return n
}

// idle waits until the copier has nothing outstanding with a peer.
func (c *copying) idle(t testing.TB, peer int) {
	t.Helper()
	l := c.lanes[peer]
	until(t, "an idle lane", func() bool {
		l.mu.Lock()
		defer l.mu.Unlock()
		return l.ended == l.issued && l.count == 0
	})
}

// inBothModes runs a test with words on the stream of the copies, and apart from it.
func inBothModes(t *testing.T, f func(t *testing.T, large uint64)) {
	for name, large := range map[string]uint64{"together": apartFrom, "apart": 8} {
		t.Run(name, func(t *testing.T) { f(t, large) })
	}
}

// takeForLarge has all lanes take copies of so many bytes for large ones.
func (c *copying) takeForLarge(bytes uint64) {
	for _, l := range c.lanes {
		l.mu.Lock()
		l.large = bytes
		l.mu.Unlock()
	}
}

// Behind a large copy words go on a stream of their own, and so does what follows, until the
// lane is idle.
func TestWordsApartFromLargeCopies(t *testing.T) {
	dev, err := devicetest.Open(0)
	must(t, err)
	defer dev.Close()
	m := alloc(t, dev, 256)
	l := newLane(t, dev, 1)
	l.large = 64
	n := l.Counter(Word{Host: dev.Word(m.Addr()), Device: m.Addr()})
	submit := func(bytes uint64) {
		t.Helper()
		if did, err := l.submit(operation{dst: m.Addr() + 64, src: m.Addr() + 128, bytes: bytes, counter: n}); did != under || err != nil {
			t.Fatalf("%d, %v: expected an operation under way", did, err)
		}
	}
	words := func() device.StreamState {
		state, err := dev.Query(l.words)
		must(t, err)
		return state
	}
	for want, sizes := range map[uint64][]uint64{3: {64, 8, 0}, 2: {8, 8}} {
		before := atomic.LoadUint64(dev.Word(m.Addr()))
		release := dev.Hold()
		for _, bytes := range sizes {
			submit(bytes)
		}
		if apart := words() == device.StreamBusy; apart != (sizes[0] == 64) || l.apart != apart {
			t.Errorf("copies of %d bytes: words apart: %v, said to be %v", sizes, apart, l.apart)
		}
		release()
		must(t, l.Settle(bound(t)))
		if got := atomic.LoadUint64(dev.Word(m.Addr())); got != before+want {
			t.Errorf("%d signals, expected %d", got, before+want)
		}
	}
	if did, err := l.submit(operation{counter: n}); did != complete || err != nil {
		t.Errorf("%d, %v: expected the host to store the last one", did, err)
	}
	for i := range uint64(200) { // requests by Copy and Write are performed in their order
		must(t, l.Copy(m.Addr()+64, m.Addr()+128, 64))
		must(t, l.Write(m.Addr()+8, i))
		must(t, l.Copy(m.Addr()+16, m.Addr()+8, 8))
		must(t, l.Settle(bound(t)))
		if got := *dev.Word(m.Addr() + 16); got != i {
			t.Fatalf("copy %d of a word has found %d", i, got)
		}
	}
	must(t, l.Close(bound(t)))
	if n := dev.Streams(); n != 0 {
		t.Errorf("%d streams are left", n)
	}
}

// Signals and flushes of a lane with nothing to do are stored by the host alone.
func TestIdleLaneNeedsNoStream(t *testing.T) {
	c := newCopyingTo(t, 2, true)
	release := c.dev.Hold() // work that goes to a stream does not come to an end
	defer release()
	for i := range uint64(600) { // more than a lap of the ring
		c.push(t, trigger(signal, i%2, 0, 0, 0))
		if i%3 == 0 {
			c.flush(t, i%2)
			if n := atomic.LoadUint64(c.counters[i%2]); n != i/2+1 {
				t.Fatalf("%d signals after a flush, expected %d", n, i/2+1)
			}
		}
	}
	c.push(t, trigger(data|signal|flush, 1, room, room, 0)) // no data either
	c.flush(t, 0)
	c.flush(t, 1)
	if a, b := atomic.LoadUint64(c.counters[0]), atomic.LoadUint64(c.counters[1]); a != 300 || b != 301 {
		t.Errorf("%d and %d signals, expected 300 and 301", a, b)
	}
	if n := c.stores(); n != 0 {
		t.Errorf("%d stores were given to streams", n)
	}
}

// Behind a copy the stream stores what comes, also what needs no copy. When it has, that
// is seen without one more store, and the host goes on with the next value.
func TestBusyLaneKeepsTheOrder(t *testing.T) { inBothModes(t, busyLaneKeepsTheOrder) }

func busyLaneKeepsTheOrder(t *testing.T, large uint64) {
	c := newCopyingTo(t, 1, true)
	c.takeForLarge(large)
	for lap := range uint64(20) {
		before := c.stores()
		release := c.dev.Hold()
		t.Cleanup(release)
		c.push(t, trigger(data|signal, 0, 0, 0, 64))
		c.push(t, trigger(signal, 0, 0, 0, 0))
		at := c.push(t, trigger(flush, 0, 0, 0, 0))
		until(t, "three stores", func() bool { return c.stores() == before+3 })
		if n := atomic.LoadUint64(c.counters[0]); n != 3*lap || c.ring.Flushed(0, at) {
			t.Fatalf("lap %d: %d signals overtook a copy, or the flush did", lap, n)
		}
		release()
		must(t, c.ring.WaitFlushed(bound(t), 0, at))
		c.idle(t, 0)
		c.push(t, trigger(signal, 0, 0, 0, 0))
		c.flush(t, 0)
		if n := atomic.LoadUint64(c.counters[0]); n != 3*lap+3 {
			t.Fatalf("lap %d: %d signals, expected %d", lap, n, 3*lap+3)
		}
		if n := c.stores() - before; n > 4 { // at most every 64th operation is marked
			t.Errorf("lap %d: %d stores were given to the stream, expected 3", lap, n)
		}
	}
}

// A counter that only the device reaches is stored by the stream, and the end of a flush
// behind it as well, though the host could.
func TestFlushBehindASignalToTheDevice(t *testing.T) {
	c := newCopyingTo(t, 1, false)
	release := c.dev.Hold()
	at := c.push(t, trigger(signal|flush, 0, 0, 0, 0))
	until(t, "two stores", func() bool { return c.stores() == 2 })
	if c.ring.Flushed(0, at) {
		t.Error("the flush overtook the signal")
	}
	release()
	must(t, c.ring.WaitFlushed(bound(t), 0, at))
	if n := atomic.LoadUint64(c.counters[0]); n != 1 {
		t.Errorf("%d signals after the flush", n)
	}
}

// However streams stop and go, a counter never falls, nothing is lost, and a rank that sees a
// signal sees the data that was put before it.
func TestSignalsAreNeverReordered(t *testing.T) { inBothModes(t, signalsAreNeverReordered) }

func signalsAreNeverReordered(t *testing.T, large uint64) {
	const peers, rounds = 3, 300
	c := newCopyingTo(t, peers, true)
	c.takeForLarge(large)
	source := c.dev.Word(c.copier.memories[511].addr) // the producer alone writes it, between flushes
	var watchers sync.WaitGroup
	stop := make(chan struct{})
	defer watchers.Wait()
	defer close(stop)
	var carried [peers]atomic.Uint64 // by which signal the value was put
	for p := range peers {
		watchers.Go(func() {
			target := c.dev.Word(c.copier.memories[p].addr)
			for last := uint64(0); ; {
				select {
				case <-stop:
					return
				default:
				}
				want := carried[p].Load()
				n := atomic.LoadUint64(c.counters[p])
				if n < last {
					t.Errorf("peer %d: the counter fell from %d to %d", p, last, n)
					return
				}
				if got := atomic.LoadUint64(target); want != 0 && n >= want && got < want {
					t.Errorf("peer %d: signal %d was seen before the data of signal %d: %d", p, n, want, got)
					return
				}
				last = n
				runtime.Gosched()
			}
		})
	}
	var sent [peers]uint64
	random := rand.New(rand.NewPCG(1, 2))
	for range rounds {
		p := random.Uint64N(peers)
		hold := func() {}
		if random.Uint64N(8) == 0 {
			hold = c.dev.Hold()
		}
		for range random.Uint64N(4) {
			c.push(t, trigger(signal, p, 0, 0, 0))
			sent[p]++
		}
		if random.Uint64N(2) == 0 {
			sent[p]++
			atomic.StoreUint64(source, sent[p])
			carried[p].Store(sent[p])
			at := c.push(t, trigger(data|signal|flush, p, 0, 0, 8))
			hold()
			must(t, c.ring.WaitFlushed(bound(t), uint32(p), at))
		}
		hold()
	}
	for p := range uint64(peers) {
		c.flush(t, p)
		if n := atomic.LoadUint64(c.counters[p]); n != sent[p] {
			t.Errorf("peer %d: %d signals arrived, expected %d", p, n, sent[p])
		}
	}
}

// Two rings drive one lane, as kernels and the host do: each signal counts.
func TestTwoCopiersShareALane(t *testing.T) { inBothModes(t, twoCopiersShareALane) }

func twoCopiersShareALane(t *testing.T, large uint64) {
	c := newCopyingTo(t, 1, true)
	c.takeForLarge(large)
	second := newRing(t, 64)
	base, _ := second.Base()
	other := NewCopier(second, uintptr(base), Options{})
	must(t, other.BindSemaphore(0, c.copier.semaphores[0]))
	must(t, other.Start())
	defer func() { must(t, other.Stop(bound(t))) }()
	var producers sync.WaitGroup
	producers.Go(func() {
		for range 1000 {
			c.push(t, trigger(data|signal, 0, 0, 0, 8))
		}
	})
	producers.Go(func() {
		for range 1000 {
			if _, err := second.PushContext(bound(t), trigger(signal, 0, 0, 0, 0)); err != nil {
				t.Error(err)
				return
			}
		}
	})
	producers.Wait()
	must(t, other.Stop(bound(t)))
	c.flush(t, 0)
	if n := atomic.LoadUint64(c.counters[0]); n != 2000 {
		t.Errorf("%d signals, expected 2000", n)
	}
}

// A waiter that gives up may free words that the stream has still to write: the lane does
// not look at them again, and its own word says that it has ended.
func TestSettleThatGivesUpForgets(t *testing.T) {
	dev, err := devicetest.Open(0)
	must(t, err)
	defer dev.Close()
	m := alloc(t, dev, 64)
	l := newLane(t, dev, 1)
	n := l.Counter(Word{Host: dev.Word(m.Addr()), Device: m.Addr()})
	release := dev.Hold()
	defer release()
	if did, err := l.submit(operation{dst: m.Addr() + 16, src: m.Addr() + 24, bytes: 8, counter: n}); did != under || err != nil {
		t.Fatalf("%d, %v: expected an operation under way", did, err)
	}
	if l.last.Host == nil || l.value != 1 {
		t.Fatalf("the last word is %+v, %d: expected the counter", l.last, l.value)
	}
	ctx, cancel := context.WithTimeout(context.Background(), time.Millisecond)
	defer cancel()
	if err := l.Settle(ctx); !errors.Is(err, context.DeadlineExceeded) {
		t.Fatalf("%v: expected the deadline", err)
	}
	if l.last != (Word{}) {
		t.Errorf("the lane still looks at %+v", l.last)
	}
	marks := func() uint64 {
		_, n, _ := dev.Calls()
		return n
	}
	before := marks()
	until(t, "a mark", func() bool {
		_, err := l.look()
		must(t, err)
		return l.marked == l.issued && time.Since(l.since) > 4*markAfter
	})
	if n := marks() - before; n != 1 {
		t.Errorf("%d marks for one operation", n)
	}
	l.forget()
	before = marks()
	if _, err := l.look(); err != nil || marks() != before {
		t.Errorf("%d marks more for an operation that has one, %v", marks()-before, err)
	}
	release()
	must(t, l.Settle(bound(t)))
	if did, err := l.submit(operation{counter: n}); did != complete || err != nil || *dev.Word(m.Addr()) != 2 {
		t.Errorf("%d, %v, %d signals: expected the host to store the second", did, err, *dev.Word(m.Addr()))
	}
	must(t, l.Close(bound(t)))
}

// prioritized is a device whose streams have priorities, and that remembers them.
type prioritized struct {
	*devicetest.Device
	asked []int
}

func (p *prioritized) Priorities() (least, greatest int) { return 1, -1 }
func (p *prioritized) NewPriorityStream(priority int) (device.Stream, error) {
	p.asked = append(p.asked, priority)
	return p.Device.NewStream()
}
func (p *prioritized) NewStream() (device.Stream, error) { return p.NewPriorityStream(0) }

// A kernel of the caller waits for what a lane does. Hardware may put streams of one priority into one queue, where the lane's work would
// stay behind that kernel; so lanes have a priority that callers seldom ask for.
func TestLanesHavePriority(t *testing.T) {
	dev, err := devicetest.Open(0)
	must(t, err)
	defer dev.Close()
	p := &prioritized{Device: dev}
	l, err := NewLane(p, 1, Word{})
	must(t, err)
	defer func() { must(t, l.Close(t.Context())) }()
	if len(p.asked) != 2 || p.asked[0] != -1 || p.asked[1] != -1 {
		t.Errorf("streams of priorities %d: expected two of -1", p.asked)
	}
}
