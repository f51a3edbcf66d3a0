package devicetest

import (
	"context"
	"errors"
	"fmt"
	"runtime"
	"slices"
	"sync"
	"testing"
	"unsafe"

	"github.com/mscclpp-go/mscclpp/collectives"
	"github.com/mscclpp-go/mscclpp/framework"
	"github.com/mscclpp-go/mscclpp/framework/bootstrap"
	"github.com/mscclpp-go/mscclpp/framework/comm"
	"github.com/mscclpp-go/mscclpp/framework/device"
	"github.com/mscclpp-go/mscclpp/framework/device/devicetest"
	"github.com/mscclpp-go/mscclpp/framework/kernel"
	"github.com/mscclpp-go/mscclpp/framework/transporttest/loopback"
	"github.com/mscclpp-go/mscclpp/transports/cudaipc"
)

// idle is a GPU without hardware whose kernels do nothing: a call on it takes nothing but the host's own time.
type idle struct{ *devicetest.Device }

func (d idle) Info() device.Info {
	i := d.Device.Info()
	i.Name, i.Archs, i.SMs = "NVIDIA H200", []string{"sm_90"}, 132
	return i
}

func (idle) Load([]byte) (device.Module, error) { return idleModule{}, nil }

// idleModule is an image, and all of its kernels.
type idleModule struct{}

func (m idleModule) Kernel(string) (device.Kernel, error)              { return m, nil }
func (idleModule) Launch(device.Launch, unsafe.Pointer, uintptr) error { return nil }
func (idleModule) Close() error                                        { return nil }

// carrier is a transport between idle GPUs, with the kernels of cudaipc.
type carrier struct {
	framework.Transport
	kernels framework.Description
}

func newCarrier(ctx context.Context) (carrier, error) {
	t, err := cudaipc.New(cudaipc.Config{}.Defaults())
	if err != nil {
		return carrier{}, err
	}
	d, err := t.Describe(ctx)
	for i := range d.Images {
		d.Images[i].SHA256 = "" // there is nothing in them
	}
	return carrier{loopback.NewByRank(), d}, err
}

func (c carrier) Describe(ctx context.Context) (framework.Description, error) {
	d, err := c.Transport.Describe(ctx)
	d.Kernels, d.Images = c.kernels.Kernels, c.kernels.Images
	return d, err
}

func (carrier) Image(context.Context, string) ([]byte, error) { return nil, nil }

// eager are calls of rank 0 of two ranks with idle GPUs, of 1 KiB in exchanged memory.
func eager(t testing.TB, f func(calls map[string]func() error) error) {
	t.Helper()
	ctx, cancel := context.WithTimeout(t.Context(), patience)
	defer cancel()
	var ranks sync.WaitGroup
	for r, boot := range bootstrap.InProcess(2) {
		ranks.Go(func() {
			defer boot.Close()
			if err := eagerRank(ctx, boot, f); err != nil {
				t.Errorf("rank %d: %v", r, err)
			}
		})
	}
	ranks.Wait()
}

func eagerRank(ctx context.Context, boot framework.Bootstrap, f func(map[string]func() error) error) (err error) {
	fake, err := devicetest.Open(boot.Rank())
	if err != nil {
		return err
	}
	defer fake.Close()
	inner, err := newCarrier(ctx)
	if err != nil {
		return err
	}
	carried, err := comm.NewTransport(ctx, inner, "embedded")
	if err != nil {
		return err
	}
	world, err := comm.New(ctx, boot, comm.Options{Device: idle{fake}, Transports: []*comm.Transport{carried}})
	if err != nil {
		return err
	}
	defer func() { err = errors.Join(err, world.Close()) }()
	c, err := collectives.New(ctx, world, collectives.Options{Scratch: 24 << 20})
	if err != nil {
		return err
	}
	defer func() { err = errors.Join(err, c.Close()) }()
	m, err := world.Alloc(1 << 20)
	if err == nil {
		_, err = world.Exchange(ctx, m)
	}
	s, failed := fake.NewStream()
	if err = errors.Join(err, failed); err == nil && boot.Rank() == 0 {
		err = f(eagerCalls(c, m.Addr(), s))
	}
	if err != nil {
		world.Abort(err)
		return err
	}
	return world.Barrier(ctx)
}

func eagerCalls(c *collectives.Comm, at uintptr, s device.Stream) map[string]func() error {
	const count = small / 2 // of halves
	in, out, o := pointer(at), pointer(at+1<<19), &collectives.CallOptions{Stream: s}
	return map[string]func() error{
		"allreduce":     func() error { return c.AllReduce(in, out, count, kernel.Float16, kernel.Sum, o) },
		"allgather":     func() error { return c.AllGather(in, out, count/2, kernel.Float16, o) },
		"reducescatter": func() error { return c.ReduceScatter(in, out, count/2, kernel.Float16, kernel.Sum, o) },
		"alltoall":      func() error { return c.AllToAll(in, out, count/2, kernel.Float16, o) },
		"broadcast":     func() error { return c.Broadcast(in, out, count, kernel.Float16, 0, o) },
		"reduce":        func() error { return c.Reduce(in, out, count, kernel.Float16, kernel.Sum, 0, o) },
		"barrier":       func() error { return c.Barrier(o) },
	}
}

// A call on a GPU allocates nothing, once its kernel is loaded.
func TestEagerCallsDoNotAllocate(t *testing.T) {
	eager(t, func(calls map[string]func() error) error {
		for name, call := range calls {
			err := call()
			if n := testing.AllocsPerRun(1000, func() {
				if e := call(); err == nil {
					err = e
				}
			}); n != 0 || err != nil {
				return fmt.Errorf("%s: %v allocations a call, error %v", name, n, err)
			}
		}
		return nil
	})
}

// BenchmarkEagerCall is the host's time of a call without that of the driver. On a machine that does other things as
// well, compare min-ns: the mean of the shortest of many batches.
func BenchmarkEagerCall(b *testing.B) {
	const batch = 200
	for _, name := range []string{"allreduce", "allgather", "reducescatter", "alltoall", "broadcast", "reduce", "barrier"} {
		b.Run(name, func(b *testing.B) {
			eager(b, func(calls map[string]func() error) error {
				runtime.LockOSThread()
				defer runtime.UnlockOSThread()
				if err := calls[name](); err != nil {
					return err
				}
				b.ReportAllocs()
				b.ResetTimer()
				var times []float64
				for left := b.N; left > 0; left -= batch {
					us, err := hostTime(calls[name], min(batch, left))
					if err != nil {
						return err
					}
					times = append(times, 1000*us)
				}
				b.StopTimer()
				b.ReportMetric(slices.Min(times), "min-ns")
				b.ReportMetric(median(times), "median-ns")
				return nil
			})
		})
	}
}
