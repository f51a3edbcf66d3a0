package port

import (
	"context"
	"encoding/binary"
	"sync/atomic"
	"unsafe"

	"github.com/mscclpp-go/mscclpp/framework/device"
	"github.com/mscclpp-go/mscclpp/framework/kernel"
	"github.com/mscclpp-go/mscclpp/framework/kernel/actor"
	"github.com/mscclpp-go/mscclpp/framework/ring"
	"github.com/mscclpp-go/mscclpp/framework/transporttest/internal/harness"
)

var drivenKernelTests = []harness.Test{
	{
		Name: "driven/kernel", Rule: "Kernels push to the ring that the rank drives.",
		When: drivenWithActor, Body: testDrivenKernel,
	},
	{
		Name: "driven/kernel-abort", Rule: "A kernel leaves its waits when the communicator ends.",
		When: drivenWithActor, Body: testDrivenKernelAbort,
	},
}

func drivenWithActor(c harness.Claims) bool { return drivenClaimed(c) && c.Actor != nil }

// deviceRunner runs the actor of one rank on a device: arguments are in memory of
// the device, the wait control in memory of the host that it sees.
type deviceRunner struct {
	*harness.DeviceView
	kernel  device.Kernel
	stream  device.Stream
	memory  *harness.Buffer
	used    uintptr
	words   *kernel.WaitControl
	control uintptr
}

func newDeviceRunner(d *harness.DeviceView) *deviceRunner {
	t := d.T
	s := &deviceRunner{DeviceView: d, memory: d.Alloc(1 << 20)}
	module, err := d.Device.Load(t.Claims.Actor)
	if err != nil {
		t.Fatalf("rank %d: load the actor: %v", d.N, err)
	}
	t.Cleanup(func() { _ = module.Close() })
	if s.kernel, err = module.Kernel(actor.Symbol); err != nil {
		t.Fatalf("rank %d: %v", d.N, err)
	}
	control, err := d.Page(4096)
	if err != nil {
		t.Fatalf("rank %d: wait control: %v", d.N, err)
	}
	s.words, s.control = (*kernel.WaitControl)(unsafe.Pointer(&control.Bytes[0])), control.Addr
	if s.stream, err = d.Engine.NewStream(); err != nil {
		t.Fatalf("rank %d: open a stream: %v", d.N, err)
	}
	t.Cleanup(func() {
		s.abort() // a lost signal must not leave a kernel spinning
		if err := s.idle(context.Background()); err != nil {
			t.Errorf("rank %d: %v after an abort; what it uses is freed now", d.N, err)
		}
		_ = d.Engine.CloseStream(s.stream)
	})
	stop := context.AfterFunc(t.Context(), s.abort)
	t.Cleanup(func() { stop() })
	return s
}

func (s *deviceRunner) abort() { atomic.StoreUint32(&s.words.Abort, 1) }

// devicePlace puts values where kernels find them and returns their address.
func devicePlace[P any](s *deviceRunner, values ...P) uintptr {
	at := s.memory.Mem.Addr() + s.used
	n := unsafe.Sizeof(values[0]) * uintptr(len(values))
	if s.used += (n + 127) &^ 127; s.used > uintptr(s.memory.Mem.Bytes()) {
		s.T.Fatalf("the deviceRunner is full")
	}
	s.Write(at, unsafe.Slice((*byte)(unsafe.Pointer(&values[0])), n))
	return at
}

// run launches the actor with one port channel. The returned function waits for it.
func (s *deviceRunner) run(port kernel.PortChannelHandle, steps ...actor.Step) (wait func() harness.Outcome) {
	a := actor.Args{Control: s.control, Count: uint32(len(steps)), Kernel: 7}
	a.Port, a.Steps, a.Grid = devicePlace(s, port), devicePlace(s, steps...), devicePlace(s, kernel.GridBarrier{})
	a.Done = devicePlace(s, [2]uint64{})
	a.Failed = a.Done + 8
	if err := s.kernel.Launch(device.Launch{Grid: 1, Block: 32, Stream: s.stream}, unsafe.Pointer(&a), unsafe.Sizeof(a)); err != nil {
		s.T.Fatalf("rank %d: launch: %v", s.N, err)
	}
	return func() harness.Outcome {
		if err := s.idle(s.T.Context()); err != nil {
			s.T.Fatalf("rank %d: %v; its report: %+v", s.N, err, *s.words)
		}
		b := s.Read(a.Done, 16)
		return harness.Outcome{Done: binary.LittleEndian.Uint64(b), Failed: binary.LittleEndian.Uint32(b[8:]) != 0}
	}
}

// idle waits for the kernels of the runner.
func (s *deviceRunner) idle(ctx context.Context) error {
	var failed error
	err := harness.Await(ctx, "end of a kernel", s.T.Options.CallLimit, func() bool {
		var state device.StreamState
		state, failed = s.Engine.Query(s.stream)
		return failed != nil || state == device.StreamIdle
	})
	if failed != nil {
		return failed
	}
	return err
}

// semaphore is the receiving end of a channel.
func (s *deviceRunner) semaphore(inbound uintptr, peer int) kernel.SemaphoreHandle {
	return kernel.SemaphoreHandle{
		Inbound: inbound, Expected: devicePlace(s, uint64(0)), Control: s.control, Peer: uint32(peer), ID: 42,
	}
}

// handle is the sending end: kernels count pushes in memory of the device.
func (c *drivenChannel) handle(s *deviceRunner) kernel.PortChannelHandle {
	counters := devicePlace(s, [ring.CounterBytes]byte{})
	return kernel.PortChannelHandle{
		Semaphore: kernel.SemaphoreHandle{Control: s.control, Peer: uint32(c.peer.N), ID: 42},
		Fifo:      c.ring.HandleOn(ring.View{Base: c.base, Counters: counters, Control: s.control}),
		FlushDone: ring.FlushWordOn(c.base, c.slot),
		SrcMemory: 2 * c.slot, DstMemory: 2*c.slot + 1, SemaphoreSlot: c.slot,
	}
}

// testDrivenKernel has a kernel push several laps of a small ring, and one of the
// receiver wait for its signals.
func testDrivenKernel(t *harness.T) {
	const slots, laps, size = 8, 30, 4096
	c := newDrivenChannel(t, slots, size)
	from, to := newDeviceRunner(c.DeviceView), newDeviceRunner(c.peer)
	c.Write(c.src, patterned(size, 77))
	sent := from.run(c.handle(from), harness.Repeat(laps,
		actor.Step{Op: actor.PortPutWithSignal, Dst: 1, Src: 1, Bytes: 1000},
		actor.Step{Op: actor.PortPut, Dst: 1001, Src: 1001, Bytes: 2000},
		actor.Step{Op: actor.PortSignal},
		actor.Step{Op: actor.PortFlush},
		actor.Step{Op: actor.PortPutWithSignalAndFlush, Dst: 3001, Src: 3001, Bytes: 1095})...)
	received := to.run(kernel.PortChannelHandle{Semaphore: to.semaphore(c.counter, c.N)}, harness.Repeat(3*laps, actor.Step{Op: actor.PortWait})...)
	if p := sent(); p.Failed || p.Done != 5*laps {
		t.Fatalf("the sender completed %d steps of %d; its report: %+v%s", p.Done, 5*laps, *from.words, c.why())
	}
	if p := received(); p.Failed || p.Done != 3*laps {
		t.Fatalf("the receiver completed %d waits of %d; its report: %+v", p.Done, 3*laps, *to.words)
	}
	got := c.peer.Read(c.dst, size)
	want := patterned(size, 77)
	for i := 1; i < size; i++ {
		if got[i] != want[i] {
			t.Fatalf("byte %d is %#x after the kernel's puts, expected %#x", i, got[i], want[i])
		}
	}
	if got[0] != 0 {
		t.Errorf("the byte before the puts was changed to %#x", got[0])
	}
}

// testDrivenKernelAbort aborts a kernel that waits for a signal: it leaves, and says
// what it waited for.
func testDrivenKernelAbort(t *harness.T) {
	c := newDrivenChannel(t, 8, 4096)
	to := newDeviceRunner(c.peer)
	h := kernel.PortChannelHandle{Semaphore: to.semaphore(c.counter, c.N)}
	left := to.run(h, actor.Step{Op: actor.PortWait}, actor.Step{Op: actor.PortWait})
	c.push(kernel.TriggerSignal, 0, 0, 0)
	c.peer.Await("the second wait", h.Semaphore.Expected, 2)
	to.abort()
	if p := left(); !p.Failed || p.Done != 1 {
		t.Errorf("the kernel completed %d steps, failed %v: want 1, and a wait that was left", p.Done, p.Failed)
	}
	if r := to.words; r.Reported != 1 || r.Kernel != 7 || r.Channel != 42 || r.Peer != 0 || r.Expected != 2 || r.Seen != 1 {
		t.Errorf("the report is %+v: want kernel 7, channel 42, peer 0, expected 2, seen 1", *r)
	}
}
