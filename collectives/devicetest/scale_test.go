package devicetest

import (
	"context"
	"encoding/binary"
	"errors"
	"fmt"
	"math"
	"strings"
	"testing"

	"github.com/mscclpp-go/mscclpp/collectives"
	"github.com/mscclpp-go/mscclpp/framework"
	"github.com/mscclpp-go/mscclpp/framework/device"
	"github.com/mscclpp-go/mscclpp/framework/device/cuda"
	"github.com/mscclpp-go/mscclpp/framework/kernel"
)

// scaled is a PreMulSum whose scalar is on the device, and differs between ranks: in a call made t-th, rank r
// multiplies by 10t + r. Inputs are 1, and the output of call t is put aside.
type scaled struct {
	*rank
	kind                collectives.Collective
	count               int
	scalar, in, out, to uintptr
}

func (s *scaled) call() error { return s.reduce(kernel.PreMulSum) }

func (s *scaled) reduce(op kernel.Op) error {
	o := &collectives.CallOptions{Stream: s.stream, ScaleAt: pointer(s.scalar), ScaleOnDevice: true}
	switch s.kind {
	case collectives.ReduceScatter:
		return s.ReduceScatter(pointer(s.in), pointer(s.out), s.count, kernel.Float32, op, o)
	case collectives.Reduce:
		return s.Reduce(pointer(s.in), pointer(s.out), s.count, kernel.Float32, op, 0, o)
	}
	return s.AllReduce(pointer(s.in), pointer(s.out), s.count, kernel.Float32, op, o)
}

// times has f make the call several times, and the scalar change before each and the output put aside behind it, by
// the stream alone: the host waits for none of them.
func (s *scaled) times(n int, f func() error) error {
	for t := range n {
		factor := math.Float32bits(float32(10*t + s.Rank()))
		if err := errors.Join(s.dev.Write(s.stream, s.scalar, uint64(factor)), f(), s.dev.Copy(s.stream, s.to+uintptr(4*s.count*t), s.out, uint64(4*s.count))); err != nil {
			return err
		}
	}
	return nil
}

func (s *scaled) check(ctx context.Context, n int) error {
	got := make([]byte, 4*s.count*n)
	if err := errors.Join(s.settle(ctx), s.dev.ReadAt(got, s.to)); err != nil || s.kind == collectives.Reduce && s.Rank() != 0 {
		return err
	}
	ranks := s.Size()
	for i := range s.count * n {
		want := float32(10*ranks*(i/s.count) + ranks*(ranks-1)/2)
		if v := math.Float32frombits(binary.LittleEndian.Uint32(got[4*i:])); v != want {
			return fmt.Errorf("%v of %d: element %d of call %d is %v: expected %v", s.kind, s.count, i%s.count, i/s.count, v, want)
		}
	}
	return nil
}

// eachScaled makes calls of all kinds and of several sizes.
func eachScaled(ctx context.Context, r *rank, f func(s *scaled) error) error {
	const most, calls = 20_000, 4
	n := uintptr(r.Size())
	m, err := r.memory(ctx, 256+uint64(4*most*(n+1+calls)))
	if err != nil {
		return err
	}
	ones := make([]byte, 0, 4*most*n)
	for range most * n {
		ones = binary.LittleEndian.AppendUint32(ones, math.Float32bits(1))
	}
	in := m.Addr() + 256
	if err := r.dev.WriteAt(ones, in); err != nil {
		return err
	}
	for _, kind := range []collectives.Collective{collectives.AllReduce, collectives.ReduceScatter, collectives.Reduce} {
		for _, count := range []int{3, 1000, most} {
			s := &scaled{r, kind, count, m.Addr(), in, in + 4*most*n, in + 4*most*(n+1)}
			if err := errors.Join(f(s), s.check(ctx, calls)); err != nil {
				return fmt.Errorf("%v of %d: %w", kind, count, err)
			}
		}
	}
	return r.world.Barrier(ctx) // no rank leaves while others wait for data of it
}

// A scalar on the device is read when its turn on the stream has come, on one host and on several.
func TestScaleOnDevice(t *testing.T) {
	for _, layout := range []string{"a", "aa", "aaa", "ab", "aab"} {
		t.Run(layout, func(t *testing.T) {
			hosts(t, strings.Split(layout, ""), collectives.Options{}, func(ctx context.Context, r *rank) error {
				return eachScaled(ctx, r, func(s *scaled) error { return s.times(4, s.call) })
			})
		})
	}
}

// Of a captured call it is read at each launch. The first PreMulSum of all may be a captured one, in any mode, once there
// was a sum.
func TestScaleOnDeviceInCaptures(t *testing.T) {
	for _, mode := range []cuda.CaptureMode{cuda.CaptureGlobal, cuda.CaptureThreadLocal, cuda.CaptureRelaxed} {
		t.Run(mode.String(), func(t *testing.T) {
			job(t, 3, collectives.Options{}, func(ctx context.Context, r *rank) error {
				return eachScaled(ctx, r, func(s *scaled) error {
					if err := errors.Join(s.reduce(kernel.Sum), r.settle(ctx), r.world.Barrier(ctx), r.dev.BeginCapture(r.stream, mode)); err != nil {
						return err
					}
					err := s.call()
					graph, ended := r.dev.EndCapture(r.stream)
					if err := errors.Join(err, ended); err != nil {
						return err
					}
					return errors.Join(s.times(4, func() error { return graph.Launch(r.stream) }), r.settle(ctx), graph.Close())
				})
			})
		})
	}
}

// Calls on two streams, which nobody else puts in an order, use the memory for products one after the other.
func TestScaledCallsOnSeveralStreams(t *testing.T) {
	const calls, count = 20, 30_000
	job(t, 2, collectives.Options{}, func(ctx context.Context, r *rank) error {
		second, err := r.dev.NewStream()
		if err != nil {
			return err
		}
		m, err := r.memory(ctx, 4*count*(2+calls))
		if err != nil {
			return err
		}
		ones := make([]byte, 0, 8*count)
		for range 2 * count {
			ones = binary.LittleEndian.AppendUint32(ones, math.Float32bits(1))
		}
		if err := r.dev.WriteAt(ones, m.Addr()); err != nil {
			return err
		}
		for i := range calls {
			o := &collectives.CallOptions{Stream: []device.Stream{r.stream, second}[i%2], Scale: float64(i + r.Rank())}
			out := m.Addr() + uintptr(4*count*(2+i))
			if err := r.ReduceScatter(pointer(m.Addr()), pointer(out), count, kernel.Float32, kernel.PreMulSum, o); err != nil {
				return err
			}
		}
		got := make([]byte, 4*count*calls)
		if err := errors.Join(r.settle(ctx), r.world.Settle(ctx, second), r.dev.CloseStream(second), r.dev.ReadAt(got, m.Addr()+8*count), r.world.Barrier(ctx)); err != nil {
			return err
		}
		for i := range count * calls {
			if v, want := math.Float32frombits(binary.LittleEndian.Uint32(got[4*i:])), float32(2*(i/count)+1); v != want {
				return fmt.Errorf("element %d of call %d is %v: expected %v", i%count, i/count, v, want)
			}
		}
		return nil
	})
}

// Every rank multiplies by its own scalar, in every algorithm of every reduction, launched and from graphs.
func TestScalesOfRanksDiffer(t *testing.T) {
	const half = 2 << 20
	for _, n := range []int{1, 2, 3} {
		t.Run(fmt.Sprint(n, " ranks"), func(t *testing.T) {
			job(t, n, collectives.Options{Signatures: collectives.SignaturesAlways}, func(ctx context.Context, r *rank) error {
				m, err := r.memory(ctx, 2*half)
				if err != nil {
					return err
				}
				i := 0
				for _, kind := range []collectives.Collective{collectives.AllReduce, collectives.ReduceScatter, collectives.Reduce} {
					served := map[string]bool{}
					for _, algorithm := range append(r.Algorithms(kind), "") {
						for _, count := range []int{63, 40_000} {
							i++
							x := trial{Kind: kind, Algorithm: algorithm, Count: count, Type: []kernel.DataType{kernel.Float16, kernel.Float32}[i/3%2],
								Op: kernel.PreMulSum, Root: i % n, InPlace: i/2%2 == 0, Shift: i % 3, Graph: count > 63}
							rig := r.rig(ctx, m.Addr(), half)
							if algorithm == "zerocopy" && kind != collectives.AllReduce { // products are not in exchanged memory
								served[algorithm] = true
								if err := wants(x.Run(rig, uint64(i)), framework.ErrInvalid, "registered", "products"); err != nil {
									return err
								}
								continue
							}
							took, err := attempt(r, rig, x, uint64(i))
							if err != nil {
								return err
							}
							served[algorithm] = served[algorithm] || took
						}
					}
					for _, algorithm := range r.Algorithms(kind) {
						if !served[algorithm] && algorithm != "stream_ll128" && algorithm != "chain_ll128" { // which have too little scratch here
							return fmt.Errorf("%v by %s was not tried", kind, algorithm)
						}
					}
				}
				return r.world.Barrier(ctx)
			})
		})
	}
}
