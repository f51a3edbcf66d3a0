package devicetest

import (
	"context"
	"encoding/binary"
	"errors"
	"fmt"
	"math"
	"testing"

	"github.com/mscclpp-go/mscclpp/collectives"
	"github.com/mscclpp-go/mscclpp/framework/device/cuda"
	"github.com/mscclpp-go/mscclpp/framework/kernel"
)

// Sums inside one host are captured in each mode as they are launched: a graph of each
// algorithm doubles or triples what is there, each time that it is launched.
func TestCapturesInAllModes(t *testing.T) {
	const count, launches = 500, 3
	for _, n := range []int{2, 3} {
		t.Run(fmt.Sprint(n, " ranks"), func(t *testing.T) {
			job(t, n, collectives.Options{}, func(ctx context.Context, r *rank) error {
				m, err := r.memory(ctx, 1<<20)
				if err != nil {
					return err
				}
				ones := make([]byte, 4*count)
				reference.Fill(ones, kernel.Float32, kernel.Sum, 11, 0, 0)
				for _, algorithm := range []string{"oneshot_ll8", "oneshot_ll128", "twoshot_ll128", "zerocopy", "copy", "copy_staged"} {
					call := func() error { return sums(r, m.Addr(), count, algorithm) }
					if err := errors.Join(call(), r.settle(ctx)); err != nil { // loads the kernel
						return fmt.Errorf("%s: %w", algorithm, err)
					}
					for _, mode := range []cuda.CaptureMode{cuda.CaptureGlobal, cuda.CaptureThreadLocal, cuda.CaptureRelaxed} {
						if err := errors.Join(r.dev.WriteAt(ones, m.Addr()), replayed(ctx, r, mode, call)); err != nil {
							return fmt.Errorf("%s, mode %v: %w", algorithm, mode, err)
						}
						want := ones
						for range launches { // as many as replayed makes
							parts := make([][]byte, n)
							for p := range parts {
								parts[p] = want
							}
							want = make([]byte, 4*count)
							reference.Reduce(want, parts, kernel.Float32, kernel.Sum, 0)
						}
						got := make([]byte, 4*count)
						if err := r.dev.ReadAt(got, m.Addr()); err != nil {
							return err
						}
						if wrong := reference.Wrong(got, want, kernel.Float32, kernel.Sum, n); wrong != 0 {
							return fmt.Errorf("%s, mode %v: %d wrong elements of %d", algorithm, mode, wrong, count)
						}
					}
				}
				return r.Check()
			})
		})
	}
}

// One graph is launched two thousand times, one launch right behind the other. Rank 0
// gives what it has and rank 1 gives one, then rank 0 takes the sum for what it has: a
// launch that took data of an earlier one would leave another number.
func TestManyReplays(t *testing.T) {
	const replays, count = 2000, 32
	job(t, 2, collectives.Options{}, func(ctx context.Context, r *rank) error {
		m, err := r.memory(ctx, 1<<16)
		if err != nil {
			return err
		}
		own, other, total := m.Addr(), m.Addr()+4096, m.Addr()+8192
		add := func(in, out uintptr, algorithm string) error {
			x := trial{Kind: collectives.AllReduce, Algorithm: algorithm, Count: count, Type: kernel.Float32, Op: kernel.Sum}
			return x.Call(r.Comm, pointer(in), pointer(out), r.stream)
		}
		calls := func() error {
			if r.Rank() == 0 {
				return errors.Join(add(own, total, "oneshot_ll8"), add(total, own, "oneshot_ll128"))
			}
			return errors.Join(add(own, total, "oneshot_ll8"), add(other, total, "oneshot_ll128"))
		}
		numbers := func(from float32) []byte {
			b := make([]byte, 0, 4*count)
			for i := range count {
				b = binary.LittleEndian.AppendUint32(b, math.Float32bits(from+float32(i*r.Rank())))
			}
			return b
		}
		if err := errors.Join(r.dev.WriteAt(numbers(float32(r.Rank())), own), r.dev.WriteAt(make([]byte, 4*count), other), calls(), r.settle(ctx)); err != nil {
			return err
		}
		graph, err := capture(r, calls)
		if err != nil {
			return err
		}
		defer graph.Close()
		for i := range replays {
			if err := graph.Launch(r.stream); err != nil {
				return fmt.Errorf("launch %d: %w", i, err)
			}
		}
		got := make([]byte, 4*count)
		if err := errors.Join(r.settle(ctx), r.Check(), r.dev.ReadAt(got, total)); err != nil {
			return err
		}
		for i := range count { // rank 1 gives 1, 2, 3 and so on
			if have, want := math.Float32frombits(binary.LittleEndian.Uint32(got[4*i:])), float32((replays+1)*(i+1)); have != want {
				return fmt.Errorf("element %d is %v after %d launches: expected %v", i, have, replays, want)
			}
		}
		return nil
	})
}
