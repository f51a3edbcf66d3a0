package devicetest

import (
	"context"
	"errors"
	"os"
	"testing"
	"time"

	"github.com/mscclpp-go/mscclpp/collectives"
	"github.com/mscclpp-go/mscclpp/framework/device"
)

// What calls that follow each other take longer if the root of a reduction began the first
// of them before the other rank did. A root that is ahead polls while data arrives, and one
// that is behind finds it there; calls right behind each other may keep the order in which
// they began, so one job may be slower than another for no visible reason.
func TestCostOfARootThatIsFirst(t *testing.T) {
	gpus, err := machine()
	if err != nil {
		t.Skipf("needs a GPU, or a compiler for an emulated one: %v", err)
	}
	if len(gpus) < 2 {
		t.Skipf("needs 2 GPUs, there are %d: kernels of one GPU begin in the order of its queue", len(gpus))
	}
	sizes := []int64{small, 1 << 20, 4 << 20}
	if os.Getenv(costsFile) == "" {
		sizes = sizes[:1]
	}
	for _, bytes := range sizes {
		var times [2]slowest // when rank 0, the root, is late, and when rank 1 is
		crowd(t, 2, costly(), func(ctx context.Context, r *rank) error {
			for late := range times {
				took, err := reductions(ctx, r, bytes, r.Rank() == late)
				if err != nil {
					return err
				}
				times[late].add(took)
			}
			return nil
		})
		if t.Failed() || times[0].most == 0 {
			return
		}
		cost{Cost: "root that is first", Ranks: 2, Device: deviceOf(t), Bytes: bytes, TimeUS: times[1].most, AloneUS: times[0].most}.keep(t)
	}
}

// reductions returns what a call takes, in microseconds, in the second of two graphs that
// follow each other. The first shows, with ranks that begin one after the other, which order
// lasts.
func reductions(ctx context.Context, r *rank, bytes int64, late bool) (float64, error) {
	const lateness = 500 * time.Microsecond // many times what ranks differ by otherwise
	calls := often(100, 4)
	in, err := r.dev.Alloc(uint64(bytes))
	if err != nil {
		return 0, err
	}
	defer in.Close()
	out, err := r.dev.Alloc(uint64(bytes))
	if err != nil {
		return 0, err
	}
	defer out.Close()
	call := func() error {
		return r.Reduce(pointer(in.Addr()), pointer(out.Addr()), int(bytes/2), device.Float16, device.Sum, 0, &collectives.CallOptions{Stream: r.stream})
	}
	if err := errors.Join(r.Prepare(collectives.Reduce, device.Float16), r.world.Barrier(ctx), call(), r.settle(ctx)); err != nil {
		return 0, err
	}
	graph, err := capture(r, func() error {
		for range calls {
			if err := call(); err != nil {
				return err
			}
		}
		return nil
	})
	if err != nil {
		return 0, err
	}
	defer graph.Close()
	c, err := newClock(r.dev)
	if err != nil {
		return 0, err
	}
	defer c.close()
	replay := func() error { return graph.Launch(r.stream) }
	var times []float64
	for range often(20, 2) {
		if err := r.world.Barrier(ctx); err != nil {
			return 0, err
		}
		for start := time.Now(); late && time.Since(start) < lateness; {
		}
		if err := replay(); err != nil {
			return 0, err
		}
		took, err := c.time(ctx, r, r.stream, replay)
		if err != nil {
			return 0, err
		}
		times = append(times, took/float64(calls))
	}
	return median(times), nil
}
