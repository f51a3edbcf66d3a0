package kernels

import (
	"encoding/binary"
	"errors"
	"math"
	"sync/atomic"
	"time"

	"github.com/mscclpp-go/mscclpp/framework"
	"github.com/mscclpp-go/mscclpp/framework/kernel"
	"github.com/mscclpp-go/mscclpp/framework/kernel/actor"
	"github.com/mscclpp-go/mscclpp/framework/transporttest/internal/harness"
)

func actorWith(kind framework.Kind) func(c harness.Claims) bool {
	return func(c harness.Claims) bool {
		if c.Memory.Apart {
			return false // arguments lie in memory that this process can touch
		}
		return c.Actor != nil && c.Has(kind) && (kind != framework.KindPort || harness.PortClaimed(c))
	}
}

// The tests below do with kernels what the others do with Go: the device headers,
// the handles and the mappings of the transport together.
var kernelTests = []harness.Test{
	{
		Name: "kernel/put-get", Rule: "Kernels put and get through the mappings.",
		When: actorWith(framework.KindMemory), Body: testKernelPutGet,
	},
	{
		Name: "kernel/packets", Rule: "Kernels exchange packets through the mappings.",
		When: actorWith(framework.KindMemory), Body: testKernelPackets,
	},
	{
		Name: "kernel/ping-pong", Rule: "Kernels signal each other.",
		When: actorWith(framework.KindMemory), Body: testKernelPingPong,
	},
	{
		Name: "kernel/abort", Rule: "A kernel leaves its waits when the communicator ends.",
		When: actorWith(framework.KindMemory), Body: testKernelAbort,
	},
	{
		Name: "kernel/port", Rule: "Kernels push to the ring that the plugin drains.",
		When: actorWith(framework.KindPort), Body: testKernelPort,
	},
	{
		Name: "kernel/port-dead-proxy", Rule: "A kernel leaves its waits when the proxy dies.",
		When: actorWith(framework.KindPort), Body: testKernelDeadProxy,
	},
	{
		Name: "kernel/port-plugin-killed", Rule: "A kernel leaves its waits when the plugin is killed.",
		When: func(c harness.Claims) bool { return c.Process && actorWith(framework.KindPort)(c) }, Body: testKernelPluginKilled,
	},
	{
		Name: "kernel/switch", Rule: "Kernels use the window of a switch group.",
		When: actorWith(framework.KindSwitch), Body: testKernelSwitch,
	},
}

// Layout of the memory that two kernels share: counter, packets, data.
const (
	kernelPackets = 4096
	kernelData    = 1 << 18
	kernelRoom    = 1 << 19
)

// kernelPair is two runners that reach each other's memory: handle i is that of rank i.
type kernelPair struct {
	runners [2]*harness.KernelRunner
	own     [2]*harness.Buffer
	handles [2]uintptr
}

func newKernelPair(t *harness.T) *kernelPair {
	l := t.Link(framework.KindMemory, t.Rank(0), t.Rank(1))
	d := &kernelPair{}
	var far [2]harness.Window
	for i, r := range l.Ranks {
		d.runners[i] = r.KernelRunner()
		d.own[i] = r.Alloc(kernelRoom)
		far[1-i] = l.Reach(1-i, r.Registered(d.own[i].Segment).Key)
	}
	for i, s := range d.runners {
		own, theirs := d.own[i].Mem.Addr(), far[i].Mem.Addr()
		d.handles[i] = harness.Place(s, kernel.MemoryChannelHandle{
			Semaphore: s.Semaphore(own, theirs, 1-i),
			Dst:       theirs, Src: own, Packets: own + kernelPackets,
		})
	}
	t.Cleanup(t.AbortAtEnd(d.runners[:]...))
	return d
}

func (d *kernelPair) args(i int) actor.Args { return actor.Args{Memory: d.handles[i]} }

func testKernelPutGet(t *harness.T) {
	d := newKernelPair(t)
	a, b := d.own[0].Bytes[kernelData:], d.own[1].Bytes[kernelData:]
	seed := uint64(0)
	for k, at := range harness.Alignments {
		from := harness.Alignments[(k+5)%len(harness.Alignments)]
		for _, n := range harness.Sizes {
			seed++
			clear(b[:n+256])
			harness.Fill(a[from:from+n], seed)
			put := actor.Step{Op: actor.Put, Dst: kernelData + uint64(at), Src: kernelData + uint64(from), Bytes: uint64(n)}
			d.runners[0].RunAll(d.args(0), put, actor.Step{Op: actor.Signal})
			d.runners[1].RunAll(d.args(1), actor.Step{Op: actor.Wait})
			if i, bad := harness.Differs(b[at:at+n], seed); bad {
				t.Fatalf("put of %d bytes from %d to %d: byte %d is wrong", n, from, at, i)
			}
			if b[at+n] != 0 || at > 0 && b[at-1] != 0 {
				t.Fatalf("put of %d bytes from %d to %d changed a byte beside it", n, from, at)
			}
			harness.Fill(b[at:at+n], seed+1<<20)
			d.runners[0].RunAll(d.args(0), actor.Step{Op: actor.Get, Dst: kernelData + uint64(from), Src: kernelData + uint64(at), Bytes: uint64(n)})
			if i, bad := harness.Differs(a[from:from+n], seed+1<<20); bad {
				t.Fatalf("get of %d bytes from %d to %d: byte %d is wrong", n, at, from, i)
			}
		}
	}
}

// testKernelPackets sends payload and flags in one store: the receiver needs no
// signal. It is started first, so that it waits.
func testKernelPackets(t *harness.T) {
	d := newKernelPair(t)
	flag := uint32(0)
	for _, n := range []uint64{0, 1, 4, 7, 8, 9, 16, 100, 1000, 4096, 20000} {
		for _, ops := range [][2]actor.Op{{actor.PutLL8, actor.UnpackLL8}, {actor.PutLL16, actor.UnpackLL16}} {
			flag++
			harness.Fill(d.own[0].Bytes[kernelData:kernelData+n], uint64(flag))
			clear(d.own[1].Bytes[kernelData : kernelData+n])
			t.All(2, func(i int) {
				if i == 1 {
					d.runners[1].RunAll(d.args(1), actor.Step{Op: ops[1], Flag: flag, Dst: kernelData, Src: 0, Bytes: n})
				} else {
					d.runners[0].RunAll(d.args(0), actor.Step{Op: ops[0], Flag: flag, Dst: kernelPackets, Src: kernelData, Bytes: n})
				}
			})
			if i, bad := harness.Differs(d.own[1].Bytes[kernelData:kernelData+n], uint64(flag)); bad {
				t.Fatalf("%d bytes as packets of kind %d: byte %d is wrong", n, ops[0], i)
			}
		}
	}
}

// testKernelPingPong runs two kernels at once, which wait for each other.
func testKernelPingPong(t *harness.T) {
	d := newKernelPair(t)
	const rounds = 2000
	put := actor.Step{Op: actor.Put, Dst: kernelData, Src: kernelData, Bytes: 64}
	signal, wait := actor.Step{Op: actor.Signal}, actor.Step{Op: actor.Wait}
	harness.Fill(d.own[0].Bytes[kernelData:kernelData+64], 4711)
	t.All(2, func(i int) {
		if i == 0 {
			d.runners[0].RunAll(d.args(0), harness.Repeat(rounds, put, signal, wait)...)
		} else {
			d.runners[1].RunAll(d.args(1), harness.Repeat(rounds, wait, put, signal)...)
		}
	})
	for i := range d.own {
		if got := atomic.LoadUint64(harness.Word(d.own[i].Bytes, 0)); got != rounds {
			t.Errorf("rank %d counted %d signals of %d", i, got, rounds)
		}
		if at, bad := harness.Differs(d.own[i].Bytes[kernelData:kernelData+64], 4711); bad {
			t.Errorf("rank %d: byte %d is wrong", i, at)
		}
	}
}

// testKernelAbort leaves a wait for a signal that never comes, and reads the report.
func testKernelAbort(t *harness.T) {
	d := newKernelPair(t)
	left := make(chan harness.Outcome, 1)
	s := d.runners[1]
	t.Spawn(func() {
		left <- s.Run(d.args(1), actor.Step{Op: actor.Wait}, actor.Step{Op: actor.Wait})
	})
	atomic.AddUint64(harness.Word(d.own[1].Bytes, 0), 1) // the first wait ends: the kernel runs
	expected := (*kernel.MemoryChannelHandle)(harness.Pointer(d.handles[1])).Semaphore.Expected
	t.AwaitCount("the second wait", (*uint64)(harness.Pointer(expected)), 2)
	s.Abort()
	select {
	case p := <-left:
		if !p.Failed || p.Done != 1 {
			t.Errorf("the kernel completed %d steps, failed %v: want 1, and a wait that was left", p.Done, p.Failed)
		}
	case <-time.After(t.Options.CallLimit):
		t.Fatalf("the kernel did not leave its wait %v after the abort", t.Options.CallLimit)
	}
	r := (*kernel.WaitControl)(harness.Pointer(s.Control))
	if r.Reported != 1 || r.Kernel != 7 || r.Channel != 42 || r.Peer != 0 || r.Expected != 2 || r.Seen != 1 {
		t.Errorf("the report is %+v: want kernel 7, channel 42, peer 0, expected 2, seen 1", *r)
	}
}

// portRunner is a kernel that pushes to a channel, and one that waits for its signals.
func portRunner(c *harness.Channel, receiver *harness.Rank) (from, to *harness.KernelRunner, push, wait actor.Args) {
	from, to = c.Rank.KernelRunner(), receiver.KernelRunner()
	c.T.Cleanup(c.T.AbortAtEnd(from, to))
	handle := func(s *harness.KernelRunner, inbound uintptr, peer int) uintptr {
		return harness.Place(s, kernel.PortChannelHandle{
			Semaphore: s.Semaphore(inbound, 0, peer), Fifo: c.Ring.Handle(s.Control),
			FlushDone: c.Ring.FlushWord(c.SemSlot), DstMemory: c.DstSlot, SrcMemory: c.SrcSlot, SemaphoreSlot: c.SemSlot,
		})
	}
	push.Port = handle(from, harness.Place(from, uint64(0)), receiver.N)
	wait.Port = handle(to, c.Counters.Mem.Addr()+harness.SignalAt, c.N)
	return from, to, push, wait
}

func testKernelPort(t *harness.T) {
	const slots, laps, size = 8, 60, 4096
	l := t.Link(framework.KindPort, t.Rank(0), t.Rank(1))
	c := l.Ranks[0].Proxied(slots).ChannelTo(l, 0, size, &harness.Numbers{})
	from, to, push, wait := portRunner(c, l.Ranks[1])
	harness.Fill(c.Src.Bytes, 77)
	t.All(2, func(i int) {
		if i == 0 {
			from.RunAll(push, harness.Repeat(laps,
				actor.Step{Op: actor.PortPutWithSignal, Dst: 1, Src: 3, Bytes: 1000},
				actor.Step{Op: actor.PortPut, Dst: 1001, Src: 1003, Bytes: 2000},
				actor.Step{Op: actor.PortSignal},
				actor.Step{Op: actor.PortFlush},
				actor.Step{Op: actor.PortPutWithSignalAndFlush, Dst: 3001, Src: 3003, Bytes: 1000})...)
		} else {
			to.RunAll(wait, harness.Repeat(3*laps, actor.Step{Op: actor.PortWait})...)
		}
	})
	for i := range 4000 {
		if want := harness.Pattern(77, i+3); c.Dst.Bytes[1+i] != want {
			t.Fatalf("byte %d is %#x, expected %#x", 1+i, c.Dst.Bytes[1+i], want)
		}
	}
}

// testKernelDeadProxy flushes on a ring whose proxy has ended: the error word makes
// the kernel leave, nobody aborts it.
func testKernelDeadProxy(t *harness.T) {
	l := t.Link(framework.KindPort, t.Rank(0), t.Rank(1))
	c := l.Ranks[0].Proxied(8).ChannelTo(l, 0, 4096, &harness.Numbers{})
	from, _, push, _ := portRunner(c, l.Ranks[1])
	from.RunAll(push, actor.Step{Op: actor.PortPut, Bytes: 8}, actor.Step{Op: actor.PortFlush})
	// A put beyond the end ends the proxy while the kernel waits for its flush.
	p := from.Run(push, actor.Step{Op: actor.PortPut, Dst: 1 << 30, Bytes: 8}, actor.Step{Op: actor.PortFlush})
	if !p.Failed {
		t.Errorf("a flush on a dead ring succeeded, after %d steps", p.Done)
	}
	t.WantClass("wait for the proxy", c.Dies(), framework.ErrInvalid)
}

// testKernelPluginKilled kills the plugin while a kernel flushes in a loop. The
// suite does what comm does: it learns of the death, and ends the ring.
func testKernelPluginKilled(t *harness.T) {
	l := t.Link(framework.KindPort, t.Rank(0), t.Rank(1))
	c := l.Ranks[0].Proxied(8).ChannelTo(l, 0, 4096, &harness.Numbers{})
	from, _, push, _ := portRunner(c, l.Ranks[1])
	left := make(chan harness.Outcome, 1)
	t.Spawn(func() {
		steps := harness.Repeat(1000, actor.Step{Op: actor.PortPutWithSignalAndFlush, Bytes: 8})
		for {
			if p := from.Run(push, steps...); p.Failed {
				left <- p
				return
			}
		}
	})
	t.AwaitCount("the kernel", c.Count(), 10)
	t.Kill(l.Ranks[0])
	why := l.Ranks[0].Side.Process.Err()
	c.Ring.Fail(why)
	select {
	case <-left:
	case <-time.After(t.Options.CallLimit):
		t.Fatalf("the kernel still waits for a killed plugin after %v", t.Options.CallLimit)
	}
	if err := c.Ring.Err(); !errors.Is(err, framework.ErrPlugin) {
		t.Errorf("the ring says %v, expected class plugin gone", err)
	}
}

// testKernelSwitch broadcasts and reduces through the window, with its barrier in
// between and around.
func testKernelSwitch(t *harness.T) {
	const count = 500 // float32 elements of each member
	all := t.Group(3)
	runners := make([]*harness.KernelRunner, len(all))
	for i, m := range all {
		runners[i] = m.KernelRunner()
	}
	t.Cleanup(t.AbortAtEnd(runners...))
	t.All(len(all), func(i int) {
		m, s := all[i], runners[i]
		handle := harness.Place(s, kernel.SwitchChannelHandle{
			Local: m.Own.Mem.Addr(), Window: m.Window.Mem.Addr(), Bytes: harness.WindowBytes - 128, Stride: m.Window.Stride,
			Flag: harness.WindowBytes - 128, Expected: harness.Place(s, uint64(0)), Control: s.Control, Rank: uint32(i), Ranks: uint32(len(all)),
		})
		values := make([]float32, count)
		for k := range values {
			values[k] = float32((i + 1) * (k + 1))
		}
		mine, sum := harness.Place(s, values...), harness.Place(s, make([]float32, count)...)
		// Each member broadcasts to its own part; then all reduce what each wrote
		// to its own copy of a common part.
		for k, v := range values {
			binary.LittleEndian.PutUint32(m.Own.Bytes[32768+4*k:], math.Float32bits(v))
		}
		barrier := []actor.Step{{Op: actor.SwitchSignal}, {Op: actor.SwitchWait}}
		steps := append(barrier[:2:2],
			actor.Step{Op: actor.SwitchBroadcast, Dst: uint64(i) * 4 * count, Src: uint64(mine), Bytes: 4 * count},
			actor.Step{Op: actor.SwitchReduce, Dst: uint64(sum), Src: 32768, Bytes: 4 * count})
		s.RunAll(actor.Args{Switches: handle}, append(steps, barrier...)...)
		for k := range count {
			if got := *(*float32)(harness.Pointer(sum + uintptr(4*k))); got != float32(6*(k+1)) {
				t.Fatalf("rank %d: element %d reduces to %v, expected %v", i, k, got, 6*(k+1))
			}
			for j := range all {
				got := math.Float32frombits(binary.LittleEndian.Uint32(m.Own.Bytes[4*(j*count+k):]))
				if got != float32((j+1)*(k+1)) {
					t.Fatalf("rank %d: element %d of rank %d's broadcast is %v", i, k, j, got)
				}
			}
		}
	})
}
