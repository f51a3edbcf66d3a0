package actor_test

import (
	"bytes"
	"encoding/binary"
	"fmt"
	"math"
	"math/rand/v2"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"github.com/mscclpp-go/mscclpp/framework"
	"github.com/mscclpp-go/mscclpp/framework/kernel"
	"github.com/mscclpp-go/mscclpp/framework/kernel/actor"
	"github.com/mscclpp-go/mscclpp/framework/ring"
)

// pair joins two ranks of this process by a memory channel each.
type pair struct {
	memory  [2][]byte // src of each, dst of the other
	packets [2][]byte
	args    [2]actor.Args
	control [2]*kernel.WaitControl
	inbound [2]uintptr
}

func newPair(r *rig, size int) *pair {
	p := &pair{}
	for i := range 2 {
		p.memory[i], p.packets[i] = r.memory((size + 15) &^ 15)[:size], r.memory(2*size+64)
		p.inbound[i] = put(r, uint64(0))
	}
	for i := range 2 {
		control := put(r, kernel.WaitControl{})
		p.control[i] = at[kernel.WaitControl](control)
		p.args[i] = actor.Args{Control: control, Kernel: 40 + uint32(i), Memory: put(r, kernel.MemoryChannelHandle{
			Semaphore: kernel.SemaphoreHandle{
				Inbound: p.inbound[i], Expected: put(r, uint64(0)), Outbound: p.inbound[1-i], Control: control,
				Peer: uint32(1 - i), ID: 7,
			},
			Dst: addr(p.memory[1-i]), Src: addr(p.memory[i]), Packets: addr(p.packets[i]) &^ 15,
		})}
	}
	return p
}

// both runs the two ranks at once, each with its steps, and expects all to be done.
func (p *pair) both(t *testing.T, r *rig, first, second []actor.Step) {
	t.Helper()
	k := r.kernel("")
	var wg sync.WaitGroup
	for i, steps := range [][]actor.Step{first, second} {
		// Memory is made before the ranks run: the rig is not for two goroutines.
		args := p.args[i]
		run := r.prepare(k, &args, steps)
		wg.Go(func() { run() })
		defer func() {
			if done := *at[uint64](args.Done); done != uint64(len(steps)) {
				t.Errorf("rank %d did %d of %d steps", i, done, len(steps))
			}
		}()
	}
	wg.Wait()
}

func randomBytes(b []byte, seed uint64) {
	rng := rand.New(rand.NewPCG(seed, 1))
	for i := range b {
		b[i] = byte(rng.Uint32())
	}
}

func TestCopyAnySizeAndAlignment(t *testing.T) {
	for _, arch := range []string{"x86-64-v2", "x86-64-v3", "x86-64-v4"} {
		t.Run(arch, func(t *testing.T) {
			r := newRig(t, arch)
			k := r.kernel("")
			sizes := []int{0, 1, 3, 15, 16, 17, 31, 33, 63, 64, 65, 255, 4097, 9<<20 + 5} // the last bypasses the cache
			for _, size := range sizes {
				src, dst := r.memory(size+16), r.memory(size+48)
				randomBytes(src, uint64(size))
				for _, off := range [][2]int{{0, 0}, {1, 0}, {0, 1}, {3, 5}, {16, 7}} {
					clear(dst)
					_, done := r.perform(k, actor.Args{}, actor.Step{
						Op: actor.Copy, Dst: uint64(addr(dst)) + uint64(16+off[1]), Src: uint64(addr(src)) + uint64(off[0]), Bytes: uint64(size),
					})
					if done != 1 || !bytes.Equal(dst[16+off[1]:][:size], src[off[0]:][:size]) {
						t.Fatalf("%d bytes, source off by %d, target by %d: wrong bytes", size, off[0], off[1])
					}
					if !zero(dst[:16+off[1]]) || !zero(dst[16+off[1]+size:]) {
						t.Fatalf("%d bytes, source off by %d, target by %d: wrote beside the target", size, off[0], off[1])
					}
				}
			}
		})
	}
}

func zero(b []byte) bool { return len(bytes.TrimLeft(b, "\x00")) == 0 }

func TestPutSignalWaitGet(t *testing.T) {
	r := newRig(t, "")
	const half = 5000
	p := newPair(r, 4*half)
	randomBytes(p.memory[0][:half], 1)
	randomBytes(p.memory[1][half:2*half], 2)
	p.both(t, r,
		[]actor.Step{
			{Op: actor.Put, Dst: 2 * half, Src: 0, Bytes: half}, {Op: actor.Signal},
			{Op: actor.Wait}, {Op: actor.Get, Dst: 3 * half, Src: half, Bytes: half}, {Op: actor.RelaxedSignal},
		},
		[]actor.Step{{Op: actor.Wait}, {Op: actor.Signal}, {Op: actor.RelaxedWait}},
	)
	if !bytes.Equal(p.memory[1][2*half:3*half], p.memory[0][:half]) {
		t.Error("put: wrong bytes")
	}
	if !bytes.Equal(p.memory[0][3*half:], p.memory[1][half:2*half]) {
		t.Error("get: wrong bytes")
	}
}

func TestPollConsumesASignalOnce(t *testing.T) {
	r := newRig(t, "")
	p := newPair(r, 64)
	k := r.kernel("")
	atomic.StoreUint64(at[uint64](p.inbound[0]), 1)
	steps, done := r.perform(k, p.args[0], actor.Step{Op: actor.Poll}, actor.Step{Op: actor.Poll})
	if done != 2 || steps[0].Result != 1 || steps[1].Result != 0 {
		t.Errorf("%d polls: %d, %d; expected 1, then 0", done, steps[0].Result, steps[1].Result)
	}
}

func TestPacketsBetweenRanks(t *testing.T) {
	for _, arch := range []string{"x86-64-v2", "x86-64-v3", "x86-64-v4"} {
		r := newRig(t, arch)
		for _, kind := range []struct{ put, unpack actor.Op }{{actor.PutLL8, actor.UnpackLL8}, {actor.PutLL16, actor.UnpackLL16}} {
			for _, size := range []int{1, 4, 7, 8, 13, 64, 1000, 4093} {
				for _, off := range []int{0, 1, 4} {
					t.Run(fmt.Sprintf("%s/%d/%d+%d", arch, kind.put, size, off), func(t *testing.T) {
						p := newPair(r, 2*size+64)
						randomBytes(p.memory[0], uint64(size))
						// The kernel writes packets of the first rank's memory into the
						// second rank's; its packet buffer is that memory here.
						area := r.memory(2*size + 64)
						at[kernel.MemoryChannelHandle](p.args[0].Memory).Dst = addr(area) &^ 15
						at[kernel.MemoryChannelHandle](p.args[1].Memory).Packets = addr(area) &^ 15
						p.both(t, r,
							[]actor.Step{{Op: kind.put, Src: uint64(off), Bytes: uint64(size), Flag: 3}},
							[]actor.Step{{Op: kind.unpack, Dst: uint64(off + 2), Bytes: uint64(size), Flag: 3}},
						)
						if !bytes.Equal(p.memory[1][off+2:][:size], p.memory[0][off:][:size]) {
							t.Error("wrong bytes")
						}
						if !zero(p.memory[1][:off+2]) || !zero(p.memory[1][off+2+size:]) {
							t.Error("wrote beside the target")
						}
					})
				}
			}
		}
	}
}

func TestAbortEndsWaitsAndIsReported(t *testing.T) {
	r := newRig(t, "")
	for name, step := range map[string]actor.Step{
		"signal": {Op: actor.Wait}, "relaxed": {Op: actor.RelaxedWait},
		"LL8": {Op: actor.UnpackLL8, Bytes: 64, Flag: 5}, "LL16": {Op: actor.UnpackLL16, Bytes: 64, Flag: 5},
	} {
		t.Run(name, func(t *testing.T) {
			p := newPair(r, 64)
			p.control[0].SpinNS = 1
			args := p.args[0]
			run := r.prepare(r.kernel(""), &args, []actor.Step{step, {Op: actor.Signal}})
			ended := make(chan struct{})
			go func() { run(); close(ended) }()
			atomic.StoreUint32(&p.control[0].Abort, 1)
			select {
			case <-ended:
			case <-time.After(4 * time.Minute):
				t.Fatal("the kernel did not leave its wait")
			}
			if done := *at[uint64](args.Done); done != 0 {
				t.Errorf("%d steps were done, expected none", done)
			}
			if *at[uint64](p.inbound[1]) != 0 {
				t.Error("the kernel went on after the wait")
			}
			c := p.control[0]
			want := uint64(1)
			if step.Flag != 0 {
				want = uint64(step.Flag)
			}
			if c.Reported != 1 || c.Kernel != 40 || c.Channel != 7 || c.Peer != 1 || c.Expected != want || c.Seen != 0 {
				t.Errorf("report %+v: expected kernel 40, channel 7, peer 1, count %d", *c, want)
			}
		})
	}
}

func TestDeadlineEndsWaits(t *testing.T) {
	r := newRig(t, "")
	p := newPair(r, 64)
	p.control[0].Deadline = uint64(3 * time.Millisecond)
	start := time.Now()
	_, done := r.perform(r.kernel(""), p.args[0], actor.Step{Op: actor.Wait})
	if took := time.Since(start); done != 0 || took < 3*time.Millisecond {
		t.Errorf("%d steps in %v: expected the wait to end after 3 ms", done, took)
	}
	if p.control[0].Reported != 1 || p.control[0].Abort != 0 {
		t.Errorf("report %+v: expected one, and no abort", *p.control[0])
	}
}

func TestPushThroughARing(t *testing.T) {
	r := newRig(t, "")
	q, err := ring.New(8)
	if err != nil {
		t.Fatal(err)
	}
	defer q.Close()
	control := put(r, kernel.WaitControl{})
	args := actor.Args{Control: control, Rings: put(r, q.Handle(control))}
	const triggers = 100 // many laps
	var steps []actor.Step
	for i := range triggers {
		steps = append(steps, actor.Step{Op: actor.Push, Dst: uint64(i) << 3, Src: ^uint64(i)})
	}
	steps = append(steps, actor.Step{Op: actor.Sync, Bytes: triggers - 1})
	run := r.prepare(r.kernel(""), &args, steps)
	ended := make(chan struct{})
	go func() { run(); close(ended) }()
	for i := 0; i < triggers; {
		got, pos, ok := q.Poll()
		if !ok {
			q.Park(time.Second) // the kernel has to wake it
			continue
		}
		if want := (kernel.Trigger{Fst: uint64(i) << 3, Snd: ^uint64(i) &^ (1 << 63)}); got.Fst != want.Fst || got.Snd&^(1<<63) != want.Snd || pos != uint64(i) {
			t.Fatalf("trigger %d at %d: %x, expected %x", i, pos, got, want)
		}
		q.Pop()
		i++
	}
	<-ended
	if done := *at[uint64](args.Done); done != uint64(len(steps)) {
		t.Errorf("%d of %d steps", done, len(steps))
	}
}

func TestPortChannel(t *testing.T) {
	r := newRig(t, "")
	q, err := ring.New(16)
	if err != nil {
		t.Fatal(err)
	}
	defer q.Close()
	control, inbound := put(r, kernel.WaitControl{}), put(r, uint64(0))
	args := actor.Args{Control: control, Port: put(r, kernel.PortChannelHandle{
		Semaphore: kernel.SemaphoreHandle{Inbound: inbound, Expected: put(r, uint64(0)), Control: control, Peer: 3, ID: 1},
		Fifo:      q.Handle(control), FlushDone: q.FlushWord(2), DstMemory: 0x155, SrcMemory: 0xaa, SemaphoreSlot: 0x3cc,
	})}
	const dst, src, size = 0x89abcdef, 0x12345678, 0xfedcba98
	run := r.prepare(r.kernel(""), &args, []actor.Step{
		{Op: actor.PortPut, Dst: dst, Src: src, Bytes: size}, {Op: actor.PortSignal},
		{Op: actor.PortPutWithSignal, Dst: 8, Src: 16, Bytes: 24}, {Op: actor.PortFlush}, {Op: actor.PortWait},
		{Op: actor.PortPutWithSignalAndFlush, Bytes: 1}, {Op: actor.PortPoll},
	})
	ended := make(chan struct{})
	go func() { run(); close(ended) }()
	next := func() (kernel.Trigger, uint64) {
		for {
			if got, pos, ok := q.Poll(); ok {
				q.Pop()
				got.Snd &^= 1 << 63
				return got, pos
			}
			q.Park(time.Second)
		}
	}
	put1, _ := next()
	want := kernel.TriggerFields{Kind: kernel.TriggerData, Bytes: size, From: src, To: dst, Src: 0xaa, Dst: 0x155, Slot: 0x3cc}.Pack()
	if put1 != want {
		t.Errorf("put: %x, expected %x", put1, want)
	}
	for i, typ := range []uint64{kernel.TriggerSignal, kernel.TriggerData | kernel.TriggerSignal, kernel.TriggerFlush} {
		got, pos := next()
		if got.Kind() != typ {
			t.Errorf("trigger %d: type %d, expected %d", i+1, got.Kind(), typ)
		}
		if typ == kernel.TriggerFlush {
			q.Complete(2, pos)
		}
	}
	atomic.AddUint64(at[uint64](inbound), 1)
	got, pos := next()
	if got.Kind() != kernel.TriggerData|kernel.TriggerSignal|kernel.TriggerFlush {
		t.Errorf("last trigger: %x", got)
	}
	q.Complete(2, pos)
	<-ended
	if done := *at[uint64](args.Done); done != 7 {
		t.Errorf("%d of 7 steps", done)
	}
}

// A proxy that dies ends pushes and flushes, also those that wait already.
func TestDeadProxyEndsPushesAndFlushes(t *testing.T) {
	r := newRig(t, "")
	for name, step := range map[string]actor.Op{"push": actor.Push, "flush": actor.PortFlush} {
		t.Run(name, func(t *testing.T) {
			q, err := ring.New(2)
			if err != nil {
				t.Fatal(err)
			}
			defer q.Close()
			control := put(r, kernel.WaitControl{})
			args := actor.Args{Control: control, Rings: put(r, q.Handle(control)), Port: put(r, kernel.PortChannelHandle{
				Fifo: q.Handle(control), FlushDone: q.FlushWord(0),
			})}
			run := r.prepare(r.kernel(""), &args, []actor.Step{{Op: step}, {Op: step}, {Op: step}})
			ended := make(chan struct{})
			go func() { run(); close(ended) }()
			for {
				if _, _, ok := q.Poll(); ok {
					break
				}
				q.Park(time.Second)
			}
			q.Fail(framework.ErrPeer)
			select {
			case <-ended:
			case <-time.After(4 * time.Minute):
				t.Fatal("the kernel still waits for a dead proxy")
			}
			if done := *at[uint64](args.Done); done == 3 {
				t.Error("all steps were done: expected the last to fail")
			}
			if at[kernel.WaitControl](control).Reported != 0 {
				t.Error("a dead proxy is not a wait that was left: no report expected")
			}
		})
	}
}

func TestSwitchOverEmulatedWindow(t *testing.T) {
	const ranks, count = 3, 1000
	const flag, stride = 4096, 8192
	r := newRig(t, "")
	k := r.kernel("")
	window := r.memory(ranks * stride)
	for m := range ranks {
		for i := range count {
			binary.LittleEndian.PutUint32(window[m*stride+4*i:], math.Float32bits(float32((m+1)*i)))
		}
	}
	outs := make([][]byte, ranks)
	var wg sync.WaitGroup
	for rank := range ranks {
		outs[rank] = r.memory(4 * count)
		control := put(r, kernel.WaitControl{})
		args := actor.Args{Control: control, Switches: put(r, kernel.SwitchChannelHandle{
			Local: addr(window) + uintptr(rank*stride), Window: addr(window), Bytes: stride, Stride: stride, Flag: flag,
			Expected: put(r, uint64(0)), Control: control, Rank: uint32(rank), Ranks: ranks,
		})}
		note := put(r, uint64(rank)+100)
		run := r.prepare(k, &args, []actor.Step{
			{Op: actor.SwitchSignal}, {Op: actor.SwitchWait},
			{Op: actor.SwitchReduce, Dst: uint64(addr(outs[rank])), Src: 0, Bytes: 4 * count},
			{Op: actor.SwitchBroadcast, Dst: uint64(flag + 64 + 8*rank), Src: uint64(note), Bytes: 8},
			{Op: actor.SwitchSignal}, {Op: actor.SwitchWait},
		})
		wg.Go(func() { run() })
	}
	wg.Wait()
	for rank := range ranks {
		for i := range count {
			if got := math.Float32frombits(binary.LittleEndian.Uint32(outs[rank][4*i:])); got != float32(6*i) {
				t.Fatalf("rank %d element %d: %v, expected %v", rank, i, got, 6*i)
			}
		}
		for from := range ranks {
			if got := binary.LittleEndian.Uint64(window[rank*stride+flag+64+8*from:]); got != uint64(from)+100 {
				t.Errorf("rank %d has %d of rank %d, expected %d", rank, got, from, from+100)
			}
		}
	}
}

func TestLaunchAllocatesNothing(t *testing.T) {
	r := newRig(t, "")
	k := r.kernel("")
	args := actor.Args{Control: put(r, kernel.WaitControl{})}
	run := r.prepare(k, &args, []actor.Step{{Op: actor.Barrier}})
	if n := testing.AllocsPerRun(100, run); n != 0 {
		t.Errorf("%v allocations a launch", n)
	}
}
