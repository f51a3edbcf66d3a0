package transporttest

import (
	"encoding/binary"
	"errors"
	"math"
	"sync/atomic"
	"time"

	"github.com/mscclpp-go/mscclpp/framework"
	"github.com/mscclpp-go/mscclpp/framework/kernel"
	"github.com/mscclpp-go/mscclpp/framework/kernel/actor"
)

func actorWith(kind framework.Kind) func(c claims) bool {
	return func(c claims) bool {
		if c.memory.apart {
			return false // the stage lies in memory that this process can touch
		}
		return c.actor != nil && c.Has(kind) && (kind != framework.KindPort || portClaimed(c))
	}
}

// The tests below do with kernels what the others do with Go: the device headers,
// the handles and the mappings of the transport together.
var kernelTests = []test{
	{name: "kernel/put-get", when: actorWith(framework.KindMemory), body: testKernelPutGet},
	{name: "kernel/packets", when: actorWith(framework.KindMemory), body: testKernelPackets},
	{name: "kernel/ping-pong", when: actorWith(framework.KindMemory), body: testKernelPingPong},
	{name: "kernel/abort", when: actorWith(framework.KindMemory), body: testKernelAbort},
	{name: "kernel/port", when: actorWith(framework.KindPort), body: testKernelPort},
	{name: "kernel/port-dead-proxy", when: actorWith(framework.KindPort), body: testKernelDeadProxy},
	{name: "kernel/port-plugin-killed", when: func(c claims) bool { return c.process && actorWith(framework.KindPort)(c) }, body: testKernelPluginKilled},
	{name: "kernel/switch", when: actorWith(framework.KindSwitch), body: testKernelSwitch},
}

// Layout of the memory that two kernels share: counter, packets, data.
const (
	kernelPackets = 4096
	kernelData    = 1 << 18
	kernelRoom    = 1 << 19
)

// duet is two stages that reach each other's memory: handle i is that of rank i.
type duet struct {
	stages  [2]*stage
	own     [2]*buffer
	handles [2]uintptr
}

func (t *T) duet() *duet {
	l := t.link(framework.KindMemory, t.rank(0), t.rank(1))
	d := &duet{}
	var far [2]window
	for i, r := range l.ranks {
		d.stages[i] = r.stage()
		d.own[i] = r.alloc(kernelRoom)
		far[1-i] = l.reach(1-i, r.registered(d.own[i].segment).Key)
	}
	for i, s := range d.stages {
		own, theirs := d.own[i].mem.Addr(), far[i].mem.Addr()
		d.handles[i] = prop(s, kernel.MemoryChannelHandle{
			Semaphore: s.semaphore(own, theirs, 1-i),
			Dst:       theirs, Src: own, Packets: own + kernelPackets,
		})
	}
	t.Cleanup(t.curtain(d.stages[:]...))
	return d
}

func (d *duet) args(i int) actor.Args { return actor.Args{Memory: d.handles[i]} }

func testKernelPutGet(t *T) {
	d := t.duet()
	a, b := d.own[0].bytes[kernelData:], d.own[1].bytes[kernelData:]
	seed := uint64(0)
	for k, at := range alignments {
		from := alignments[(k+5)%len(alignments)]
		for _, n := range sizes {
			seed++
			clear(b[:n+256])
			fill(a[from:from+n], seed)
			put := actor.Step{Op: actor.Put, Dst: kernelData + uint64(at), Src: kernelData + uint64(from), Bytes: uint64(n)}
			d.stages[0].plays(d.args(0), put, actor.Step{Op: actor.Signal})
			d.stages[1].plays(d.args(1), actor.Step{Op: actor.Wait})
			if i, bad := differs(b[at:at+n], seed); bad {
				t.Fatalf("put of %d bytes from %d to %d: byte %d is wrong", n, from, at, i)
			}
			if b[at+n] != 0 || at > 0 && b[at-1] != 0 {
				t.Fatalf("put of %d bytes from %d to %d changed a byte beside it", n, from, at)
			}
			fill(b[at:at+n], seed+1<<20)
			d.stages[0].plays(d.args(0), actor.Step{Op: actor.Get, Dst: kernelData + uint64(from), Src: kernelData + uint64(at), Bytes: uint64(n)})
			if i, bad := differs(a[from:from+n], seed+1<<20); bad {
				t.Fatalf("get of %d bytes from %d to %d: byte %d is wrong", n, at, from, i)
			}
		}
	}
}

// testKernelPackets sends payload and flags in one store: the receiver needs no
// signal. It is started first, so that it waits.
func testKernelPackets(t *T) {
	d := t.duet()
	flag := uint32(0)
	for _, n := range []uint64{0, 1, 4, 7, 8, 9, 16, 100, 1000, 4096, 20000} {
		for _, ops := range [][2]actor.Op{{actor.PutLL8, actor.UnpackLL8}, {actor.PutLL16, actor.UnpackLL16}} {
			flag++
			fill(d.own[0].bytes[kernelData:kernelData+n], uint64(flag))
			clear(d.own[1].bytes[kernelData : kernelData+n])
			t.all(2, func(i int) {
				if i == 1 {
					d.stages[1].plays(d.args(1), actor.Step{Op: ops[1], Flag: flag, Dst: kernelData, Src: 0, Bytes: n})
				} else {
					d.stages[0].plays(d.args(0), actor.Step{Op: ops[0], Flag: flag, Dst: kernelPackets, Src: kernelData, Bytes: n})
				}
			})
			if i, bad := differs(d.own[1].bytes[kernelData:kernelData+n], uint64(flag)); bad {
				t.Fatalf("%d bytes as packets of kind %d: byte %d is wrong", n, ops[0], i)
			}
		}
	}
}

// testKernelPingPong runs two kernels at once, which wait for each other.
func testKernelPingPong(t *T) {
	d := t.duet()
	const rounds = 2000
	put := actor.Step{Op: actor.Put, Dst: kernelData, Src: kernelData, Bytes: 64}
	signal, wait := actor.Step{Op: actor.Signal}, actor.Step{Op: actor.Wait}
	fill(d.own[0].bytes[kernelData:kernelData+64], 4711)
	t.all(2, func(i int) {
		if i == 0 {
			d.stages[0].plays(d.args(0), repeat(rounds, put, signal, wait)...)
		} else {
			d.stages[1].plays(d.args(1), repeat(rounds, wait, put, signal)...)
		}
	})
	for i := range d.own {
		if got := atomic.LoadUint64(word(d.own[i].bytes, 0)); got != rounds {
			t.Errorf("rank %d counted %d signals of %d", i, got, rounds)
		}
		if at, bad := differs(d.own[i].bytes[kernelData:kernelData+64], 4711); bad {
			t.Errorf("rank %d: byte %d is wrong", i, at)
		}
	}
}

// testKernelAbort leaves a wait for a signal that never comes, and reads the report.
func testKernelAbort(t *T) {
	d := t.duet()
	left := make(chan performance, 1)
	s := d.stages[1]
	t.spawn(func() {
		left <- s.play(d.args(1), actor.Step{Op: actor.Wait}, actor.Step{Op: actor.Wait})
	})
	atomic.AddUint64(word(d.own[1].bytes, 0), 1) // the first wait ends: the kernel runs
	expected := (*kernel.MemoryChannelHandle)(pointer(d.handles[1])).Semaphore.Expected
	t.awaitCount("the second wait", (*uint64)(pointer(expected)), 2)
	s.abort()
	select {
	case p := <-left:
		if !p.failed || p.done != 1 {
			t.Errorf("the kernel completed %d steps, failed %v: want 1, and a wait that was left", p.done, p.failed)
		}
	case <-time.After(t.o.CallLimit):
		t.Fatalf("the kernel did not leave its wait %v after the abort", t.o.CallLimit)
	}
	r := (*kernel.WaitControl)(pointer(s.control))
	if r.Reported != 1 || r.Kernel != 7 || r.Channel != 42 || r.Peer != 0 || r.Expected != 2 || r.Seen != 1 {
		t.Errorf("the report is %+v: want kernel 7, channel 42, peer 0, expected 2, seen 1", *r)
	}
}

// portStage is a kernel that pushes to a channel, and one that waits for its signals.
func (c *channel) portStage(receiver *rank) (from, to *stage, push, wait actor.Args) {
	from, to = c.rank.stage(), receiver.stage()
	c.t.Cleanup(c.t.curtain(from, to))
	handle := func(s *stage, inbound uintptr, peer int) uintptr {
		return prop(s, kernel.PortChannelHandle{
			Semaphore: s.semaphore(inbound, 0, peer), Fifo: c.ring.Handle(s.control),
			FlushDone: c.ring.FlushWord(c.semSlot), DstMemory: c.dstSlot, SrcMemory: c.srcSlot, SemaphoreSlot: c.semSlot,
		})
	}
	push.Port = handle(from, prop(from, uint64(0)), receiver.n)
	wait.Port = handle(to, c.counters.mem.Addr()+signalAt, c.n)
	return from, to, push, wait
}

func testKernelPort(t *T) {
	const slots, laps, size = 8, 60, 4096
	l := t.link(framework.KindPort, t.rank(0), t.rank(1))
	c := l.ranks[0].proxied(slots).channelTo(l, 0, size, &numbers{})
	from, to, push, wait := c.portStage(l.ranks[1])
	fill(c.src.bytes, 77)
	t.all(2, func(i int) {
		if i == 0 {
			from.plays(push, repeat(laps,
				actor.Step{Op: actor.PortPutWithSignal, Dst: 1, Src: 3, Bytes: 1000},
				actor.Step{Op: actor.PortPut, Dst: 1001, Src: 1003, Bytes: 2000},
				actor.Step{Op: actor.PortSignal},
				actor.Step{Op: actor.PortFlush},
				actor.Step{Op: actor.PortPutWithSignalAndFlush, Dst: 3001, Src: 3003, Bytes: 1000})...)
		} else {
			to.plays(wait, repeat(3*laps, actor.Step{Op: actor.PortWait})...)
		}
	})
	for i := range 4000 {
		if want := pattern(77, i+3); c.dst.bytes[1+i] != want {
			t.Fatalf("byte %d is %#x, expected %#x", 1+i, c.dst.bytes[1+i], want)
		}
	}
}

// testKernelDeadProxy flushes on a ring whose proxy has ended: the error word makes
// the kernel leave, nobody aborts it.
func testKernelDeadProxy(t *T) {
	l := t.link(framework.KindPort, t.rank(0), t.rank(1))
	c := l.ranks[0].proxied(8).channelTo(l, 0, 4096, &numbers{})
	from, _, push, _ := c.portStage(l.ranks[1])
	from.plays(push, actor.Step{Op: actor.PortPut, Bytes: 8}, actor.Step{Op: actor.PortFlush})
	// A put beyond the end ends the proxy while the kernel waits for its flush.
	p := from.play(push, actor.Step{Op: actor.PortPut, Dst: 1 << 30, Bytes: 8}, actor.Step{Op: actor.PortFlush})
	if !p.failed {
		t.Errorf("a flush on a dead ring succeeded, after %d steps", p.done)
	}
	t.wantClass("wait for the proxy", c.dies(), framework.ErrInvalid)
}

// testKernelPluginKilled kills the plugin while a kernel flushes in a loop. The
// suite does what comm does: it learns of the death, and ends the ring.
func testKernelPluginKilled(t *T) {
	l := t.link(framework.KindPort, t.rank(0), t.rank(1))
	c := l.ranks[0].proxied(8).channelTo(l, 0, 4096, &numbers{})
	from, _, push, _ := c.portStage(l.ranks[1])
	left := make(chan performance, 1)
	t.spawn(func() {
		steps := repeat(1000, actor.Step{Op: actor.PortPutWithSignalAndFlush, Bytes: 8})
		for {
			if p := from.play(push, steps...); p.failed {
				left <- p
				return
			}
		}
	})
	t.awaitCount("the kernel", c.count(), 10)
	t.kill(l.ranks[0])
	why := l.ranks[0].side.Process.Err()
	c.ring.Fail(why)
	select {
	case <-left:
	case <-time.After(t.o.CallLimit):
		t.Fatalf("the kernel still waits for a killed plugin after %v", t.o.CallLimit)
	}
	if err := c.ring.Err(); !errors.Is(err, framework.ErrPlugin) {
		t.Errorf("the ring says %v, expected class plugin gone", err)
	}
}

// testKernelSwitch broadcasts and reduces through the window, with its barrier in
// between and around.
func testKernelSwitch(t *T) {
	const count = 500 // float32 elements of each member
	all := t.group(3)
	stages := make([]*stage, len(all))
	for i, m := range all {
		stages[i] = m.stage()
	}
	t.Cleanup(t.curtain(stages...))
	t.all(len(all), func(i int) {
		m, s := all[i], stages[i]
		handle := prop(s, kernel.SwitchChannelHandle{
			Local: m.own.mem.Addr(), Window: m.window.mem.Addr(), Bytes: windowBytes - 128, Stride: m.window.stride,
			Flag: windowBytes - 128, Expected: prop(s, uint64(0)), Control: s.control, Rank: uint32(i), Ranks: uint32(len(all)),
		})
		values := make([]float32, count)
		for k := range values {
			values[k] = float32((i + 1) * (k + 1))
		}
		mine, sum := prop(s, values...), prop(s, make([]float32, count)...)
		// Each member broadcasts to its own part; then all reduce what each wrote
		// to its own copy of a common part.
		for k, v := range values {
			binary.LittleEndian.PutUint32(m.own.bytes[32768+4*k:], math.Float32bits(v))
		}
		barrier := []actor.Step{{Op: actor.SwitchSignal}, {Op: actor.SwitchWait}}
		steps := append(barrier[:2:2],
			actor.Step{Op: actor.SwitchBroadcast, Dst: uint64(i) * 4 * count, Src: uint64(mine), Bytes: 4 * count},
			actor.Step{Op: actor.SwitchReduce, Dst: uint64(sum), Src: 32768, Bytes: 4 * count})
		s.plays(actor.Args{Switches: handle}, append(steps, barrier...)...)
		for k := range count {
			if got := *(*float32)(pointer(sum + uintptr(4*k))); got != float32(6*(k+1)) {
				t.Fatalf("rank %d: element %d reduces to %v, expected %v", i, k, got, 6*(k+1))
			}
			for j := range all {
				got := math.Float32frombits(binary.LittleEndian.Uint32(m.own.bytes[4*(j*count+k):]))
				if got != float32((j+1)*(k+1)) {
					t.Fatalf("rank %d: element %d of rank %d's broadcast is %v", i, k, j, got)
				}
			}
		}
	})
}
