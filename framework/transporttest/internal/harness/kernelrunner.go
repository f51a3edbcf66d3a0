package harness

import (
	"context"
	"runtime"
	"sync/atomic"
	"unsafe"

	"github.com/mscclpp-go/mscclpp/framework"
	"github.com/mscclpp-go/mscclpp/framework/device"
	"github.com/mscclpp-go/mscclpp/framework/kernel"
	"github.com/mscclpp-go/mscclpp/framework/kernel/actor"
)

// actorFamily is the family of the images that hold the actor kernel. A transport
// that carries one for the device at hand is tested with kernels too; without it
// the Go code of the tests alone takes the place of the kernel.
const actorFamily = "actor"

// findActor looks for an actor image that the device can load and that is built.
func findActor(ctx context.Context, o Options, t framework.Transport, d framework.Description) (image []byte, err error) {
	imager, ok := t.(framework.Imager)
	if !ok || len(d.Images) == 0 {
		return nil, nil
	}
	dev, err := o.Device(0)
	if err != nil {
		return nil, err
	}
	defer dev.Close()
	for _, arch := range dev.Info().Archs {
		for _, i := range d.Images {
			if i.Family != actorFamily || i.Arch != arch || i.ABI != kernel.ABI {
				continue
			}
			// The faults of an image are for control/images to report.
			if image, err := imager.Image(ctx, i.ID); err == nil {
				return image, nil
			}
		}
	}
	return nil, nil
}

// KernelRunner runs the actor kernel for one rank: the loaded kernel, its wait control, and
// memory for arguments.
type KernelRunner struct {
	*Rank
	kernel  device.Kernel
	memory  *Buffer
	used    uint64
	Control uintptr
}

// KernelRunner loads the actor until the end of the test.
func (r *Rank) KernelRunner() *KernelRunner {
	t := r.T
	module, err := r.Device.Load(t.Claims.Actor)
	if err != nil {
		t.Fatalf("rank %d: load the actor: %v", r.N, err)
	}
	t.Cleanup(func() { _ = module.Close() })
	kern, err := module.Kernel(actor.Symbol)
	if err != nil {
		t.Fatalf("rank %d: %v", r.N, err)
	}
	s := &KernelRunner{Rank: r, kernel: kern, memory: r.Alloc(1 << 20)}
	s.Control = Place(s, kernel.WaitControl{})
	return s
}

// Place puts values where kernels find them and returns their address.
func Place[P any](s *KernelRunner, values ...P) uintptr {
	var one P
	bytes := uint64(unsafe.Sizeof(one)) * uint64(len(values))
	at := s.used
	if s.used += (bytes + 127) &^ 127; s.used > uint64(len(s.memory.Bytes)) {
		s.T.Fatalf("the memory for arguments is full")
	}
	if len(values) > 0 {
		copy(unsafe.Slice((*P)(unsafe.Pointer(&s.memory.Bytes[at])), len(values)), values)
	}
	return s.memory.Mem.Addr() + uintptr(at)
}

// Semaphore is a handle whose counter is the word at inbound, and whose signals
// raise the word at outbound.
func (s *KernelRunner) Semaphore(inbound, outbound uintptr, peer int) kernel.SemaphoreHandle {
	return kernel.SemaphoreHandle{
		Inbound: inbound, Expected: Place(s, uint64(0)), Outbound: outbound, Control: s.Control, Peer: uint32(peer), ID: 42,
	}
}

// Outcome is what became of one launch of the actor.
type Outcome struct {
	Done   uint64 // steps that were completed
	Failed bool   // a wait was left
}

// Run launches the actor on the steps and returns when the kernel has.
func (s *KernelRunner) Run(a actor.Args, steps ...actor.Step) Outcome {
	mark := s.used
	a.Control, a.Grid, a.Kernel = s.Control, Place(s, kernel.GridBarrier{}), 7
	a.Steps, a.Count = Place(s, steps...), uint32(len(steps))
	a.Done, a.Failed = Place(s, uint64(0)), Place(s, uint32(0))
	runtime.LockOSThread()
	defer runtime.UnlockOSThread()
	if err := s.kernel.Launch(device.Launch{Grid: 1, Block: 1}, unsafe.Pointer(&a), unsafe.Sizeof(a)); err != nil {
		s.T.Fatalf("rank %d: launch: %v", s.N, err)
	}
	p := Outcome{Done: *(*uint64)(Pointer(a.Done)), Failed: *(*uint32)(Pointer(a.Failed)) != 0}
	s.used = mark
	return p
}

// RunAll is Run that has to complete every step.
func (s *KernelRunner) RunAll(a actor.Args, steps ...actor.Step) {
	if p := s.Run(a, steps...); p.Failed || p.Done != uint64(len(steps)) {
		report := (*kernel.WaitControl)(Pointer(s.Control))
		s.T.Fatalf("rank %d: the kernel completed %d of %d steps; its report: channel %d, peer %d, expected %d, seen %d",
			s.N, p.Done, len(steps), report.Channel, report.Peer, report.Expected, report.Seen)
	}
}

// Abort makes the rank's kernels leave every wait.
func (s *KernelRunner) Abort() {
	atomic.StoreUint32(&(*kernel.WaitControl)(Pointer(s.Control)).Abort, 1)
}

// AbortAtEnd aborts the kernels when the time of the test is over: a lost signal must
// not leave a kernel spinning.
func (t *T) AbortAtEnd(runners ...*KernelRunner) (stop func()) {
	cancel := context.AfterFunc(t.ctx, func() {
		for _, s := range runners {
			s.Abort()
		}
	})
	return func() { cancel() }
}

// Repeat lists the steps n times.
func Repeat(n int, steps ...actor.Step) []actor.Step {
	all := make([]actor.Step, 0, n*len(steps))
	for range n {
		all = append(all, steps...)
	}
	return all
}
