package devicetest

import (
	"context"
	"errors"
	"fmt"
	"os"
	"strings"
	"testing"

	"github.com/mscclpp-go/mscclpp/collectives"
	"github.com/mscclpp-go/mscclpp/framework/kernel"
)

// Copy engines stand for adapters, so that the kernels run on GPUs of one machine as
// they would between hosts: results, and replays of a graph between other calls. With
// fewer GPUs than ranks these are processes: the driver makes a rank that loads kernels
// wait for those of its own process that run, but not for others.
func TestDirectByCopyEngines(t *testing.T) {
	gpus := needsGPU(t)
	for _, layout := range []string{"ab", "aabb"} {
		t.Run(layout, func(t *testing.T) {
			if len(gpus) < len(layout) {
				exchangeInProcesses(t, layout)
				return
			}
			run(t, strings.Split(layout, ""), setting{over: overCopies}, collectives.Options{}, exchanges)
		})
	}
}

// The same with ranks that are processes, wherever they are.
func TestDirectByCopyEnginesInProcesses(t *testing.T) {
	needsGPU(t)
	exchangeInProcesses(t, "ab")
}

func exchangeInProcesses(t *testing.T, layout string) {
	t.Helper()
	ctx, cancel := context.WithTimeout(t.Context(), patience)
	defer cancel()
	all, lines := processes(ctx, t, len(layout), childExchanges, layout)
	for r, s := range lines {
		for s.Scan() {
			t.Errorf("rank %d: %s", r, s.Text())
		}
		if err := all[r].Wait(); err != nil {
			t.Errorf("rank %d: %v", r, err)
		}
	}
}

// exchanges is what each rank does.
func exchanges(ctx context.Context, r *rank) error {
	const count = 300_007
	replays := 200
	if raceEnabled || os.Getenv(childMode) != "" { // or processes that get the GPU by turns
		replays = 60
	}
	m, err := r.world.Alloc(16 * count)
	if err != nil {
		return err
	}
	if err := first(ctx, r); err != nil {
		return err
	}
	rig := r.rig(ctx, m.Addr(), 8*count)
	for i, kind := range append([]collectives.Collective{collectives.AllReduce, collectives.ReduceScatter, collectives.AllGather}, rooted...) {
		for k, n := range []int{0, 1, 1001, 40_009, count} {
			if kind != collectives.AllReduce {
				n /= r.Size()
			}
			x := trial{Kind: kind, Count: n, Algorithm: directly, Type: kernel.Float32, InPlace: k%2 == 0}
			if kind != collectives.AllToAll && i > 2 {
				x.Root = k % r.Size()
			}
			if err := x.Run(rig, uint64(10*i+k)); err != nil {
				return err
			}
		}
	}
	posted, err := newPost(r, count)
	if err != nil {
		return err
	}
	length := func(from, to int) int { return []int{count, 0, 1, 40_009}[(from*3+to)%4] }
	if err := errors.Join(delivered(r), posted.write(1, length)); err != nil {
		return err
	}
	o := &collectives.CallOptions{Stream: r.stream}
	calls := func() error {
		p := pointer(m.Addr())
		return errors.Join(posted.everyone(length, ""), r.AllReduce(p, p, 1000, kernel.Float32, kernel.Avg, o), r.AllReduce(p, p, count, kernel.Float32, kernel.Avg, o), r.Barrier(o),
			r.Reduce(p, p, 1000, kernel.Float32, kernel.Max, 0, o), r.Broadcast(p, p, 10_007, kernel.Float32, r.Size()-1, o))
	}
	if err := errors.Join(calls(), r.settle(ctx), posted.read(1, length), posted.write(2, length)); err != nil {
		return err
	}
	graph, err := capture(r, calls)
	if err != nil {
		return err
	}
	defer graph.Close()
	for i := range replays {
		if err = graph.Launch(r.stream); i%50 == 0 {
			err = errors.Join(err, calls(), r.settle(ctx))
		}
		if err != nil {
			return fmt.Errorf("after %d replays: %w", i, err)
		}
	}
	got := make([]byte, 4*count)
	return errors.Join(r.settle(ctx), posted.read(2, length), r.dev.ReadAt(got, m.Addr()), alike(ctx, r, got), r.world.Barrier(ctx))
}
