package ring

import (
	"context"
	"errors"
	"sync/atomic"
	"testing"
	"time"
	"unsafe"

	"github.com/mscclpp-go/mscclpp/framework"
	"github.com/mscclpp-go/mscclpp/framework/kernel"
)

// Kernels of a device see the ring of the host at another address; their counters are
// elsewhere.
func TestHandleOnADevice(t *testing.T) {
	p, _ := pair(t, 8)
	const far, counters = 1 << 52, 77 << 40
	control := new(kernel.WaitControl)
	here := p.Handle(uintptr(unsafe.Pointer(control)))
	there := p.HandleOn(View{Base: uintptr(p.mem.Addr()) + far, Counters: counters, Control: 5})
	want := kernel.FifoHandle{
		Triggers: here.Triggers + far, Head: counters, Tail: here.Tail + far, TailCache: counters + 8,
		Error: here.Error + far, Parked: 0, Control: 5, Mask: here.Mask, Shift: here.Shift,
	}
	if there != want {
		t.Errorf("%+v: expected %+v", there, want)
	}
	if got := FlushWordOn(uintptr(p.mem.Addr())+far, 9); got != p.FlushWord(9)+far {
		t.Errorf("flush word at %#x: expected %#x", got, p.FlushWord(9)+far)
	}
	if p.Bytes() != kernel.RingTriggers+8*16 || p.Bytes() != p.mem.Len() {
		t.Errorf("%d bytes", p.Bytes())
	}
}

// kernelPush pushes as kernels of a device do: the ring's own head knows nothing of it.
func kernelPush(r *Ring, head *uint64) {
	pos := *head
	*head++
	s := r.slot(pos)
	atomic.StoreUint64(&s.Snd, pos|r.commit(pos))
}

func TestDepthCountsWhatKernelsPush(t *testing.T) {
	p, c := pair(t, 4)
	head := uint64(0)
	for lap := range uint64(5) {
		for n := range uint64(4) {
			if got := p.Depth(); got != n {
				t.Fatalf("lap %d: depth %d, expected %d", lap, got, n)
			}
			kernelPush(p, &head)
		}
		if got := p.Depth(); got != 4 {
			t.Fatalf("lap %d: depth %d of a full ring of 4", lap, got)
		}
		for range 4 {
			pull(t, c)
		}
	}
	if p.Tail() != 20 {
		t.Errorf("tail %d, expected 20", p.Tail())
	}
}

func TestWaitTaken(t *testing.T) {
	p, c := pair(t, 4)
	ctx := deadline(t, 4*time.Minute)
	if err := p.WaitTaken(ctx); err != nil {
		t.Fatalf("nothing was pushed: %v", err)
	}
	head := uint64(0)
	for range 3 {
		kernelPush(p, &head)
	}
	short, cancel := context.WithTimeout(ctx, time.Millisecond)
	defer cancel()
	if err := p.WaitTaken(short); !errors.Is(err, context.DeadlineExceeded) {
		t.Errorf("nobody takes anything: %v", err)
	}
	taken := make(chan error, 1)
	go func() { taken <- p.WaitTaken(ctx) }()
	for range 3 {
		pull(t, c)
	}
	if err := <-taken; err != nil {
		t.Error(err)
	}
	// A ring that is never empty: all that was there before is gone after a lap.
	kernelPush(p, &head)
	go func() { taken <- p.WaitTaken(ctx) }()
	for busy := true; busy; {
		kernelPush(p, &head)
		pull(t, c)
		select {
		case err := <-taken:
			if busy = false; err != nil {
				t.Error(err)
			}
		default:
		}
	}
	c.Fail(framework.ErrPeer)
	if err := p.WaitTaken(ctx); !errors.Is(err, framework.ErrPeer) {
		t.Errorf("a proxy that died with one trigger in the ring: %v", err)
	}
}
