package bench

import (
	"context"
	"encoding/binary"
	"errors"
	"fmt"
	"math"
	"runtime"
	"slices"
	"time"

	"github.com/mscclpp-go/mscclpp/bench/stats"
)

// Plan says how often the calls of one size are run.
type Plan struct {
	Warmup     int  // untimed iterations
	Iterations int  // timed iterations, one sample each
	Calls      int  // calls back to back in an iteration
	Graph      bool // the calls of an iteration are one graph, recorded before
	Fastest    bool // the time is that of the fastest iteration, not the median: for machines with other work
}

// of is the time of a point, given its samples.
func (p Plan) of(samples []float64) float64 {
	if p.Fastest {
		return slices.Min(samples)
	}
	return stats.Median(samples)
}

// DefaultPlan makes an iteration long in comparison with the noise of its barrier and
// clock (1 MiB of traffic, at most 64 calls), and the number of iterations large enough
// for a stable median.
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

// GraphPlan is the default if the calls of an iteration are a graph: as many calls as
// requested, but fewer if each takes a millisecond, since then one more or less makes
// no visible difference to the time of the others.
func GraphPlan(bytes int64, calls int) Plan {
	p := DefaultPlan(bytes)
	p.Graph, p.Calls = true, calls
	if bytes > 32<<20 {
		p.Calls = min(calls, int(max(2, (512<<20)/bytes)))
		p.Warmup, p.Iterations = 2, 9
	}
	return p
}

// rounds is in how many parts a point is measured when there is a peer to compare
// with: the two take turns, so that what changes with time meets both.
const rounds = 3

// Measure returns the slowest rank's median time of one call, in microseconds. Every
// rank calls it with the same plan and receives the same result.
func Measure(ctx context.Context, g Group, c *Call, p Plan) (float64, error) {
	runs, err := measure(ctx, g, c, p, repeated(g.Do))
	if err != nil {
		return 0, err
	}
	return runs[0], nil
}

// library performs a call n times.
type library func(c *Call, n int) error

func repeated(do func(*Call) error) library {
	return func(c *Call, n int) error {
		for range n {
			if err := do(c); err != nil {
				return err
			}
		}
		return nil
	}
}

// measure times a call as each of several libraries performs it, in turns.
func measure(ctx context.Context, g Group, c *Call, p Plan, libraries ...library) ([]float64, error) {
	turns := 1
	if len(libraries) > 1 {
		turns = rounds
	}
	iterations := make([]iteration, len(libraries))
	samples := make([][]float64, len(libraries))
	for i, do := range libraries {
		it, err := prepare(g, c, p, do)
		if err != nil {
			return nil, err
		}
		defer it.close()
		iterations[i], samples[i] = it, make([]float64, 0, p.Iterations)
	}
	runtime.GC() // now, and not in the middle: the loop itself allocates nothing
	for turn := range turns {
		for i, it := range iterations {
			n := p.Iterations*(turn+1)/turns - p.Iterations*turn/turns
			if err := sample(ctx, g, it, p.Warmup, n, &samples[i]); err != nil {
				return nil, err
			}
		}
	}
	times := make([]float64, len(libraries))
	for i := range times {
		var err error
		if times[i], err = slowest(ctx, g, p.of(samples[i])/float64(p.Calls)); err != nil {
			return nil, err
		}
	}
	return times, nil
}

// iteration is the work that one sample times: the calls, as a graph or one by one.
type iteration struct {
	queue Queue // nil: the calls return when they are done
	held  bool  // the host's own time does not count
	run   func() error
	close func()
}

func prepare(g Group, c *Call, p Plan, do library) (iteration, error) {
	it := iteration{queue: g.Queue(), close: func() {}}
	calls := func() error { return do(c, p.Calls) }
	it.run = calls
	if it.queue == nil {
		return it, nil
	}
	// Once before, the barrier as well: what is allocated or loaded on first use
	// cannot be recorded, and the driver loads nothing while the queue is held.
	if err := errors.Join(g.Barrier(), do(c, 1), it.queue.Finish()); err != nil {
		return it, err
	}
	if !p.Graph {
		return it, nil
	}
	graph, err := it.queue.Capture(calls)
	if err != nil {
		return it, fmt.Errorf("record %d calls: %w", p.Calls, err)
	}
	it.run, it.held, it.close = graph.Launch, true, func() { graph.Close() }
	return it, nil
}

// sample appends the time of each iteration, in microseconds.
func sample(ctx context.Context, g Group, it iteration, warmup, iterations int, to *[]float64) error {
	runtime.LockOSThread()
	defer runtime.UnlockOSThread()
	for i := -warmup; i < iterations; i++ {
		if err := ctx.Err(); err != nil {
			return context.Cause(ctx)
		}
		took, err := it.time(func() error {
			if err := g.Barrier(); err != nil {
				return fmt.Errorf("barrier before %s: %w", iterationName(i, warmup, iterations), err)
			}
			return nil
		})
		if err != nil {
			return err
		}
		if i >= 0 {
			*to = append(*to, float64(took.Nanoseconds())/1e3)
		}
	}
	return nil
}

// iterationName names iteration i for an error; those below 0 are for warming up.
func iterationName(i, warmup, iterations int) string {
	if i < 0 {
		return fmt.Sprintf("warm-up iteration %d of %d", i+warmup+1, warmup)
	}
	return fmt.Sprintf("iteration %d of %d", i+1, iterations)
}

func (it *iteration) time(align func() error) (time.Duration, error) {
	if it.queue != nil {
		return it.queue.Time(it.held, align, it.run)
	}
	if err := align(); err != nil {
		return 0, err
	}
	start := time.Now()
	err := it.run()
	return time.Since(start), err
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
