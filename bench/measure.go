package bench

import (
	"context"
	"encoding/binary"
	"fmt"
	"math"
	"runtime"
	"time"

	"github.com/mscclpp-go/mscclpp/bench/stats"
)

// Plan is how often a point is run.
type Plan struct {
	Warmup     int // untimed iterations
	Iterations int // timed iterations, one sample each
	Calls      int // calls back to back in an iteration
}

// DefaultPlan makes an iteration long against the noise of its barrier and clock
// (1 MiB of traffic, at most 64 calls), and a point long enough for a stable median.
func DefaultPlan(bytes int64) Plan {
	p := Plan{Warmup: 5, Calls: int(min(max((1<<20)/max(bytes, 1), 1), 64))}
	switch {
	case bytes <= 64<<10:
		p.Iterations = 200
	case bytes <= 1<<20:
		p.Iterations = 100
	default:
		p.Iterations = 20
	}
	return p
}

// Measure returns the slowest rank's median time of one call, in microseconds. Every
// rank calls it with the same plan and receives the same result.
func Measure(ctx context.Context, g Group, c *Call, p Plan) (float64, error) {
	samples := make([]float64, p.Iterations)
	runtime.GC() // now, and not in the middle: the loop itself allocates nothing
	if err := sample(ctx, g, c, p, samples); err != nil {
		return 0, err
	}
	return slowest(ctx, g, stats.Median(samples))
}

func sample(ctx context.Context, g Group, c *Call, p Plan, samples []float64) error {
	runtime.LockOSThread()
	defer runtime.UnlockOSThread()
	for i := -p.Warmup; i < p.Iterations; i++ {
		if err := ctx.Err(); err != nil {
			return context.Cause(ctx)
		}
		if err := g.Barrier(); err != nil {
			return fmt.Errorf("barrier before iteration %d: %w", i, err)
		}
		start := time.Now()
		for range p.Calls {
			if err := g.Do(c); err != nil {
				return err
			}
		}
		took := time.Since(start)
		if i >= 0 {
			samples[i] = float64(took.Nanoseconds()) / 1e3 / float64(p.Calls)
		}
	}
	return nil
}

// slowest exchanges the ranks' medians.
func slowest(ctx context.Context, g Group, mine float64) (float64, error) {
	all, err := g.AllGather(ctx, binary.LittleEndian.AppendUint64(nil, math.Float64bits(mine)))
	if err != nil {
		return 0, fmt.Errorf("exchange of times: %w", err)
	}
	times := make([]float64, len(all))
	for r, b := range all {
		if len(b) != 8 {
			return 0, fmt.Errorf("exchange of times: rank %d sent %d bytes, expected 8", r, len(b))
		}
		times[r] = math.Float64frombits(binary.LittleEndian.Uint64(b))
	}
	return stats.Slowest(times), nil
}

// total adds up a count over the ranks.
func total(ctx context.Context, g Group, mine int64) (int64, error) {
	all, err := g.AllGather(ctx, binary.LittleEndian.AppendUint64(nil, uint64(mine)))
	if err != nil {
		return 0, fmt.Errorf("exchange of error counts: %w", err)
	}
	sum := int64(0)
	for r, b := range all {
		if len(b) != 8 {
			return 0, fmt.Errorf("exchange of error counts: rank %d sent %d bytes, expected 8", r, len(b))
		}
		sum += int64(binary.LittleEndian.Uint64(b))
	}
	return sum, nil
}
