package devicetest

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"strings"
	"sync"
	"testing"

	"github.com/mscclpp-go/mscclpp/collectives"
	"github.com/mscclpp-go/mscclpp/framework/device"
)

const directly = "hierarchical_direct"

// overAdapters runs f as ranks of several hosts, once for each way of adapters to signal.
func overAdapters(t *testing.T, layout string, with setting, o collectives.Options, f func(ctx context.Context, r *rank) error) {
	t.Helper()
	for _, name := range []string{overAtomics, overImmediate} {
		t.Run(layout+" "+name, func(t *testing.T) {
			needsAdapters(t)
			with := with
			with.over = name
			run(t, strings.Split(layout, ""), with, o, f)
		})
	}
}

func needsAdapters(t *testing.T) {
	t.Helper()
	if _, err := machine(); err == nil && imageFolder == "" {
		t.Skip("needs emulated GPUs: no adapter of a network stands beside these")
	}
	if _, err := adapters(); err != nil {
		t.Skipf("needs a compiler for emulated adapters: %v", err)
	}
}

// first makes the first call of a job, behind which it is known what serves calls.
func first(ctx context.Context, r *rank) error {
	return errors.Join(r.Barrier(&collectives.CallOptions{Stream: r.stream}), r.settle(ctx))
}

// Kernels exchange what hosts have: all sizes from nothing to many pieces, all
// reductions, launched and from graphs.
func TestDirectResults(t *testing.T) {
	const half = 4 << 20
	for _, layout := range []string{"ab", "abc", "aabb", "abab"} {
		var mu sync.Mutex
		ran := 0
		overAdapters(t, layout, setting{}, collectives.Options{Scratch: 1 << 20}, func(ctx context.Context, r *rank) error {
			m, err := r.world.Alloc(2 * half)
			if err != nil {
				return err
			}
			if err := first(ctx, r); err != nil {
				return err
			}
			if !slices.Contains(r.Algorithms(collectives.AllReduce), directly) {
				return fmt.Errorf("algorithms %v: expected %s", r.Algorithms(collectives.AllReduce), directly)
			}
			rig := r.rig(ctx, m.Addr(), half)
			i := 0
			for _, op := range []device.Op{device.Sum, device.PreMulSum, device.Avg, device.Max} {
				for k, count := range []int{0, 1, 2, 63, 1001, 16 << 10, 40_009, 300_000} {
					i++
					x := trial{Kind: collectives.AllReduce, Count: count, Type: []device.DataType{device.Float16, device.Float32}[(i+i/7)%2],
						Op: op, InPlace: i/2%2 == 0, Shift: k % 3}
					if chosen, err := r.Choice(x.Request(r.Size()), ""); err != nil || chosen != directly {
						return fmt.Errorf("%d elements: by %q, %v: expected %s", count, chosen, err, directly)
					}
					if err := x.Run(rig, uint64(i)); err != nil {
						return err
					}
					mu.Lock()
					ran++
					mu.Unlock()
				}
			}
			return nil
		})
		if t.Failed() {
			return
		}
		if ran == 0 {
			t.Errorf("%s: nothing ran", layout)
		}
	}
}
