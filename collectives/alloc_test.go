package collectives_test

import (
	"context"
	"fmt"
	"math"
	"runtime"
	"testing"
	"unsafe"

	"github.com/mscclpp-go/mscclpp/collectives"
	"github.com/mscclpp-go/mscclpp/framework/kernel"
)

// Once an algorithm was used, a call allocates nothing.
func TestCallsDoNotAllocate(t *testing.T) {
	job(t, 1, collectives.Options{}, func(ctx context.Context, c *collectives.Comm) error {
		b := make([]float32, 4096)
		p := unsafe.Pointer(unsafe.SliceData(b))
		o := &collectives.CallOptions{}
		for name, call := range map[string]func() error{
			"allreduce": func() error { return c.AllReduce(p, p, 1024, kernel.Float32, kernel.Sum, nil) },
			"allgather": func() error { return c.AllGather(p, p, 1024, kernel.Float32, o) },
			"sendrecv": func() error {
				c.GroupStart()
				if err := c.Send(p, 10, kernel.Float32, 0, nil); err != nil {
					return err
				}
				if err := c.Recv(unsafe.Add(p, 4096), 10, kernel.Float32, 0, nil); err != nil {
					return err
				}
				return c.GroupEnd()
			},
		} {
			if err := call(); err != nil {
				return err
			}
			var err error
			if n := testing.AllocsPerRun(100, func() {
				if e := call(); e != nil {
					err = e
				}
			}); n != 0 || err != nil {
				return fmt.Errorf("%s: %v allocations a call, error %v", name, n, err)
			}
		}
		return nil
	})
}

// Nor does one between ranks, which compares afterwards the calls that they announced. Both
// ranks allocate in one heap, so what each call of either allocated would show.
func TestCallsBetweenRanksDoNotAllocate(t *testing.T) {
	const rounds, calls = 5, 200
	job(t, 2, collectives.Options{}, func(ctx context.Context, c *collectives.Comm) error {
		b := make([]float32, 1024)
		p := unsafe.Pointer(unsafe.SliceData(b))
		least := uint64(math.MaxUint64) // the runtime and what watches over a job allocate now and then: more, the longer a round takes
		for round := range rounds + 1 {
			var before, after runtime.MemStats
			runtime.ReadMemStats(&before)
			for range calls {
				if err := c.AllReduce(p, p, 16, kernel.Float32, kernel.Max, nil); err != nil {
					return err
				}
			}
			runtime.ReadMemStats(&after)
			if round > 0 { // the first one prepares
				least = min(least, after.Mallocs-before.Mallocs)
			}
		}
		if least > calls/4 {
			return fmt.Errorf("%d allocations in %d calls of each rank, expected none but the runtime's own", least, calls)
		}
		return nil
	})
}

func BenchmarkAllReduce(b *testing.B) {
	for _, n := range []int{1, 2} {
		for _, bytes := range []int{1 << 10, 64 << 10, 1 << 20} {
			b.Run(fmt.Sprintf("%d ranks/%d", n, bytes), func(b *testing.B) {
				b.SetBytes(int64(bytes))
				job(b, n, collectives.Options{}, func(ctx context.Context, c *collectives.Comm) error {
					runtime.LockOSThread()
					in, out := make([]float32, bytes/4), make([]float32, bytes/4)
					p, q := unsafe.Pointer(unsafe.SliceData(in)), unsafe.Pointer(unsafe.SliceData(out))
					for range b.N {
						if err := c.AllReduce(p, q, bytes/4, kernel.Float32, kernel.Sum, nil); err != nil {
							return err
						}
					}
					return nil
				})
			})
		}
	}
}
