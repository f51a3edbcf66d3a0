package devicetest

import (
	"bytes"
	"context"
	"errors"
	"os"
	"testing"

	"github.com/mscclpp-go/mscclpp/collectives"
	"github.com/mscclpp-go/mscclpp/framework/kernel"
)

// The time that reductions of zeros, infinities and NaN take beyond those of ones. They are the
// operands for which a GPU's division is slow, and no other instruction of a kernel.
func TestCostOfData(t *testing.T) {
	gpus := needsGPU(t)
	if len(gpus) < 2 {
		t.Skipf("needs 2 GPUs, there are %d: ranks of one GPU take turns of any length", len(gpus))
	}
	sizes := []int64{small, 1 << 20, 4 << 20}
	if os.Getenv(costsFile) == "" {
		sizes = sizes[:1]
	}
	contents := []struct {
		of    string
		value string // an f16, little endian
	}{{"ones", "\x00\x3c"}, {"zeros", "\x00\x00"}, {"infinities", "\x00\x7c"}, {"NaN", "\x00\x7e"}}
	for _, size := range sizes {
		for _, op := range []kernel.Op{kernel.Sum, kernel.Max, kernel.Avg} {
			times := make([]slowest, len(contents))
			crowd(t, 2, costly(), func(ctx context.Context, r *rank) error {
				for i, c := range contents {
					took, err := reductions(ctx, r, op, bytes.Repeat([]byte(c.value), int(size/2)))
					if err != nil {
						return err
					}
					times[i].add(took)
				}
				return nil
			})
			if t.Failed() || times[0].most == 0 {
				return
			}
			ones := times[0].most
			for i, c := range contents[1:] {
				cost{Cost: "data", Ranks: 2, Device: deviceOf(t), Bytes: size, With: op.String() + " of " + c.of,
					TimeUS: times[i+1].most, AloneUS: ones, GoalUS: 0.02 * ones}.keep(t)
			}
		}
	}
}

// reductions returns what a call takes in a graph of them, in microseconds. Every rank reduces
// the same data.
func reductions(ctx context.Context, r *rank, op kernel.Op, data []byte) (float64, error) {
	calls := often(100, 4)
	in, err := r.dev.Alloc(uint64(len(data)))
	if err != nil {
		return 0, err
	}
	defer in.Close()
	out, err := r.dev.Alloc(uint64(len(data)))
	if err != nil {
		return 0, err
	}
	defer out.Close()
	call := func() error {
		return r.Reduce(pointer(in.Addr()), pointer(out.Addr()), len(data)/2, kernel.Float16, op, 0, &collectives.CallOptions{Stream: r.stream})
	}
	if err := errors.Join(r.dev.WriteAt(data, in.Addr()), r.world.Barrier(ctx), call(), r.settle(ctx)); err != nil {
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
	if err := errors.Join(replay(), r.settle(ctx)); err != nil {
		return 0, err
	}
	var times []float64
	for range often(20, 2) {
		took, err := c.time(ctx, r, r.stream, replay)
		if err != nil {
			return 0, err
		}
		times = append(times, took/float64(calls))
	}
	return median(times), nil
}
