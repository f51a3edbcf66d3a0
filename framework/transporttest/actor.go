package transporttest

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
// the Go code of this package alone plays the kernel.
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
			// What is wrong with an image is for control/images to say.
			if image, err := imager.Image(ctx, i.ID); err == nil {
				return image, nil
			}
		}
	}
	return nil, nil
}

// stage is where the actor of one rank plays: a loaded kernel, its wait control, and
// memory for arguments.
type stage struct {
	*rank
	kernel  device.Kernel
	props   *buffer
	used    uint64
	control uintptr
}

func (r *rank) stage() *stage {
	t := r.t
	module, err := r.device.Load(t.claims.actor)
	if err != nil {
		t.Fatalf("rank %d: load the actor: %v", r.n, err)
	}
	t.Cleanup(func() { _ = module.Close() })
	kern, err := module.Kernel(actor.Symbol)
	if err != nil {
		t.Fatalf("rank %d: %v", r.n, err)
	}
	s := &stage{rank: r, kernel: kern, props: r.alloc(1 << 20)}
	s.control = prop(s, kernel.WaitControl{})
	return s
}

// prop puts values where kernels find them and returns their address.
func prop[P any](s *stage, values ...P) uintptr {
	var one P
	bytes := uint64(unsafe.Sizeof(one)) * uint64(len(values))
	at := s.used
	if s.used += (bytes + 127) &^ 127; s.used > uint64(len(s.props.bytes)) {
		s.t.Fatalf("the stage is full")
	}
	if len(values) > 0 {
		copy(unsafe.Slice((*P)(unsafe.Pointer(&s.props.bytes[at])), len(values)), values)
	}
	return s.props.mem.Addr() + uintptr(at)
}

// semaphore is a handle whose counter is the word at inbound, and whose signals
// raise the word at outbound.
func (s *stage) semaphore(inbound, outbound uintptr, peer int) kernel.SemaphoreHandle {
	return kernel.SemaphoreHandle{
		Inbound: inbound, Expected: prop(s, uint64(0)), Outbound: outbound, Control: s.control, Peer: uint32(peer), ID: 42,
	}
}

// performance is one launch of the actor.
type performance struct {
	done   uint64 // steps that were completed
	failed bool   // a wait was left
}

// play launches the actor on the steps and returns when the kernel has.
func (s *stage) play(a actor.Args, steps ...actor.Step) performance {
	mark := s.used
	a.Control, a.Grid, a.Kernel = s.control, prop(s, kernel.GridBarrier{}), 7
	a.Steps, a.Count = prop(s, steps...), uint32(len(steps))
	a.Done, a.Failed = prop(s, uint64(0)), prop(s, uint32(0))
	runtime.LockOSThread()
	defer runtime.UnlockOSThread()
	if err := s.kernel.Launch(device.Launch{Grid: 1, Block: 1}, unsafe.Pointer(&a), unsafe.Sizeof(a)); err != nil {
		s.t.Fatalf("rank %d: launch: %v", s.n, err)
	}
	p := performance{done: *(*uint64)(pointer(a.Done)), failed: *(*uint32)(pointer(a.Failed)) != 0}
	s.used = mark
	return p
}

// plays is play that has to complete every step.
func (s *stage) plays(a actor.Args, steps ...actor.Step) {
	if p := s.play(a, steps...); p.failed || p.done != uint64(len(steps)) {
		report := (*kernel.WaitControl)(pointer(s.control))
		s.t.Fatalf("rank %d: the kernel completed %d of %d steps; its report: channel %d, peer %d, expected %d, seen %d",
			s.n, p.done, len(steps), report.Channel, report.Peer, report.Expected, report.Seen)
	}
}

// abort makes the rank's kernels leave every wait.
func (s *stage) abort() { atomic.StoreUint32(&(*kernel.WaitControl)(pointer(s.control)).Abort, 1) }

// curtain aborts the kernels when the time of the test is over: a lost signal must
// not leave a kernel spinning.
func (t *T) curtain(stages ...*stage) (lift func()) {
	stop := context.AfterFunc(t.ctx, func() {
		for _, s := range stages {
			s.abort()
		}
	})
	return func() { stop() }
}

// repeat lists the steps n times.
func repeat(n int, steps ...actor.Step) []actor.Step {
	all := make([]actor.Step, 0, n*len(steps))
	for range n {
		all = append(all, steps...)
	}
	return all
}
