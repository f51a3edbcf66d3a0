package shm

import (
	"context"
	"errors"
	"runtime"
	"testing"
	"time"
	"unsafe"

	"github.com/mscclpp-go/mscclpp/framework"
	"github.com/mscclpp-go/mscclpp/framework/device"
	"github.com/mscclpp-go/mscclpp/framework/kernel"
	"github.com/mscclpp-go/mscclpp/framework/kernel/actor"
	"github.com/mscclpp-go/mscclpp/framework/kernel/image"
	"github.com/mscclpp-go/mscclpp/framework/kernel/kernellist"
	"github.com/mscclpp-go/mscclpp/framework/ring"
	"github.com/mscclpp-go/mscclpp/internal/ownfile"
)

// The actor kernel, built for this machine, over channels that this transport made:
// device code, proxy and mappings together.

// stage is where kernels of one rank act: all that they touch lies in its memory.
type stage struct {
	t      *testing.T
	kernel device.Kernel
	memory device.Memory
	used   uint64
}

func newStage(t *testing.T, s *side, k device.Kernel) *stage {
	return &stage{t: t, kernel: k, memory: s.alloc(1 << 16)}
}

// place copies a value into the stage, where kernels find it.
func place[T any](s *stage, values ...T) uintptr {
	addr := s.memory.Addr() + uintptr(s.used)
	var one T
	n := uint64(unsafe.Sizeof(one)) * uint64(len(values))
	copy(unsafe.Slice((*T)(unsafe.Pointer(&device.Bytes(s.memory)[s.used])), len(values)), values)
	s.used += (n + 63) &^ 63
	return addr
}

func load[T any](s *stage, addr uintptr) T {
	return *(*T)(unsafe.Pointer(&device.Bytes(s.memory)[addr-s.memory.Addr()]))
}

// act launches the steps and returns how many were completed.
func (s *stage) act(a actor.Args, steps ...actor.Step) uint64 {
	s.t.Helper()
	a.Grid = place(s, kernel.GridBarrier{})
	a.Steps, a.Count = place(s, steps...), uint32(len(steps))
	a.Done, a.Failed = place(s, uint64(0)), place(s, uint32(0))
	args := new(actor.Args)
	*args = a
	if err := s.kernel.Launch(device.Launch{Grid: 1, Block: 1}, unsafe.Pointer(args), unsafe.Sizeof(*args)); err != nil {
		s.t.Fatal(err)
	}
	runtime.KeepAlive(args)
	return load[uint64](s, a.Done)
}

func actorKernel(t *testing.T, s *side) device.Kernel {
	t.Helper()
	spec := must[*image.Spec](t)(image.ReadSpec("kernels/kernels.json"))
	for _, f := range spec.Families {
		if f.Name == kernellist.Actor {
			spec.Families = []image.Family{f}
		}
	}
	targets := must[[]image.Target](t)(image.ParseTargets("native"))
	dir, store := t.TempDir(), must[string](t)(ownfile.Cache("built"))
	ctx, cancel := context.WithTimeout(context.Background(), 2*time.Minute)
	defer cancel()
	built, err := image.Build(ctx, spec, dir, image.Options{Targets: targets, Store: store})
	if errors.Is(err, framework.ErrUnavailable) {
		t.Skipf("kernels cannot be built on this machine: %v", err)
	}
	if err != nil {
		t.Fatal(err)
	}
	tr := must[*Transport](t)(newTransport(Config{Images: dir, DrainCPU: -1}))
	if d := must[framework.Description](t)(tr.Describe(bound(t))); len(d.Kernels) != 1 || d.Kernels[0].Symbol != actor.Symbol {
		t.Fatalf("%+v: expected the kernel that was built", d.Kernels)
	}
	data := must[[]byte](t)(tr.Image(bound(t), built.Images[0].ID))
	m := must[device.Module](t)(s.dev.Load(data))
	t.Cleanup(func() { m.Close() })
	return must[device.Kernel](t)(m.Kernel(actor.Symbol))
}

func TestKernelsOverChannels(t *testing.T) {
	kernel := actorKernel(t, ranks(t, 1)[0])
	t.Run("memory", func(t *testing.T) { kernelsOverMemory(t, kernel) })
	t.Run("port", func(t *testing.T) { kernelsOverPort(t, kernel) })
}

func kernelsOverMemory(t *testing.T, kern device.Kernel) {
	a, b, ab, _ := pair(t, framework.KindMemory)
	sa, sb := newStage(t, a, kern), newStage(t, b, kern)
	theirs := b.alloc(8192) // the counter, then data
	recipe := must[framework.Attachment](t)(a.tr.Attach(bound(t), ab, 0, []framework.Parcel{b.register(theirs, 0, 8192).Key}))
	defer recipe.Close()
	recipe.Mappings[0].Shares = recipe.Mappings[0].Shares[1:] // as another process would
	mapped := must[device.Memory](t)(a.dev.Map(recipe.Mappings[0]))
	defer mapped.Close()

	src := a.alloc(4096)
	copy(device.Bytes(src)[10:], "put by a kernel")
	control := place(sa, kernel.WaitControl{})
	out := place(sa, kernel.MemoryChannelHandle{
		Semaphore: kernel.SemaphoreHandle{Inbound: place(sa, uint64(0)), Expected: place(sa, uint64(0)), Outbound: mapped.Addr(), Control: control, Peer: 1},
		Dst:       mapped.Addr() + 64, Src: src.Addr(),
	})
	if n := sa.act(actor.Args{Control: control, Memory: out},
		actor.Step{Op: actor.Put, Dst: 3, Src: 10, Bytes: 15}, actor.Step{Op: actor.Signal}); n != 2 {
		t.Fatalf("%d steps of 2", n)
	}
	control = place(sb, kernel.WaitControl{})
	in := place(sb, kernel.MemoryChannelHandle{
		Semaphore: kernel.SemaphoreHandle{Inbound: theirs.Addr(), Expected: place(sb, uint64(0)), Control: control},
	})
	if n := sb.act(actor.Args{Control: control, Memory: in}, actor.Step{Op: actor.Wait}); n != 1 {
		t.Fatal("the wait was left")
	}
	if got := string(device.Bytes(theirs)[67:82]); got != "put by a kernel" {
		t.Errorf("rank 1 sees %q", got)
	}
}

func kernelsOverPort(t *testing.T, kern device.Kernel) {
	p := newPort(t, 4096)
	sa, sb := newStage(t, p.a, kern), newStage(t, p.b, kern)
	control := place(sa, kernel.WaitControl{})
	port := place(sa, portHandle(sa, p.ring, control))
	copy(device.Bytes(p.src)[5:], "put by the proxy")
	const n = 40 // more than the ring has slots
	steps := []actor.Step{{Op: actor.PortPutWithSignalAndFlush, Dst: 7, Src: 5, Bytes: 16}}
	for range n {
		steps = append(steps, actor.Step{Op: actor.PortSignal})
	}
	if done := sa.act(actor.Args{Control: control, Port: port}, append(steps, actor.Step{Op: actor.PortFlush})...); done != n+2 {
		t.Fatalf("%d steps of %d", done, n+2)
	}
	if got := string(device.Bytes(p.dst)[7:23]); got != "put by the proxy" || p.count() != n+1 {
		t.Errorf("rank 1 sees %q and %d signals: expected %d", got, p.count(), n+1)
	}
	control = place(sb, kernel.WaitControl{})
	in := kernel.PortChannelHandle{Semaphore: kernel.SemaphoreHandle{Inbound: p.words.Addr(), Expected: place(sb, uint64(0)), Control: control}}
	if done := sb.act(actor.Args{Control: control, Port: place(sb, in)}, actor.Step{Op: actor.PortWait}, actor.Step{Op: actor.PortWait}); done != 2 {
		t.Errorf("%d waits of 2", done)
	}

	// A kernel wakes a proxy that sleeps.
	parks := p.proxy.(*proxy).loop.Stats().Parks
	for end := time.Now().Add(4 * time.Minute); p.proxy.(*proxy).loop.Stats().Parks == parks; time.Sleep(time.Millisecond) {
		if time.Now().After(end) {
			t.Fatal("the proxy never sleeps")
		}
	}
	control = place(sa, kernel.WaitControl{})
	if done := sa.act(actor.Args{Control: control, Port: port}, actor.Step{Op: actor.PortFlush}); done != 1 {
		t.Error("the flush was left")
	}

	// A trigger that makes no sense ends the proxy; a kernel that waits for it leaves.
	bad := portHandle(sa, p.ring, control)
	bad.DstMemory = 77
	if done := sa.act(actor.Args{Control: control, Port: place(sa, bad)}, actor.Step{Op: actor.PortPut, Bytes: 1}, actor.Step{Op: actor.PortFlush}); done != 1 {
		t.Errorf("%d steps: expected the put alone", done)
	}
	if err := p.proxy.Wait(bound(t)); framework.Class(err) != framework.ErrInvalid {
		t.Errorf("%v: expected ErrInvalid", err)
	}
	if done := sa.act(actor.Args{Control: control, Port: port}, actor.Step{Op: actor.PortSignal}); done != 0 {
		t.Error("a push to a dead proxy")
	}
}

func portHandle(s *stage, r *ring.Ring, control uintptr) kernel.PortChannelHandle {
	return kernel.PortChannelHandle{
		Semaphore: kernel.SemaphoreHandle{Inbound: place(s, uint64(0)), Expected: place(s, uint64(0)), Control: control, Peer: 1},
		Fifo:      r.Handle(control), FlushDone: r.FlushWord(0), DstMemory: 1, SrcMemory: 0, SemaphoreSlot: 0,
	}
}
